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
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from app.http.edge.server import SETTLE_SECONDS
from bench import corpus, load
from bench.servers import ROOT, free_port

_COLLECTED = re.compile(r"Collected : (\d+)")


class Kind(NamedTuple):
    """`warm` requests are sent before the `counted` ones."""

    size: int
    warm: int
    counted: int

    @property
    def requests(self) -> list[bytes]:
        return [
            load.request("/results", json.dumps({"tool_name": "bench", "content": text}).encode())
            for text in corpus.texts(self.size, self.warm + self.counted)
        ]


KINDS = {
    "2 KB, passes": Kind(2_000, 100, 300),
    "100 KB, stored": Kind(100_000, 20, 60),
    "1 MB, stored": Kind(1_000_000, 4, 12),
}


def instructions(tree: Path, kind: Kind) -> float:
    """The instructions of one counted result, in the version of Spillgate in `tree`. Takes about twenty
    seconds."""
    with tempfile.TemporaryDirectory(prefix="bench-instructions-") as folder:
        port = free_port()
        environ = {
            **os.environ,
            "PYTHONHASHSEED": "0",
            "SPILLGATE_STORAGE_URL": f"disk://{folder}/store",
            "SPILLGATE_LOG_LEVEL": "error",
        }
        report = Path(folder, "report")
        valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--log-file={report}"]
        valgrind += [f"--callgrind-out-file={folder}/counts"]
        serve = [sys.executable, "-m", "beside.main", "serve", "--port", str(port)]
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
        before = instructions(options.before, KINDS[name]) / 1e3 if options.before else 0
        print(f"| {name} | {now:,.0f} |" + (f" {before:,.0f} | {now / before:.3f} |" if before else " | |"))


if __name__ == "__main__":
    main()
