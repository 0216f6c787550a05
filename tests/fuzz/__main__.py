"""The service under schemathesis: every check and phase, over its own OpenAPI document, on disk and SQLite.

    python -m tests.fuzz [seconds]

Two services are tested for about half of `seconds` each, one without API keys and one with them; without
`seconds` each is tested until every phase is done. The exit code is 1 where anything is found.
"""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.faults.service_process import ROOT, SERVE, Service

PROGRAM = Path(os.environ.get("FUZZ_VENV") or ROOT / ".fuzz") / "bin" / "schemathesis"
CONFIG = Path(__file__).with_name("schemathesis.toml")
HOOKS = Path(__file__).with_name("hooks.py")
KEY = "sk-fuzz"
DIGEST = hashlib.sha256(KEY.encode()).hexdigest()


def main(seconds: int | None) -> int:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("open", "keys"):
            (Path(folder) / name).mkdir()
        codes = [
            asyncio.run(_fuzzed(Path(folder) / "open", {}, {}, seconds)),
            asyncio.run(
                _fuzzed(
                    Path(folder) / "keys",
                    {"api_keys_file": _keys(Path(folder)), "allowed_hosts": "127.0.0.1"},
                    {"Authorization": f"Bearer {KEY}"},
                    seconds,
                )
            ),
        ]
    return max(codes)


def _keys(folder: Path) -> str:
    path = folder / "keys.txt"
    path.write_text(f"tenant:{DIGEST}\n")
    return str(path)


async def _fuzzed(
    folder: Path, settings: dict[str, str], headers: dict[str, str], seconds: int | None
) -> int:
    service = Service(folder / "state", folder / "log", SERVE, settings)
    try:
        await service.listening()
        host, port = service.address
        handle = await _stored(service, headers)
        options = [part for name, value in headers.items() for part in ("--header", f"{name}: {value}")]
        bound = () if seconds is None else ("--max-time", str(seconds // 2))
        command = [str(PROGRAM), "--config-file", str(CONFIG), "run", *options, *bound]
        command.append(f"http://{host}:{port}/openapi.json")
        environ = {**os.environ, "SCHEMATHESIS_HOOKS": str(HOOKS), "FUZZ_HANDLE": handle}
        code = subprocess.run(command, cwd=folder, env=environ, check=False).returncode
        for line in service.failures():
            print(line)
        return 1 if service.failures() else code
    finally:
        await service.stop()


async def _stored(service: Service, headers: dict[str, str]) -> str:
    """The handle of a result that the generated requests may read."""
    rows = [{"id": number, "name": f"row {number}"} for number in range(2000)]
    async with service.client(headers=headers) as client:
        answer = await client.post("/results", json={"tool_name": "read_file", "content": json.dumps(rows)})
        handle: str = answer.json()["handle"]
        return handle


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else None))
