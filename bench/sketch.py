"""Measures the processor time of the message about a result, by kind of data, at four sizes."""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SIZES = (20_000, 100_000, 250_000, 1_000_000)
ROUNDS = 15
TAIL_BYTES = 4 << 10


def _record(number: int) -> bytes:
    customer = {"name": f"Ann {number % 77}", "city": "Oslo"}
    items = [{"sku": sku} for sku in range(number % 4)]
    return json.dumps({"id": number, "customer": customer, "amount": number * 1.5, "items": items}).encode()


def _cell(number: int) -> bytes:
    return b"<tr><td>%d<td>the name of %d</tr>" % (number, number)


def _table_of(number: int) -> bytes:
    rows = b"".join(b"| %d | the name of %d |\n" % (n, n) for n in range(number, number + 5))
    return b"## Part %d\n\n| id | name |\n|---|---|\n%b\n" % (number, rows)


def _hunk(number: int) -> bytes:
    lines = b"".join(b"+a new line of the file %d\n" % number for _ in range(20))
    return b"diff --git a/f%d.py b/f%d.py\n--- a/f%d.py\n+++ b/f%d.py\n@@ -1,0 +1,20 @@\n%b" % (
        *(number,) * 4,
        lines,
    )


KINDS: dict[str, tuple[bytes, Callable[[int], bytes], bytes]] = {
    "text": (b"", lambda n: b"A line of plain words with number %d and more of it.\n" % n, b""),
    "log": (b"", lambda n: b"2026-01-01 10:00:%02d INFO worker %d did something\n" % (n % 60, n), b""),
    "ndjson": (b"", lambda n: _record(n) + b"\n", b""),
    "json": (b'{"orders":[' + _record(0), lambda n: b"," + _record(n), b"]}"),
    "json, cut off": (b'{"orders":[' + _record(0), lambda n: b"," + _record(n), b""),
    "csv": (b"id,name,amount\n", lambda n: b"%d,name %d,%d.5\n" % (n, n, n), b""),
    "csv, quoted": (b"id,name,amount\n", lambda n: b'%d,"name, %d",%d.5\n' % (n, n, n), b""),
    "page": (b"<html><body><h1>Names</h1><table>", _cell, b"</table></body></html>"),
    "blocks": (
        b"",
        lambda n: b"dn: uid=ann%d,ou=people\nuid: ann%d\nmail: ann%d@example.com\n\n" % (n, n, n),
        b"",
    ),
    "Markdown tables": (b"# Names\n\n", _table_of, b""),
    "Python list": (b"[", lambda n: b"('name %d', %d, None), " % (n, n), b"]"),
    "rows between bars": (b"| id | name |\n|---|---|\n", lambda n: b"| %d | name %d |\n" % (n, n), b""),
    "diff": (b"", _hunk, b""),
    "code": (b"import os\n\n", lambda n: b"def work_%d(a):\n    return a + %d\n\n\n" % (n, n), b""),
}
"""The beginning, the nth record and the end of each kind."""


def text_of(kind: str, size: int) -> bytes:
    """About `size` bytes."""
    begin, record, end = KINDS[kind]
    each = len(record(size // 100))
    return begin + b"".join(map(record, range(1, size // each + 1))) + end


def milliseconds(describe: Callable[[bytes, int], object], text: bytes) -> float:
    # The service counts them while a text streams by.
    times, lines = [], text.count(b"\n") + 1
    for _ in range(ROUNDS):
        began = time.process_time()
        describe(text, lines)
        times.append(time.process_time() - began)
    return min(times) * 1000


def describer() -> Callable[[bytes, int], object]:
    """The function of the tree that is first in the path; 0.1.0 had a sentence and no sketch."""
    from content import text as sizes
    from content.describe import source_of

    try:
        from content.sketch import sketch as describe
    except ImportError:
        from content.describe import about as describe  # type: ignore[attr-defined, no-redef]

    whole = getattr(sizes, "SKETCHED_BYTES", 0) or sizes.ABOUT_HEAD_BYTES
    part = getattr(sizes, "SAMPLE_BYTES", 0) or sizes.ABOUT_SAMPLE_BYTES

    def of(text: bytes, lines: int) -> object:
        head = whole if len(text) <= whole else part
        return describe(source_of(text[:head], text[-TAIL_BYTES:], len(text), lines))

    return of


def measured(tree: Path) -> dict[str, list[float]]:
    """The milliseconds of each kind at each size, in the version in `tree`."""
    command = [sys.executable, __file__, "--json"]
    done = subprocess.run(command, env={"PYTHONPATH": str(tree)}, check=True, capture_output=True)
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="the checkout of another version")
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.json:
        describe = describer()
        print(json.dumps({kind: [milliseconds(describe, text_of(kind, s)) for s in SIZES] for kind in KINDS}))
        return
    now = measured(Path(__file__).parents[1])
    before = measured(options.before.resolve()) if options.before else {}
    print("| milliseconds of processor time | " + " | ".join(f"{size // 1000:,} KB" for size in SIZES) + " |")
    print("|---|" + "---|" * len(SIZES))
    for kind, times in now.items():
        cells = [f"{one:.2f}" for one in times]
        if before:
            cells = [f"{cell} ({one:.2f})" for cell, one in zip(cells, before[kind], strict=True)]
        print(f"| {kind} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
