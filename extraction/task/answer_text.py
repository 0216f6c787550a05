"""The text of an answer: the frame that the model reads, and the body held within its cap."""

from collections.abc import Sequence
from dataclasses import replace

from content.text import cut_head
from domain.extraction import Answer, ExtractStatus, Mode

CUT_WARNING = "the answer was cut: it was longer than its cap"

_CUT = b"\n[The rest was cut: it was longer than its cap.]"
_CUT_LINE = _CUT.decode()


def frame_answer(tool_name: str, handle: str, strategy: Mode, body: str) -> str:
    return f"ABSTRACT FROM TOOL OUTPUT {tool_name} WITH HANDLE {handle}, STRATEGY:{strategy}:\n\n{body}"


def frame_failure(tool_name: str, handle: str, strategy: Mode, error: str) -> str:
    return f"TOOL_OUTPUT FAILED FOR {tool_name} WITH HANDLE {handle}, STRATEGY:{strategy}:\n\n{error}"


def cap_answer(answer: Answer, max_bytes: int) -> Answer:
    """Returns the answer with a body of at most `max_bytes`. An answer whose body is cut, here or before, is
    partial and carries CUT_WARNING."""
    body = cap_text(answer.body, max_bytes)
    if body == answer.body and not body.endswith(_CUT_LINE):
        return answer
    status = ExtractStatus.PARTIAL if answer.status is ExtractStatus.COMPLETE else answer.status
    is_warned = CUT_WARNING in answer.warnings
    warnings = answer.warnings if is_warned else (*answer.warnings, CUT_WARNING)
    return replace(answer, body=body, status=status, warnings=warnings)


def cap_text(text: str, max_bytes: int) -> str:
    """Returns the text if it fits `max_bytes` of UTF-8, else its beginning and a line that says so."""
    data = text.encode()
    if len(data) <= max_bytes:
        return text
    if max_bytes < len(_CUT):
        return cut_head(data, max_bytes).decode()
    return (cut_head(data, max_bytes - len(_CUT)) + _CUT).decode()


def cap_texts(texts: Sequence[str], max_bytes: int) -> list[str]:
    """Caps each text at an equal share of `max_bytes`. Long texts share what short texts leave."""
    kept = list(texts)
    left = max(0, max_bytes)
    by_size = sorted(range(len(kept)), key=lambda index: len(kept[index].encode()))
    for served, index in enumerate(by_size):
        kept[index] = cap_text(kept[index], left // (len(kept) - served))
        left -= len(kept[index].encode())
    return kept
