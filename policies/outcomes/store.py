"""store: the result is stored; the model reads the handle message and a preview."""

from content.text import SAMPLE_BYTES, SAMPLE_TAIL_BYTES, SKETCHED_BYTES, Preview, preview
from domain.doors import Door
from domain.handles import Handle
from domain.results import Measure
from policies.oversized import Ends, Oversized, asks_alone, has_tools, names_tool, reading, shell_reading
from policies.policy import Policy

CUTS = False
MUST_SAVE = True

_PREVIEWED_BYTES = 1 << 16
"""Bytes of the head that a preview is made from."""

_SKETCH_BYTES = 700
_LEAST_SKETCH_BYTES = 80

TOO_LARGE = "Tool output is too large"
"""The beginning of each handle message."""

_TOO_LARGE = f"{TOO_LARGE} ({{}} bytes, {{}} lines, {{}} tokens)."
_IS_STORED = f"{_TOO_LARGE} It is stored."
_KEPT_MESSAGE = f"{_IS_STORED}\nIts handle is {{handle}}."
_FILE = "\nThe whole output is in the file {}."
_CLOSED_MESSAGE = f"{_TOO_LARGE}\nIt is not shown, and cannot be asked about here. Go on with what you have."
_ASK_MESSAGE = (
    f"{_TOO_LARGE}\nCall {{call}}.\nThe handle is a relative path under the tool_output root.\n"
    "Provide precise and detailed instructions in `extract` about what you are looking for."
)
_PASS_ON = "\nTo hand it to another tool{} unread, pass spillgate://<handle> as the whole argument."
_SHELL = "\nIn a shell (query, grep, lines, ask or cat): {}"
_OF = {"any": "", "server": " of this server"}


def ends(measure: Measure, policy: Policy) -> Ends:
    if policy.preview is Preview.NONE:
        return Ends(0, 0)
    if policy.preview is Preview.SKETCH:
        head = SKETCHED_BYTES if measure.bytes <= SKETCHED_BYTES else SAMPLE_BYTES
        return Ends(head, SAMPLE_TAIL_BYTES, overview=policy.preview)
    overview = policy.preview if policy.preview is Preview.OUTLINE else None
    return Ends(_PREVIEWED_BYTES, policy.preview_bytes, overview=overview)


def sketch_room(oversized: Oversized) -> int:
    """The most bytes of a sketch with which the whole text stays below half of the result; 0 if they are too
    few."""
    if not oversized.can_ask:
        return 0
    half = oversized.measure.bytes // 2 - len(_message(oversized).encode())
    room = min(_SKETCH_BYTES, oversized.policy.preview_bytes, half - len("\n\n"))
    return room if room >= _LEAST_SKETCH_BYTES else 0


def text(oversized: Oversized) -> str | None:
    """The handle message, then a blank line and the preview, if any. A model that has no means to ask gets
    the closed message. The message names the file, too, if `path` is set."""
    assert oversized.handle is not None
    if not oversized.can_ask:
        return closed_message(oversized.measure)
    policy, size = oversized.policy, oversized.measure.bytes
    shown = oversized.overview or preview(
        policy.preview, oversized.head, oversized.tail, size, policy.preview_bytes
    )
    message = _message(oversized)
    return f"{message}\n\n{shown}" if shown else message


def tokens(measure: Measure, policy: Policy, message_tokens: int) -> int:
    return message_tokens


def _message(oversized: Oversized) -> str:
    assert oversized.handle is not None
    message = handle_message(oversized.handle, oversized.measure, oversized.policy, oversized.result.door)
    return message if oversized.path is None else message + _FILE.format(oversized.path)


def closed_message(measure: Measure) -> str:
    return _CLOSED_MESSAGE.format(measure.bytes, measure.lines, measure.tokens)


def handle_message(handle: Handle, measure: Measure, policy: Policy, door: Door | None = None) -> str:
    """The message, with lines on what else the door's model can do: hand the result on, use a shell."""
    size = measure.bytes, measure.lines, measure.tokens
    if not names_tool(policy, door):
        return _KEPT_MESSAGE.format(*size, handle=handle)
    if door is not None and door.call:
        return f"{_IS_STORED.format(*size)}\nCall {door.call}."
    more = ""
    if door is not None:
        more = _search(door, policy) + _pass_on(door)
    how = reading(handle, policy, door)
    if not has_tools(policy, door):
        return f"{_IS_STORED.format(*size)}{_SHELL.format(how)}{more}"
    more += _shell(door)
    if asks_alone(policy):
        return _ASK_MESSAGE.format(*size, call=how) + more
    return f"{_IS_STORED.format(*size)}\n{how}.{more}"


def _search(door: Door, policy: Policy) -> str:
    if not (door.needs_search and policy.offer):
        return ""
    return f"\nIf the tool is not in your list, find it with {door.needs_search} first."


def _pass_on(door: Door) -> str:
    return _PASS_ON.format(_OF[door.passes_on]) if door.passes_on else ""


def _shell(door: Door | None) -> str:
    """The line on how a model that has our tools reads the result in a shell; "" if it has no shell."""
    return _SHELL.format(shell_reading("HANDLE")) if door is not None and door.has_shell else ""
