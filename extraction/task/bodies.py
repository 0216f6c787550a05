"""The body of an answer, held within its cap."""

from collections.abc import Sequence
from dataclasses import replace

from content.text import cut
from domain.extraction import Answer, ExtractStatus

WARNING = "the answer was cut: it was longer than its cap"

_CUT = b"\n[The rest was cut: it was longer than its cap.]"
_CUT_LINE = _CUT.decode()


def within(answer: Answer, max_bytes: int) -> Answer:
    """With a body that fits. One that is cut, here or when the model said it, is complete no more."""
    body = capped(answer.body, max_bytes)
    if body == answer.body and not body.endswith(_CUT_LINE):
        return answer
    status = ExtractStatus.PARTIAL if answer.status is ExtractStatus.COMPLETE else answer.status
    told = answer.warnings if WARNING in answer.warnings else (*answer.warnings, WARNING)
    return replace(answer, body=body, status=status, warnings=told)


def capped(text: str, max_bytes: int) -> str:
    """The text itself if it fits, else its beginning and a line that says that it was cut."""
    data = text.encode()
    if len(data) <= max_bytes:
        return text
    if max_bytes < len(_CUT):
        return cut.head(data, max_bytes).decode()
    return (cut.head(data, max_bytes - len(_CUT)) + _CUT).decode()


def shared(texts: Sequence[str], max_bytes: int) -> list[str]:
    """Each within a fair share of the room: what the short ones leave, the long ones have."""
    kept = list(texts)
    left = max(0, max_bytes)
    by_size = sorted(range(len(kept)), key=lambda index: len(kept[index].encode()))
    for served, index in enumerate(by_size):
        kept[index] = capped(kept[index], left // (len(kept) - served))
        left -= len(kept[index].encode())
    return kept
