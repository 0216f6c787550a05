"""`spillgate hook CLIENT`: a coding agent's hook over stdin and stdout. Whatever fails, the result passes.

An agent waits for this command after each call of a tool. It reads no arguments but the client: to an agent,
the exit status 2 of wrong arguments means that the call is to be blocked.
"""

import json
import os
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from beside import embedded
from beside.client import (
    LARGE_BYTES,
    Refused,
    ServiceClient,
    ServiceError,
    ServiceRequest,
    TextBody,
    Unreachable,
    encoded,
    govern,
    in_any_shell,
    masked,
    own_path,
    resolved,
    shown_unstored,
)
from beside.commands import SETTING_UP
from beside.hooks.agents import CLIENTS
from domain.errors import ConfigError
from domain.hooks.call import Client, HookAnswer, HookCall, PendingCall, ended_session, in_shell, project_in
from domain.hooks.texts import text_in
from domain.references import UNRESOLVED
from machine.addresses import OWN, state_folder
from machine.descriptors import write_all

TIMEOUT_MS = 1000
"""The time that the service may take, unless SPILLGATE_HOOK_TIMEOUT_MS is set."""

START_SECONDS = 5.0
"""The time that a start may take, unless SPILLGATE_HOOK_TIMEOUT_MS is longer. Agents wait for 10 s."""

RETRY_SECONDS = 30.0
"""After a failed start, results pass for this time before a hook tries again."""

MAX_PAYLOAD_BYTES = 256 << 20
"""The largest payload or spilled file that is read. The service takes up to SPILLGATE_MAX_BODY_BYTES."""

RESOLVE_SECONDS = 8.0
"""The agent gives a hook 10 s. A call that refers to stored results waits: it cannot run without them."""

MAX_LOG_BYTES = 1 << 20

STATUS_SECONDS = 0.5
"""The longest wait for an exit status in a transcript."""

STATUS_BYTES = 4 << 20
"""The end of a transcript in which an exit status is looked for."""

_POLL_SECONDS = 0.02
_PIECE_BYTES = 1 << 18
_NO_STATUS = "the transcript does not have the exit status of the command, which a replacement would hide"


PROBE = {"spillgate": "status"}
"""What `spillgate hook status` sends in place of a payload."""


class Passed(Exception):
    """The result passes. The message says why, for the log."""


def main(arguments: Sequence[str]) -> int:
    """Answers the payload on stdin. The exit status is 0, and stdout `{}`, whatever fails. A client that is
    not known is an error for the person who set the hook up: status 1, at which agents go on."""
    client = arguments[0]
    if client not in CLIENTS:
        return _unknown(client)
    try:
        answer, event = _answered(client, _payload())
    except ServiceError as error:
        answer, event = {}, f"passed: {error} It is not stored."
    except (Passed, ConfigError, OSError) as error:
        answer, event = {}, f"passed: {str(error) or type(error).__name__}"
    except Exception as error:  # noqa: BLE001
        # For any error, the agent continues with the result. The message of the error may quote the result.
        answer, event = {}, f"passed: {type(error).__name__}"
    if event:
        log(f"{client[:20]!a} {event}")
    _write(answer)
    return 0


def _unknown(client: str) -> int:
    if sys.stdin is not None:
        if sys.stdin.isatty():
            return _mistyped(client)
        sys.stdin.buffer.read(MAX_PAYLOAD_BYTES)  # An agent may fail if its payload is not read.
    known = f"known are {', '.join(CLIENTS)}; a person can install, uninstall or see the status of one"
    log(f"{client[:20]!a} passed: no such client; {known}")
    if sys.stderr is not None:
        print(f"spillgate hook: there is no client {client[:20]!a}; {known}.", file=sys.stderr)
    _write({})
    return 1


def _write(answer: HookAnswer) -> None:
    """Writes to stdout if it can be written to. What Python's buffer holds would be written again at the end,
    and fail with exit status 120."""
    if sys.stdout is None:  # It was closed. A connection may have got its number.
        return
    # ASCII, because a lone surrogate in the rest of the result must not fail here.
    with suppress(OSError):
        write_all(1, json.dumps(answer).encode() + b"\n")


