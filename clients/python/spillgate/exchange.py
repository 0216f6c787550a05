"""What is sent to the service and what its answers mean: pure steps, which both clients execute.

A flow yields the Request to send and receives its Response, or None if there was none; it yields seconds to
wait and receives None. It returns what the caller gets.
"""

import json
import logging
import os
import re
import uuid
from collections.abc import Callable, Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from hashlib import sha256
from operator import is_
from pathlib import Path
from typing import Any, TypedDict, TypeGuard, TypeVar
from urllib.parse import quote, urlencode

from spillgate.references import TOO_DEEP, UNRESOLVED, is_reference, may_refer, references_in, replaced

log = logging.getLogger("spillgate")

T = TypeVar("T")
Blocks = list[dict[str, Any]]

TOOL_NAMES = ("tool_output", "tool_output_grep", "tool_output_lines", "tool_output_query")
"""The tools that a service may offer. `tools()` says which it offers now, with their definitions."""

UNREACHED = "unreached"
"""The outcome of a result that the service did not decide: it passed, or was cut, here."""

WAITS_SECONDS = (0.5, 1.0, 2.0)
CALL_TIMEOUT_SECONDS = 130.0
"""The longest deadline of an extraction is 120 s."""

RESOLVE_TIMEOUT_SECONDS = 45.0
"""A query for an argument may wait 10 s and run 30 s."""

AWAY_TIMEOUT_SECONDS = 2.0
MAX_CALL_ID = 256
MAX_ARGUMENT_BYTES = 1 << 20
"""The service takes no larger ones; a result is governed without them."""

MAX_RESULT_JSON_BYTES = 1 << 20
"""A larger result is sent as text, which the service streams. Of blocks, that is their text."""

MAX_QUERY = 6000
"""The service takes a URL of 8 KiB. With a longer query, a text is sent without its tool's arguments."""


current_session: ContextVar[str | None] = ContextVar("spillgate_session", default=None)
"""The session that `session()` opened around the running code."""

_OWN_TOOL = re.compile(r"(?:^|[^A-Za-z0-9])tool_output(?:_grep|_lines|_query)?$")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_IN_A_SESSION_ID = re.compile(r"[^A-Za-z0-9._:@=+~-]")


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    body: bytes | None
    headers: Mapping[str, str]
    timeout: float


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes
    retry_after: str = ""


Flow = Generator[Request | float, Response | None, T]


@dataclass(frozen=True, slots=True)
class Governed:
    """What became of a result. `content` is for the model: the result itself if it passed, else a text.

    `outcome` is the service's word, as `pass` or `store`, or `unreached`.
    `exhausted`: the window is spent, take the final turn. `answer` holds all fields of the service's
    answer."""

    content: str | Blocks
    outcome: str
    complete: bool
    handle: str | None = None
    exhausted: bool = False
    answer: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """`content` as one string: the text of blocks, and other blocks as JSON. Pictures are left out."""
        if isinstance(self.content, str):
            return self.content
        return text_of([one for one in self.content if one["type"] not in PICTURES] or "")


@dataclass(frozen=True, slots=True)
class Check:
    """Whether a result of some size would pass. If not, `trigger` says why, and `content` is what the model
    may be told instead of calling the tool."""

    allowed: bool
    trigger: str | None = None
    content: str | None = None


@dataclass(frozen=True, slots=True)
class Resolved:
    """The arguments with which a tool is to be called. `refusal` is what the model reads instead, if the tool
    is not to run."""

    arguments: Any
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Tools:
    """The definitions of the tools to offer now, and their part of the system prompt. Both may be empty: what
    is to be said of `tool_output`, its definition says."""

    definitions: list[dict[str, Any]]
    instructions: str

    @property
    def names(self) -> list[str]:
        return [one.get("function", one)["name"] for one in self.definitions]


class ClientOptions(TypedDict, total=False):
    """What a client, and every adapter, is given by name.

    `base_url` (`http://host:port`, or `unix:/a/socket`), `api_key` and `session_id` default to
    SPILLGATE_URL, SPILLGATE_KEY and SPILLGATE_SESSION; without a URL the user's own service is asked.
    `timeout` (10) bounds one try and `patience` (4) the retries of a call, in seconds. A result that the
    service did not take passes if it has at most `cut_chars` (12,288) characters; else it is cut there, and
    says so. `headers` go with every request: a mapping, or a function that is asked each time."""

    base_url: str | None
    api_key: str | None
    session_id: str | None
    timeout: float
    patience: float
    cut_chars: int
    headers: Mapping[str, str] | Callable[[], Mapping[str, str]]


