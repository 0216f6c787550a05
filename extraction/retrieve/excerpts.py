"""Prints passages for a model: the best first, each under its lines and path."""

from collections.abc import Iterable, Sequence

from content.passages.passages import Passage
from extraction.task.source import Source

_NEWLINE = ord("\n")


def chosen(source: Source, data: bytes, passages: Iterable[Passage], max_bytes: int) -> list[list[Passage]]:
    """Takes passages in turn while they fit `max_bytes`. Adjacent ones with the same path form one run, which
    stands where the first of them was taken. `data` is all of the source."""
    runs: list[list[Passage]] = []
    for one in passages:
        cost = one.end - one.start + len(head(source, data, [one]).encode()) + 1
        if cost > max_bytes:
            continue
        max_bytes -= cost
        joined = [run for run in runs if run[0].path == one.path and _is_next(run, one)]
        if not joined:
            runs.append([one])
            continue
        joined[0].append(one)
        for other in joined[1:]:
            joined[0].extend(other)
            runs.remove(other)
        joined[0].sort(key=lambda part: part.start)
    return runs


def _is_next(run: Sequence[Passage], one: Passage) -> bool:
    return run[-1].end == one.start or one.end == run[0].start


def shown(source: Source, data: bytes, runs: Iterable[Sequence[Passage]], note: str = "") -> str:
    """At most the bytes that `chosen` was given, and the `note`, which stands beside the first place."""
    text = []
    for run in runs:
        body = data[run[0].start : run[-1].end].decode("utf-8", "ignore")
        text += [head(source, data, run, note), body, "" if body.endswith("\n") else "\n"]
        note = ""
    return "".join(text)


def head(source: Source, data: bytes, run: Sequence[Passage], note: str = "") -> str:
    parts = (place(source, data, run[0], run[-1]), run[0].path, note)
    return f"[{' · '.join(filter(None, parts))}]\n"


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
