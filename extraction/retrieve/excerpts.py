"""Prints passages for a model: in the order of the data, each under its lines and path, gaps marked."""

from collections.abc import Iterable, Sequence

from content.passages import Passage
from extraction.source import Source

GAP = "[...]\n"

_NEWLINE = ord("\n")


def chosen(source: Source, data: bytes, passages: Iterable[Passage], max_bytes: int) -> list[Passage]:
    """Takes passages in turn while they fit `max_bytes`, and returns them in the order of the data. `data` is
    all of the source."""
    found = []
    for passage in passages:
        cost = passage.end - passage.start + len(_head(source, data, [passage]).encode()) + len(GAP) + 1
        if cost <= max_bytes:
            max_bytes -= cost
            found.append(passage)
    return sorted(found, key=lambda one: one.start)


def shown(source: Source, data: bytes, passages: Sequence[Passage]) -> str:
    """At most the bytes that `chosen` was given, and a last gap. Adjacent passages share one heading."""
    text = []
    end = 0
    for run in _runs(passages):
        if run[0].start > end:
            text.append(GAP)
        end = run[-1].end
        body = data[run[0].start : end].decode("utf-8", "ignore")
        text += [_head(source, data, run), body, "" if body.endswith("\n") else "\n"]
    return "".join(text) + (GAP if end < len(data) else "")


def _runs(passages: Iterable[Passage]) -> list[list[Passage]]:
    """Groups adjacent passages with the same path."""
    runs: list[list[Passage]] = []
    for one in passages:
        if runs and runs[-1][-1].end == one.start and runs[-1][-1].path == one.path:
            runs[-1].append(one)
        else:
            runs.append([one])
    return runs


def _head(source: Source, data: bytes, run: Sequence[Passage]) -> str:
    at, path = place(source, data, run[0], run[-1]), run[0].path
    return f"[{at} · {path}]\n" if path else f"[{at}]\n"


def place(source: Source, data: bytes, first: Passage, last: Passage) -> str:
    """The lines of the stored result if they are known and whole, otherwise the bytes, as in `ranges`."""
    spans = source.located(first.start, last.end)
    in_bytes = f"bytes {spans[0].start}-{spans[-1].end}"
    if source.size < source.stored.measure.bytes:
        return in_bytes
    lines = f"line {first.line}" if first.line == last.last_line else f"lines {first.line}-{last.last_line}"
    return lines if _are_lines(data, first.start, last.end) else f"{lines}, {in_bytes}"


def _are_lines(data: bytes, start: int, end: int) -> bool:
    begins = start == 0 or data[start - 1] == _NEWLINE
    return begins and (end == len(data) or data[end - 1] == _NEWLINE)