class UsageFields(TypedDict, total=False):
    """`used_tokens` are those in the context as the model's provider counted them last; `turn` numbers the
    report. `session_id`: not the client's own."""

    used_tokens: int | None
    turn: int | None
    session_id: str | None


class ResultFields(UsageFields, total=False):
    """The other fields of POST /results. `arguments`: what the tool was called with. `passes_on`: `any` if
    the arguments of each call go through `resolve`."""

    arguments: Mapping[str, Any] | str | None
    passes_on: str | None
    is_error: bool
    model: str | None
    policy: Mapping[str, Any] | None
    provider: str | None
    tool_kind: str | None
    tool_namespace: str | None
    latency_ms: float | None
    client: str | None
    project: str | None


class SessionFields(TypedDict, total=False):
    """The fields of PUT /sessions/{id}."""

    context_window: int | None
    buffer_tokens: int | None
    max_output_tokens: int | None
    model: str | None
    policy: Mapping[str, Any] | None


class CheckFields(TypedDict, total=False):
    """The size of a result before there is one: at least one of `bytes`, `tokens` and `rows`. `limit` is the
    limit of a read that gets a part, which may go ahead."""

    bytes: int | None
    tokens: int | None
    rows: int | None
    limit: int | None
    model: str | None
    session_id: str | None


def refuse_unknown(given: Mapping[str, object], kind: type) -> None:
    """Raises TypeError if `given` has a name that `kind`, a TypedDict, does not have."""
    known: frozenset[str] = kind.__optional_keys__  # type: ignore[attr-defined]
    unknown = sorted(given.keys() - known)
    if unknown:
        raise TypeError(f"Spillgate has no option {unknown[0]!r}. Known are {', '.join(sorted(known))}.")


PICTURES = frozenset({"image", "image_url", "input_image", "audio", "input_audio"})
"""The types of blocks that the service has pass beside the text."""


def text_of(value: object) -> str:
    """A tool's result as the text that a model would read: JSON for what is neither text nor bytes, or, where
    JSON cannot hold it, what `str` makes of it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return str(value, errors="replace")
    if is_blocks(value):
        return "\n".join(one["text"] if isinstance(one.get("text"), str) else _json(one) for one in value)
    return _json(value)


def repaired(value: Any) -> Any:
    """With U+FFFD in place of each lone surrogate, as the service does: no API of a model takes one. Two
    halves of a character are joined. The same object if it has neither."""
    if isinstance(value, str):
        if value.isascii() or not _SURROGATE.search(value):
            return value
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        items = [repaired(one) for one in value]
        return value if all(map(is_, items, value)) else items
    if isinstance(value, dict):
        members = {repaired(name): repaired(one) for name, one in value.items()}
        pairs = zip(members.items(), value.items(), strict=False)
        is_same = len(members) == len(value) and all(a is c and b is d for (a, b), (c, d) in pairs)
        return value if is_same else members
    return value


def is_blocks(value: object) -> TypeGuard[Blocks]:
    """The content blocks of an MCP result, which the service takes as they are."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, dict) and isinstance(one.get("type"), str) for one in value)
    )


def is_own_tool(name: str) -> bool:
    """`tool_output` and the tools like it, with or without the prefix of an MCP client."""
    return _OWN_TOOL.search(name) is not None


def safe_session_id(name: str) -> str:
    """A framework's own id as a session id: other characters become `-`, a `_` goes before what may not begin
    one, and it is cut at 128."""
    safe = _NOT_IN_A_SESSION_ID.sub("-", name)
    return (safe if safe[:1].isalnum() or safe.startswith("_") else f"_{safe}")[:128]


def given_url(options: ClientOptions) -> str:
    """The base URL, `unix:/a/socket`, or "" for the user's own service."""
    url = (options.get("base_url") or os.environ.get("SPILLGATE_URL") or "").rstrip("/")
    return url if not url or "://" in url or url.startswith("unix:") else f"http://{url}"


