"""store: the result is stored. The model reads the handle message and a preview of up to `preview_bytes`."""

from content.text import ABOUT_HEAD_BYTES, ABOUT_SAMPLE_BYTES, ABOUT_TAIL_BYTES, Preview, preview
from domain.doors import Door
from domain.handles import Handle
from domain.results import Measure
from policies.oversized import Ends, Oversized, asking, asking_by_shell, has_tools, names_tool, takes_extract
from policies.policy import Policy

CUTS = False

_PREVIEWED_BYTES = 1 << 16
"""Bytes of the head that a preview is made from."""

_TOO_LARGE = "Tool output is too large ({} bytes, {} lines, {} tokens).\n"
_KEPT_MESSAGE = f"{_TOO_LARGE}The whole output is stored under the handle {{handle}}."
_FILE = "\nThe whole output is in the file {}."
_CLOSED_MESSAGE = f"{_TOO_LARGE}It is not shown, and cannot be asked about here. Go on with what you have."
_BARE_MESSAGE = f"{_TOO_LARGE}Call {{call}}."
_MESSAGE = f"{_BARE_MESSAGE}\nThe handle is a relative path under the tool_output root."
_PASS_ON = "\nTo hand it to another tool{} unread, pass spillgate://<handle> as the whole argument."
_OF = {"any": "", "server": " of this server"}
_CAT = "\ncat in place of ask writes all of it."
_INSTRUCTIONS = "\nProvide precise and detailed instructions{} about what you are looking for."


def ends(measure: Measure, policy: Policy) -> Ends:
    if policy.preview is Preview.NONE:
        return Ends(0, 0)
    if policy.preview in (Preview.ABOUT, Preview.DIGEST):
        head = ABOUT_HEAD_BYTES if measure.bytes <= ABOUT_HEAD_BYTES else ABOUT_SAMPLE_BYTES
        return Ends(head, ABOUT_TAIL_BYTES, overview=policy.preview)
    overview = policy.preview if policy.preview is Preview.OUTLINE else None
    return Ends(_PREVIEWED_BYTES, policy.preview_bytes, overview=overview)


def text(oversized: Oversized) -> str | None:
    """The handle message, then a blank line and the preview, if any; the closed message for a model that has
    no means to ask. Where no tool is known, the message names the file, too."""
    assert oversized.handle is not None
    if not oversized.can_ask:
        return closed_message(oversized.measure)
    policy, size = oversized.policy, oversized.measure.bytes
    message = handle_message(oversized.handle, oversized.measure, policy, oversized.result.door)
    if oversized.path is not None:
        message += _FILE.format(oversized.path)
    shown = oversized.overview or preview(
        policy.preview, oversized.head, oversized.tail, size, policy.preview_bytes
    )
    return f"{message}\n\n{shown}" if shown else message


def closed_message(measure: Measure) -> str:
    return _CLOSED_MESSAGE.format(measure.bytes, measure.lines, measure.tokens)


def handle_message(handle: Handle, measure: Measure, policy: Policy, door: Door | None = None) -> str:
    """The message, and what else this door's model can do: hand the result on, run commands of a shell."""
    call, more = asking(handle, policy, door), ""
    size = measure.bytes, measure.lines, measure.tokens
    if not names_tool(policy, door):
        return _KEPT_MESSAGE.format(*size, handle=call)
    if door is not None and door.call:
        return _BARE_MESSAGE.format(*size, call=call)
    is_told = has_tools(policy, door)
    if door is not None:
        more = _search(door, policy) + _pass_on(door) + _shell(door, is_told)
    where = " in `extract`" if is_told or door is None else ""
    how = _INSTRUCTIONS.format(where) if takes_extract(policy) or not is_told else ""
    return _MESSAGE.format(*size, call=call) + how + more


def _search(door: Door, policy: Policy) -> str:
    if not (door.needs_search and policy.offer):
        return ""
    return f"\nIf the tool is not in your list, find it with {door.needs_search} first."


def _pass_on(door: Door) -> str:
    return _PASS_ON.format(_OF[door.passes_on]) if door.passes_on else ""


def _shell(door: Door, is_told: bool) -> str:
    """`is_told`: the message names a tool; else it names the command that asks."""
    if not door.has_shell:
        return ""
    return (f"\nIn a shell: {asking_by_shell('HANDLE')}" if is_told else "") + _CAT
