"""The service in a process of its own, and what the tests send it: a week of accounting, large results."""

import itertools
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from domain.accounting import AccountingEntry, EntryDetails, EntryStatus, EntryType
from domain.outcomes import OutcomeKind, Trigger
from storage.sqlite import rows, sums
from storage.sqlite.database import open_database

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 90
HOUR_MS = 3_600_000
DAYS = 7


class Service:
    """`url` is where it listens. It can be stopped, and started again on the same port."""

    def __init__(self, state: Path, **settings: str) -> None:
        self._state = state
        self._settings = settings
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.start()
        self.http = httpx.Client(base_url=self.url, trust_env=False, timeout=60)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SPILLGATE_")}
        given = {f"SPILLGATE_{name.upper()}": value for name, value in self._settings.items()}
        given |= {"SPILLGATE_STORAGE_URL": f"disk://{self._state}", "PYTHONPATH": str(ROOT)}
        log = self._state.parent / f"{self._state.name}.log"
        with log.open("ab") as out:
            begins = log.stat().st_size
            self._process = subprocess.Popen(
                [sys.executable, "-m", "beside.main", "serve", "--port", str(self._port)],
                env=kept | given,
                stdout=out,
                stderr=out,
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            for line in log.read_bytes()[begins:].splitlines():
                if line.startswith(b'{"ts"') and b'"listening"' in line and line.endswith(b"}"):
                    self._port = int(json.loads(line)["address"].rpartition(":")[2])
                    return
            assert self._process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.02)

    def stop(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def send(self, content: str | bytes, **fields: Any) -> dict[str, Any]:
        """POST /results; returns the answer."""
        given = {"tool_name": "execute_shell", "session_id": "demo", **fields}
        answer = self.http.post(
            "/results", params=given, content=content, headers={"Content-Type": "text/plain"}
        )
        assert answer.status_code < 300, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def handle(self, content: str | bytes, **fields: Any) -> str:
        return str(self.send(content, **fields)["handle"])


@contextmanager
def serving(state: Path, **settings: str) -> Iterator[Service]:
    service = Service(state, **settings)
    try:
        yield service
    finally:
        service.http.close()
        service.stop()


TOOLS = ("execute_shell", "read_file", "mcp__github__search_code", "web_fetch", "sql_query", "grep_content")


KINDS = (EntryType.TOOL, EntryType.LLM, EntryType.EXTRACT, EntryType.READ)


def past_entries(count: int, now: int) -> Iterator[AccountingEntry]:
    """`count` entries of the last week, busier by day than by night; the same at each call."""
    dice = random.Random(17)
    span = DAYS * 24 * HOUR_MS
    for number in range(count):
        share = number / count
        # Bends time, so that there are busy and quiet hours.
        at = (
            now
            - span
            + int(span * (share + math.sin(share * DAYS * 2 * math.pi) / (DAYS * 2 * math.pi) * 0.8))
        )
        yield _entry(dice, number, at)


def _entry(dice: random.Random, number: int, at: int) -> AccountingEntry:
    kind = dice.choices(KINDS, [86, 3, 7, 4])[0]
    session, tool = f"agent-{dice.randrange(400)}", dice.choices(TOOLS, [8, 5, 3, 2, 1, 2])[0]
    tokens = int(dice.lognormvariate(6.2, 1.6))
    large = tokens > 3000
    handle = f"session-{session}/file-00000000-0000-4000-8000-{number:012x}" if large else None
    fields: dict[str, Any] = {"tokens_in": tokens, "tokens_out": tokens}
    if kind is EntryType.TOOL and large:
        outcome = dice.choices([OutcomeKind.STORE, OutcomeKind.TRUNCATE, OutcomeKind.REJECT], [8, 2, 1])[0]
        shown = {OutcomeKind.STORE: 96, OutcomeKind.TRUNCATE: 780, OutcomeKind.REJECT: 38}[outcome]
        fields = {
            "tokens_in": tokens,
            "tokens_out": shown,
            "tokens_saved": tokens - shown,
            "outcome": outcome,
        }
        fields["trigger"] = Trigger.SIZE_CAP if dice.random() < 0.93 else Trigger.TOKEN_BUDGET
    elif kind is EntryType.TOOL:
        fields |= {"outcome": OutcomeKind.PASS}
    else:
        read = dice.randrange(60, 900)
        fields = {"tokens_out": read, "tokens_saved": -read, "latency": dice.expovariate(1 / 900)}
    if kind is EntryType.EXTRACT:
        fields |= {"strategy": dice.choices(["retrieve", "full-chunked", "read-grep"], [6, 3, 1])[0]}
        if dice.random() < 0.04:
            fields |= {"strategy": "truncate", "fallback_reason": "no model answered in time"}
    if kind is EntryType.LLM:
        fields |= {"model": "gpt-4o-mini", "cost_usd": round(dice.expovariate(900), 6)}
    return AccountingEntry(
        id=f"entry-{number:016x}",
        type=kind,
        timestamp=at,
        tenant="default",
        session_id=session,
        tool_name=tool,
        command=tool,
        status=EntryStatus.FAILED if dice.random() < 0.01 else EntryStatus.OK,
        details=EntryDetails(handle, bytes=4 * tokens, lines=tokens // 12 + 1, tokens=tokens),
        **fields,
    )


def write_ledger(state: Path, count: int) -> None:
    """A ledger of `count` entries. Its rows are written without their service, which would take a minute."""
    path, now = state / "ledger.db", int(time.time() * 1000)
    connections = open_database(path)
    with connections.writer:
        writer = connections.writer.cursor()
        writer.execute("BEGIN")
        waiting, groups = past_entries(count, now), sums.SumGroups()
        while some := list(itertools.islice(waiting, 500)):
            added: sums.Added = {}
            for entry in some:
                sums.collect(added, entry)
            rows.insert(writer, map(rows.entry_row, some))
            sums.add_newest(writer, groups, added)
        writer.execute("COMMIT")
    for connection in (connections.by_key, connections.long, connections.writer):
        connection.close()
    os.close(connections.lock)


def log_of(lines: int) -> bytes:
    """A web server's log; its line n ends in `item n`."""
    return b"".join(
        b"2026-11-22 %02d:%02d:%02d web GET /orders/%d %s in %d ms, item %d\n"
        % (
            n // 3600 % 24,
            n // 60 % 60,
            n % 60,
            n * 7919 % 100_003,
            b"500 FAILED" if n % 1000 == 0 else b"200",
            n % 977,
            n,
        )
        for n in range(1, lines + 1)
    )