class Exchange:
    """The flows of one client. `monotonic` is the clock, in seconds."""

    def __init__(self, options: ClientOptions, monotonic: Callable[[], float]) -> None:
        refuse_unknown(options, ClientOptions)
        self.away = False
        self.unreached = ""
        """Why the service was not reached, in a sentence; "" if there is nothing to say but that."""
        self._monotonic = monotonic
        self._timeout = options.get("timeout", 10.0)
        self._patience = options.get("patience", 4.0)
        self._cut_chars = options.get("cut_chars", 12_288)
        self._more = options.get("headers", {})
        self._session = options.get("session_id")
        key = options.get("api_key") or os.environ.get("SPILLGATE_KEY") or _key_of_file()
        self._headers = {
            "Content-Type": "application/json",
            **({"Authorization": f"Bearer {key}"} if key else {}),
        }

    def session_id(self, given: str | None) -> str:
        """Given for this call, else configured, else `default`."""
        return given or self.configured_session() or "default"

    def configured_session(self) -> str | None:
        """The session that was opened around the running code, else the client's own, else the
        environment's."""
        return current_session.get() or self._session or os.environ.get("SPILLGATE_SESSION") or None

    def govern(
        self, tool_name: str, call_id: str | None, content: object, fields: ResultFields
    ) -> Flow[Governed]:
        refuse_unknown(fields, ResultFields)
        original = content if is_blocks(content) else text_of(content)
        sent = repaired(original)
        if is_own_tool(tool_name):
            return Governed(sent, "pass", complete=True)  # It is governed and charged already.
        body = {
            **_sent_fields(fields),
            "session_id": self.session_id(fields.get("session_id")),
            "tool_name": tool_name[:256] or "tool",
            "tool_call_id": repaired(_call_id(call_id)),
        }
        answer = yield from self.ask(self._result(body, sent))
        if _is_reused(answer):
            # Some agents, or their models, count calls from 0 again and again.
            body["tool_call_id"] = _own_call_id(body, sent)
            answer = yield from self.ask(self._result(body, sent))
        governed = _governed(answer, sent) or self._cut(sent)
        if sent is original or json.dumps(sent, default=str) == json.dumps(original, default=str):
            return governed
        return replace(governed, complete=False)

    def check(self, tool_name: str, fields: CheckFields) -> Flow[Check]:
        """What is asked of a service that is away, or refuses, is allowed."""
        refuse_unknown(fields, CheckFields)
        body: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
        body["paginated"] = body.pop("limit", None) is not None
        body["session_id"] = self.session_id(fields.get("session_id"))
        body["tool_name"] = tool_name[:256] or "tool"
        answer = yield from self.ask(self.request("POST", "/check", body))
        if answer is None or answer.get("allowed") is not False:
            return Check(allowed=True)
        return Check(False, _text(answer, "trigger") or None, _text(answer, "content") or None)

    def _result(self, fields: dict[str, Any], content: str | Blocks) -> Request:
        headers = {"Prefer": "return=minimal"}
        text = _utf8_of(content)
        if len(text) <= MAX_RESULT_JSON_BYTES:
            return self.request("POST", "/results", {**fields, "content": content}, headers)
        headers["Content-Type"] = "text/plain; charset=utf-8"
        return self.request("POST", f"/results?{_query(fields)}", text, headers)

    def tools(self, form: str, session_id: str | None) -> Flow[Tools]:
        """One try: a turn without these tools is better than a turn that waits."""
        query = urlencode({"session_id": self.session_id(session_id), "format": form})
        response = yield self.request("GET", f"/tools?{query}")
        answer = self._read(response) or {}
        definitions, instructions = answer.get("tools"), answer.get("instructions")
        if not _are_definitions(definitions) or not isinstance(instructions, str):
            return Tools([], "")
        return Tools(definitions, instructions)

    def call(self, name: str, arguments: Mapping[str, Any] | str, fields: UsageFields) -> Flow[str]:
        refuse_unknown(fields, UsageFields)
        session_id, used_tokens = fields.get("session_id"), fields.get("used_tokens")
        if used_tokens is not None:
            yield from self.report(used_tokens, fields.get("turn"), session_id)
        body = {"session_id": self.session_id(session_id), "name": name[:128], "arguments": arguments or {}}
        request = self.request("POST", "/tools/call", body, timeout=CALL_TIMEOUT_SECONDS)
        answer = yield from self.ask(request)
        if answer is None:
            return "Stored outputs cannot be reached now. Go on without them, or try once more later."
        return _text(answer, "text") or _text(answer, "detail") or "The stored output could not be read."

    def resolve(self, arguments: Any, tool_name: str, session_id: str | None) -> Flow[Resolved]:
        is_json = isinstance(arguments, str) and not is_reference(arguments)
        try:
            value = _decoded(arguments) if is_json else arguments
            references = references_in(value)
        except RecursionError:
            return Resolved(arguments, TOO_DEEP)
        if not references:
            return Resolved(arguments)
        body = {
            "session_id": self.session_id(session_id),
            "tool_name": tool_name[:256] or "tool",
            "arguments": references,
        }
        request = self.request("POST", "/arguments", body, timeout=RESOLVE_TIMEOUT_SECONDS)
        answer = yield from self.ask(request)
        texts = (answer or {}).get("arguments")
        if not isinstance(texts, list) or len(texts) != len(references):
            return Resolved(arguments, _text(answer, "refusal") or UNRESOLVED)
        following = iter(texts)
        resolved = replaced(value, lambda reference, path: next(following))
        return Resolved(json.dumps(resolved) if is_json else resolved)

    def report(
        self, used_tokens: int, turn: int | None, session_id: str | None
    ) -> Flow[Mapping[str, Any] | None]:
        body = {"used_tokens": used_tokens} | ({} if turn is None else {"turn": turn})
        answer = yield from self.ask(self.request("POST", f"{self._path(session_id)}/usage", body))
        budget = (answer or {}).get("budget")
        return budget if _is_budget(budget) else None

    def content(self, handle: str) -> Flow[bytes | None]:
        response = yield self.request("GET", f"/results/{quote(handle)}/content")
        return response.body if response is not None and response.status == 200 else None

    def open(self, session_id: str, fields: SessionFields) -> Flow[None]:
        refuse_unknown(fields, SessionFields)
        yield from self.ask(self.request("PUT", self._path(session_id), fields))

    def end(self, session_id: str, keep_results: bool) -> Flow[None]:
        """404 is no fault: nothing came into the session."""
        query = "?keep_results=true" if keep_results else ""
        response = yield self.request("DELETE", f"{self._path(session_id)}{query}")
        if response is None or response.status not in (204, 404):
            log.warning("Session not ended; it expires by itself.")

    def _path(self, session_id: str | None) -> str:
        return f"/sessions/{quote(self.session_id(session_id), safe='')}"

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 0.0,
    ) -> Request:
        more = self._more() if callable(self._more) else self._more
        sent = (
            body
            if body is None or isinstance(body, bytes)
            else json.dumps(repaired(body), default=str).encode()
        )
        longest = timeout or self._timeout
        if self.away:
            longest = min(longest, AWAY_TIMEOUT_SECONDS)
        return Request(method, path, sent, {**self._headers, **(headers or {}), **more}, longest)

    def ask(self, request: Request) -> Flow[dict[str, Any] | None]:
        """The answer, a problem that a retry does not cure in time included; None if the service is away.

        The same call again is the same call, so what was lost is sent again until `patience` is over.
        While the service is away each call is tried once."""
        ends = self._monotonic() + (0.0 if self.away else self._patience)
        for wait in (*WAITS_SECONDS, None):
            response = yield request
            answer = self._read(response)
            if response is not None and not _is_retryable(response, answer):
                if response.status >= 400 and not _is_reused(answer):
                    log.warning("Spillgate refused: %s", _text(answer, "detail") or response.status)
                return answer
            pause = max(wait or 0.0, _seconds(response))
            if wait is None or self._monotonic() + pause > ends:
                break
            yield pause
        if response is not None and response.status == 429:
            # The service answers: it is the tenant that has to slow down.
            log.warning("Spillgate refused: %s", _text(answer, "detail") or 429)
            return answer
        if not self.away:
            detail = (
                _text(answer, "detail") or self.unreached or "Spillgate cannot be reached, or cannot store."
            )
            log.warning("%s Results are passed or cut here.", detail)
        self.away = True
        return None

    def _read(self, response: Response | None) -> dict[str, Any] | None:
        if response is None:
            return None
        try:
            answer = json.loads(response.body)
        except (ValueError, RecursionError):
            return None
        if not isinstance(answer, dict):
            return None
        if response.status < 400:
            self.away = False
        return answer

    def _cut(self, content: Any) -> Governed:
        """You hold the only copy: small results pass, large ones become their head, which says so."""
        text, most = text_of(content), self._cut_chars
        if len(text) <= most:
            return Governed(content, UNREACHED, complete=True)
        left = len(text) - most
        shown = f"{text[:most]}\n[{left} characters not shown: the result was too large, and is not stored]"
        return Governed(shown, UNREACHED, complete=False)