def _mistyped(word: str) -> int:
    from difflib import get_close_matches  # Takes 3 ms, which no hook waits for.

    near = get_close_matches(word, [*SETTING_UP, *CLIENTS], 1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    print(
        f"spillgate hook: there is no subcommand or client {word[:20]!a}.{meant}\n"
        f"Write {', '.join(SETTING_UP)} and a client, one of {', '.join(CLIENTS)}.",
        file=sys.stderr,
    )
    return 1


def log(event: str) -> None:
    """Adds a line to hook.log in the state directory. It holds no result and no arguments. The log of a hook
    that cannot write it is lost."""
    folder = state_folder()
    path = os.path.join(folder, "hook.log")
    with suppress(OSError):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.path.exists(path) and os.path.getsize(path) > MAX_LOG_BYTES:
            os.replace(path, f"{path}.1")
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{moment} {event}\n")


def _payload() -> Any:
    """Raises OSError, ValueError, RecursionError, Passed."""
    data = sys.stdin.buffer.read(MAX_PAYLOAD_BYTES + 1)
    if len(data) > MAX_PAYLOAD_BYTES:
        raise Passed(f"the payload is larger than {MAX_PAYLOAD_BYTES} bytes")
    try:
        return json.loads(data)
    except ValueError:
        # Its message quotes the payload.
        raise Passed("the payload is not JSON") from None


def _answered(client: str, payload: Any) -> tuple[HookAnswer, str]:
    """The agent's JSON and the line for the log, "" for none."""
    if payload == PROBE:
        return _probed(client), ""
    sent, inner = payload, CLIENTS[client].inner_json
    if inner and (text := text_in(payload, inner)) is not None:
        payload = {**payload, inner: json.loads(text)}
    if (session := ended_session(payload)) is not None:
        return {}, _end(session)
    pending = CLIENTS[client].before(payload)
    if pending is not None:
        return _passed_on(pending) if pending.refers else ({}, "")
    call = CLIENTS[client].read(payload)
    if call is None:
        raise Passed("the payload has a shape that this hook does not replace")
    if not call.is_governable:
        return {}, ""
    if not call.may_pay:
        return _masked(client, sent), ""
    if call.status_in is not None:
        try:
            call = _with_status(CLIENTS[client], call, call.status_in)
        except (Passed, OSError) as error:
            log(f"{client[:20]!a} passed: {error}")
            return _masked(client, sent), ""
    call = call._replace(project=project_in(payload))
    shown, redacts = _governed(client, call, text_in(payload, "transcript_path"))
    if shown is not None and not call.pays(shown):
        log(f"{client}: the replacement is larger than a third of what the agent shows")
        return _masked(client, sent), ""
    if redacts:
        answer = _with_masks(client, call, shown)
    else:
        answer = {} if shown is None else call.answer(_in_shell_of_agent(shown))
    return answer, f"replaced a result of {call.tool!a}" if answer else ""


def _probed(client: str) -> HookAnswer:
    """For `spillgate hook status`: which service this hook asks, and why it does not answer, "" if it does.
    One that starts by itself is not started."""
    try:
        with closing(ServiceClient.from_environment(False)) as service:
            told = {"asks": str(service.address), "fails": "", "starts": False}
            try:
                seconds = max(_timeout(), START_SECONDS)
                service.request(ServiceRequest("POST", f"/hooks/{client}", b"{}", seconds=seconds))
                told["asks"] = str(service.reached)
            except ServiceError as error:
                told["fails"] = str(error)
                told["starts"] = (
                    isinstance(error, Unreachable) and service.address == OWN and embedded.may_start()
                )
    except (Passed, ConfigError) as error:
        told = {"asks": "", "fails": str(error), "starts": False}
    return {"spillgate": told}


def _passed_on(call: PendingCall) -> tuple[HookAnswer, str]:
    """A call that refers to stored results. If they cannot be had, the tool does not run."""
    try:
        with closing(ServiceClient.from_environment()) as service:
            arguments, refusal = resolved(
                service.request, call.session_id, call.tool, call.arguments, RESOLVE_SECONDS
            )
    except (ServiceError, ConfigError, OSError) as error:
        return call.refused(UNRESOLVED), f"refused a call of {call.tool!a}: {error}"
    if refusal is not None:
        return call.refused(refusal), f"refused a call of {call.tool!a}"
    return call.changed(arguments), f"handed stored results to {call.tool!a}"


def _with_status(client: Client, call: HookCall, path: str) -> HookCall:
    """The call with the exit status of its command. The agent may write its transcript a moment later than it
    runs the hook. Raises OSError, and Passed if the status is not there."""
    where = os.path.realpath(path)
    if client.transcripts is None or not client.transcripts.fullmatch(where):
        raise Passed(_NO_STATUS)
    with closing(OwnFile(where)) as file:
        until = time.monotonic() + STATUS_SECONDS
        while True:
            lines = file.last(STATUS_BYTES).split(b"\n")
            found = next((one for line in reversed(lines) if (one := client.with_status(call, line))), None)
            if found is not None:
                return found
            if time.monotonic() > until:
                raise Passed(_NO_STATUS)
            time.sleep(_POLL_SECONDS)


def _in_shell_of_agent(text: str) -> str:
    """The message, with `spillgate ask` as the agent's shell has to call it: that may have another PATH, and
    lacks the address that the agent's settings give this hook."""
    return in_shell(text, in_any_shell(own_path()))


def _masked(client: str, payload: Any) -> HookAnswer:
    """The service masks what the agent shows of a result, if the policy says so. Raises ServiceError."""
    with closing(ServiceClient.from_environment()) as service:
        body = json.dumps(payload).encode()
        answer = service.request(
            ServiceRequest("POST", f"/hooks/{client}", body, size=len(body), seconds=_timeout())
        ).json()
    return answer if isinstance(answer, dict) else {}


def _with_masks(client: str, call: HookCall, shown: str | None) -> HookAnswer:
    """The agent's JSON for a replacement, or for what the agent shows itself, with masks in all of it. {} if
    the agent has nothing to replace. Raises ServiceError."""
    text = "\n".join(call.texts) if shown is None else _in_shell_of_agent(shown)
    answer = call.answer(text)
    fields = {"tool_name": call.tool, "session_id": call.session_id, "door": client}
    sent = json.dumps([call.shown, answer])
    try:
        with closing(ServiceClient.from_environment()) as service:
            got = masked(service.request, fields, sent, _timeout())
    except ServiceError as error:
        if shown is None:
            raise
        log(f"{client}: {error} What is shown beside the text is not masked.")
        return answer
    seen, answer = json.loads(got)
    return {} if shown is None and seen == call.shown else answer


def _end(session: str) -> str:
    """Ends the session. Its results stay until their retention ends. Raises ServiceError, ConfigError."""
    path = f"/sessions/{quote(session, safe='')}?keep_results=true"
    with closing(ServiceClient.from_environment()) as service:
        try:
            service.request(ServiceRequest("DELETE", path, seconds=_timeout()))
        except Refused as error:
            if error.status != 404:
                raise
            return ""
    return "released the session at its end"


def _text(call: HookCall) -> str:
    """Returns what the model reads instead of the result."""
    text = "\n".join(call.texts)
    if call.structured is None:
        return text
    structured = json.dumps(call.structured, ensure_ascii=False, separators=(",", ":"))
    return structured if len(structured) > 2 * len(text) else text


def _governed(client: str, call: HookCall, transcript: str | None) -> tuple[str | None, bool]:
    """The replacement, None if the result passes; and whether the policy redacts what the tool returns.
    Raises ServiceError, ConfigError, OSError, Passed."""
    text = _text(call)
    with ExitStack() as opened:
        service = opened.enter_context(closing(_service()))
        content: TextBody | OwnFile = TextBody(lambda: [text])
        if call.spilled is not None:
            content = opened.enter_context(closing(_spilled(client, call.spilled, transcript)))
        named = json.dumps([call.tool, call.arguments, content.size]).encode()
        call_id = call.call_id or sha256(named + encoded(text)).hexdigest()
        fields = _fields(client, call, call_id)
        try:
            try:
                answer = govern(service.request, fields, content, _timeout())
            except Refused as error:
                if error.code != "invalid_utf8" or not isinstance(content, OwnFile):
                    raise
                content = TextBody(partial(iter, [b"".join(content).decode("utf-8", "replace")]))
                answer = govern(service.request, fields, content, _timeout())
            return answer.replacement(), answer.redacts
        except ServiceError as error:
            if content.size <= LARGE_BYTES:
                raise
            return _cut(client, text, error), False


def _cut(client: str, text: str, error: ServiceError) -> str | None:
    """Returns what the model gets of a large result that is not stored; None if the agent shows little of
    it."""
    cut = shown_unstored(text)
    log(f"{client} {'passed' if cut is None else 'cut a result'}: {error} It is not stored.")
    return cut


def _service() -> ServiceClient:
    """Raises ConfigError, Passed."""
    seconds = max(START_SECONDS, _timeout())
    return ServiceClient.from_environment(seconds=seconds, retry_seconds=RETRY_SECONDS)


def _fields(client: str, call: HookCall, call_id: str) -> dict[str, str | bool | None]:
    """Returns the fields of POST /results."""
    arguments = call.arguments
    if arguments is not None and not isinstance(arguments, str):
        arguments = json.dumps(arguments)
    return {
        "tool_name": call.tool,
        "session_id": call.session_id,
        "tool_call_id": call_id,
        "door": client,
        "project": call.project,
        "is_error": call.is_error,
        "tool_arguments": arguments,
    }


def _timeout() -> float:
    """Seconds. Raises Passed."""
    milliseconds = os.environ.get("SPILLGATE_HOOK_TIMEOUT_MS") or str(TIMEOUT_MS)
    if not (milliseconds.isascii() and milliseconds.isdigit() and int(milliseconds)):
        raise Passed("SPILLGATE_HOOK_TIMEOUT_MS must be a whole number of milliseconds")
    return int(milliseconds) / 1000


class OwnFile:
    """A regular file of this user, of at most MAX_PAYLOAD_BYTES, open."""

    def __init__(self, path: str) -> None:
        """Raises OSError, Passed."""
        self._file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        info = os.fstat(self._file)
        self.size = info.st_size
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or self.size > MAX_PAYLOAD_BYTES:
            self.close()
            raise Passed(
                f"the agent's file is not a regular file of this user, or has over {MAX_PAYLOAD_BYTES} bytes"
            )

    def __iter__(self) -> Iterator[bytes]:
        """Yields `size` bytes, any number of times: a file that has become shorter fails the request; bytes
        that were added are left out."""
        at = 0
        while at < self.size and (piece := os.pread(self._file, min(_PIECE_BYTES, self.size - at), at)):
            at += len(piece)
            yield piece

    def last(self, size: int) -> bytes:
        """Returns the last bytes of the file as it is now."""
        at = max(0, os.fstat(self._file).st_size - size)
        return os.pread(self._file, size, at)

    def close(self) -> None:
        os.close(self._file)


def _spilled(client: str, path: str, transcript: str | None) -> OwnFile:
    """The file in which the agent left the whole output. It must lie where the agent leaves them. Raises
    OSError, Passed."""
    where, outputs = os.path.realpath(path), CLIENTS[client].outputs
    if outputs is not None:
        is_known = outputs.fullmatch(where) is not None
    else:
        folder = os.path.join((transcript or "").removesuffix(".jsonl"), "tool-results")
        is_known = transcript is not None and os.path.dirname(where) == os.path.realpath(folder)
    if not is_known:
        raise Passed("the whole output is outside of the folder where this agent keeps outputs")
    return OwnFile(where)
