"""truncate: the beginning and the end of the data, with a marker between them."""

from content.text import TRUNCATED, cut_head, cut_tail, decode_part
from domain.extraction import Answer, Coverage, ExtractStatus, Mode, UnreadRange
from extraction.task import Task

NEEDS_MODEL = False

_MORE = 4


async def answer(task: Task) -> Answer:
    """Returns all of the data if it fits the cap, else as much of both ends as fits."""
    asked, max_bytes = task.asked, task.max_bytes
    if asked.size <= max_bytes:
        body = await asked.read(0, asked.size)
        return Answer(decode_part(body), Mode.TRUNCATE, ExtractStatus.COMPLETE, Coverage(1, 1, 1.0))
    room = max(0, max_bytes - len(TRUNCATED.format(asked.size)))
    # Reads a few bytes more, so that a character at the cut is complete and can be left out.
    first, last = room - room // 2, room // 2
    head = cut_head(await asked.read(0, min(first + _MORE, asked.size)), first)
    tail = cut_tail(await asked.read(max(0, asked.size - last - _MORE), asked.size), last)
    gap_start, gap_end = len(head), asked.size - len(tail)
    marker = TRUNCATED.format(gap_end - gap_start).encode()
    body = head + marker[: max(0, max_bytes)] + tail
    missing = tuple(
        UnreadRange(span.start, span.end, "truncated") for span in asked.located(gap_start, gap_end)
    )
    coverage = Coverage(1, 1, round((len(head) + len(tail)) / asked.size, 4), missing)
    return Answer(decode_part(body), Mode.TRUNCATE, ExtractStatus.PARTIAL, coverage)