def _key_of_file() -> str | None:
    """That of SPILLGATE_KEY_FILE. Raises OSError if it cannot be read."""
    path = os.environ.get("SPILLGATE_KEY_FILE")
    return Path(path).read_text().strip() if path else None


def _is_reused(answer: Mapping[str, Any] | None) -> bool:
    """Whether the id of the call names another one: the result is then sent again, under its own."""
    return answer is not None and answer.get("code") == "idempotency_key_reused"


def _call_id(call_id: str | None) -> str:
    """An id of its own where there is none: a retry of this call must be the same call."""
    if not call_id:
        return f"call-{uuid.uuid4()}"
    return call_id if len(call_id) <= MAX_CALL_ID else sha256(call_id.encode(errors="replace")).hexdigest()


def _own_call_id(fields: Mapping[str, Any], content: str | Blocks) -> str:
    """The same for a retry with the same content, and no id that a caller makes."""
    named = [fields["tool_name"], fields["tool_call_id"], content]
    return sha256(json.dumps(named, default=str).encode()).hexdigest()


def _governed(answer: Mapping[str, Any] | None, sent: str | Blocks) -> Governed | None:
    """None if the answer is not that of a service."""
    if answer is None:
        return None
    outcome, complete, handle = (answer.get(name) for name in ("outcome", "complete", "handle"))
    passed = _searched(sent) if answer.get("redacts") is True else sent
    content, budget = answer.get("content", passed), answer.get("budget")
    if (
        isinstance(outcome, str)
        and isinstance(complete, bool)
        and "handle" in answer
        and isinstance(handle, str | None)
        and (isinstance(content, str) or is_blocks(content))
        and _is_budget(budget)
    ):
        return Governed(content, outcome, complete and passed is sent, handle, budget["exhausted"], answer)
    return None


