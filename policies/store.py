"""store: the result is kept whole, and the model reads the handle message instead."""

from domain.handles import Handle
from domain.results import Measure

_MESSAGE = (
    "Tool output is too large ({bytes} bytes, {lines} lines, {tokens} tokens).\n"
    'Call tool_output(handle = "{handle}", extract = "what to extract").\n'
    "The handle is a relative path under the tool_output root.\n"
    "Provide precise and detailed instructions in `extract` about what you are looking for."
)


def text(handle: Handle, measure: Measure, preview: str = "") -> str:
    """The handle message, exact; a preview follows after a blank line."""
    message = _MESSAGE.format(bytes=measure.bytes, lines=measure.lines, tokens=measure.tokens, handle=handle)
    return f"{message}\n\n{preview}" if preview else message
