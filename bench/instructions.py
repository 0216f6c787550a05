"""Instructions of the service for one result, counted by valgrind: a busy machine changes nothing."""

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from app.edge.server import SETTLE_SECONDS
from bench import corpus, load
from bench.operations import API_KEY, QUOTAS, key_file, key_line, with_headers
from bench.servers import ROOT, free_port

_COLLECTED = re.compile(r"Collected : (\d+)")


class Kind(NamedTuple):
    """`warm` requests are sent before the `counted` ones."""

    size: int
    warm: int
    counted: int
    has_keys: bool = False
    has_quotas: bool = False

    @property
    def requests(self) -> list[bytes]:
        sent = []
        for number, text in enumerate(corpus.texts(self.size, self.warm + self.counted)):
            headers = {"Authorization": f"Bearer {API_KEY}"} if self.has_keys else {}
            headers |= {"X_Request_ID": f"bench-{number:08}"} if self.has_quotas else {}
            body = json.dumps({"tool_name": "bench", "content": text}).encode()
            sent.append(with_headers(load.request("/results", body), **headers))
        return sent


KINDS = {
    "2 KB, passes": Kind(2_000, 100, 300),
    "2 KB, keys": Kind(2_000, 100, 300, has_keys=True),
    "2 KB, keys, roles, quotas, request ids": Kind(2_000, 100, 300, has_keys=True, has_quotas=True),
    "100 KB, stored": Kind(100_000, 20, 60),
    "1 MB, stored": Kind(1_000_000, 4, 12),
}


def instructions(tree: Path, kind: Kind) -> float:
    """The instructions of one counted result, in the version of Spillgate in `tree`. Takes about twenty
    seconds."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-instructions-"))
        keys = stack.enter_context(key_file(key_line("team-a", API_KEY)))
        port = free_port()
        environ = {
            **os.environ,
            "PYTHONHASHSEED": "0",
            "SPILLGATE_STORAGE_URL": f"disk://{folder}/store",
            "SPILLGATE_LOG_LEVEL": "error",
            **({"SPILLGATE_API_KEYS_FILE": str(keys)} if kind.has_keys else {}),
            **(QUOTAS if kind.has_quotas else {}),
        }
        report = Path(folder, "report")
        valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--log-file={report}"]
        valgrind += [f"--callgrind-out-file={folder}/counts"]
        serve = [sys.executable, "-m", "command.main", "serve", "--port", str(port)]
        process = subprocess.Popen([*valgrind, *serve], cwd=tree, env=environ)
        try:
            _wait_for(port, process)
            requests = kind.requests
            _send(port, requests[: kind.warm])
            # The collection after the start is none of a result's cost.
            time.sleep(SETTLE_SECONDS)
            _send(port, requests[: kind.warm])
            _count(process.pid, "on")
            _send(port, requests[kind.warm :])
            _count(process.pid, "off")
        finally:
            process.terminate()
            process.wait()
        collected = _COLLECTED.search(report.read_text())
        assert collected is not None
        return int(collected[1]) / kind.counted


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("the service did not start")


def _count(pid: int, switch: str) -> None:
    subprocess.run(["callgrind_control", "-i", switch, str(pid)], check=True, stdout=subprocess.DEVNULL)


def _send(port: int, requests: Sequence[bytes]) -> None:
    """One after the other over one connection."""
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as answers:
        for request in requests:
            connection.sendall(request)
            status = answers.readline()
            assert status.split()[1] in (b"200", b"201"), status
            length = 0
            while (line := answers.readline().lower()) != b"\r\n":
                length = int(line.split(b":")[1]) if line.startswith(b"content-length:") else length
            answers.read(length)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="the checkout of another version")
    parser.add_argument("--only", nargs="*", choices=list(KINDS), default=list(KINDS))
    options = parser.parse_args()
    print("| result | thousand instructions | before | ratio |\n|---|---|---|---|")
    for name in tqdm(options.only, unit="row"):
        now = instructions(ROOT, KINDS[name]) / 1e3
        # An older version may not know keys with roles, nor quotas.
        before = (
            instructions(options.before, KINDS[name]) / 1e3 if options.before and "keys" not in name else 0
        )
        print(f"| {name} | {now:,.0f} |" + (f" {before:,.0f} | {now / before:.3f} |" if before else " | |"))


if __name__ == "__main__":
    main()