def _searched(sent: str | Blocks) -> str | Blocks:
    """What the service has looked through for secrets: of large blocks, the text alone."""
    if isinstance(sent, str) or len(_utf8_of(sent)) <= MAX_RESULT_JSON_BYTES:
        return sent
    return [
        {"type": one["type"], "text": one["text"]} if isinstance(one.get("text"), str) else one
        for one in sent
    ]


def _utf8_of(content: str | Blocks) -> bytes:
    return str(repaired(text_of(content))).encode()


def _are_definitions(value: object) -> TypeGuard[list[dict[str, Any]]]:
    """Each has a name, where its format puts it."""
    return isinstance(value, list) and all(
        isinstance(one, dict)
        and isinstance(inner := one.get("function", one), dict)
        and isinstance(inner.get("name"), str)
        for one in value
    )


def _decoded(arguments: str) -> Any:
    """The arguments as a model writes them, in JSON; a text if they are none, or refer to nothing. Raises
    RecursionError."""
    try:
        return json.loads(arguments) if may_refer(arguments) else ""
    except ValueError:
        return ""


def _is_budget(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, dict) and isinstance(value.get("exhausted"), bool)


def _is_retryable(response: Response, answer: Mapping[str, Any] | None) -> bool:
    told = (answer or {}).get("retryable")
    return told if isinstance(told, bool) else response.status >= 500


def _text(answer: Mapping[str, Any] | None, name: str) -> str:
    """A field of an answer; "" if it is no text."""
    value = (answer or {}).get(name)
    return value if isinstance(value, str) else ""


def _sent_fields(fields: ResultFields) -> dict[str, Any]:
    """Those that are set, under the names of POST /results."""
    sent: dict[str, Any] = {key: value for key, value in fields.items() if value is not None}
    used, turn = sent.pop("used_tokens", None), sent.pop("turn", None)
    if used is not None:
        sent["context"] = {"used_tokens": used} | ({} if turn is None else {"turn": turn})
    arguments = text_of(sent.pop("arguments", ""))
    # Their text, as JSON cannot hold all that a function is called with.
    if arguments and len(json.dumps(arguments)) <= MAX_ARGUMENT_BYTES:
        sent["tool_arguments"] = arguments
    return sent


def _query(fields: dict[str, Any]) -> str:
    """The fields as the query of a text: what is neither text nor number as JSON."""
    texts = {
        key: repaired(one) if isinstance(one, str) else json.dumps(one, default=str)
        for key, one in fields.items()
    }
    query = urlencode(texts, errors="replace")
    if len(query) > MAX_QUERY:
        texts.pop("tool_arguments", None)
        query = urlencode(texts, errors="replace")
    return query


def _seconds(response: Response | None) -> float:
    after = response.retry_after if response else ""
    return float(after) if after.isascii() and after.isdigit() else 0.0


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):  # Keys of other types, or a value within itself.
        return str(value)
