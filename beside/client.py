"""A running service as the commands call it: where it is, what is asked of it, what it answers."""

import json
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from hashlib import sha256
from http.client import HTTPException
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode

from beside import embedded
from domain.doors import project_of
from domain.errors import ConfigError
from domain.references import TOO_DEEP, references_in, replaced
from machine.addresses import OWN, Address, configured_address
from machine.http1 import Buffer, Connections, HttpAnswer, HttpRequest, read_body

ANSWER_SECONDS = 10.0
"""For a request and its answer, without the time for a large body."""

TOOL_SECONDS = 130.0
"""An answer to a question may take as long as the longest deadline of an extraction, 120 s."""

RESOLVE_SECONDS = 45.0
"""A query for an argument may wait 10 s and run 30 s."""

LARGE_BYTES = 1 << 20
"""A larger result is sent as text in pieces. Hooks cut it if the service cannot take it."""

_MOST_QUERY = 7000
"""The service takes a path with its query of 8 KiB."""

_CUT_CHARS = 12_288
_NO_CONTENT = 204
_PIECE_BYTES = 1 << 18
_SURROGATES = re.compile("[\ud800-\udfff]")
_SESSION = re.compile(r"session-([^/\s\"'`]+)/file-", re.IGNORECASE)
_BYTES_A_SECOND = 8 << 20
_POLL_SECONDS = 0.05
_SYSTEM_FOLDERS = "/usr/local/bin:/usr/bin:/bin"


class ServiceError(Exception):
    """The service gave no usable answer. The message is one line that says what to do."""


class Unreachable(ServiceError):
    """No service listens at the address, or it closed the connection."""


class Refused(ServiceError):
    """The service refused the request. `code` is that of its problem document."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"The service refused ({status} {code}): {detail}")
        self.status = status
        self.code = code


class ServiceRequest(NamedTuple):
    """`size` is that of a body in pieces, which can be iterated over more than once. `seconds` bounds the
    time that it takes; a large body has another second for each 8 MiB."""

    method: str
    route: str
    body: bytes | Iterable[Buffer] = b""
    headers: Mapping[str, str] = {}
    size: int = 0
    seconds: float = ANSWER_SECONDS


class ServiceAnswer(NamedTuple):
    """`body` is the complete body."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Raises ServiceError."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise ServiceError("The service answered with something else than JSON.") from None

    def replacement(self) -> str | None:
        """The text in an answer of POST /results; None if the result passes. Raises ServiceError."""
        match self.json():
            case {"outcome": "pass", "redacted": dict(), "content": str(text)}:
                return text
            case {"outcome": "pass"}:
                return None
            case {"outcome": str(), "content": str(text)}:
                return text
        raise ServiceError("The service answered with something else than an outcome.")

    @property
    def names_handle(self) -> bool:
        """Whether an answer of POST /results names a stored result. Raises ServiceError."""
        answer = self.json()
        return isinstance(answer, dict) and answer.get("handle") is not None

    @property
    def redacts(self) -> bool:
        """Whether an answer of POST /results says that what is shown beside the text has to be masked. Raises
        ServiceError."""
        answer = self.json()
        return isinstance(answer, dict) and answer.get("redacts") is True

    def text(self) -> tuple[str, bool]:
        """The text for the model in an answer of POST /tools/call, and whether it says why there is no
        answer. Raises ServiceError."""
        match self.json():
            case {"text": str(text), "is_error": bool(is_error)}:
                return text, is_error
        raise ServiceError("The service answered with something else than a text.")


def encoded(text: str) -> bytes:
    """UTF-8, with U+FFFD for each lone surrogate: a program may cut a text within a character."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text).encode()


class TextBody:
    """A text as UTF-8, in pieces, so that a large text is never held whole."""

    def __init__(self, parts: Callable[[], Iterable[str]]) -> None:
        """`parts` is called for each reading of the body."""
        self._parts = parts
        self.size = sum(map(len, self))

    @property
    def text(self) -> str:
        return "".join(self._parts())

    def __iter__(self) -> Iterator[bytes]:
        piece = bytearray()
        for part in self._parts():
            piece += encoded(part)
            if len(piece) >= _PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
        yield bytes(piece)


class Content(Protocol):
    """A result as UTF-8, in pieces that can be iterated over more than once."""

    size: int

    def __iter__(self) -> Iterator[bytes]: ...


def govern(
    ask: Callable[[ServiceRequest], ServiceAnswer],
    fields: Mapping[str, str | bool | None],
    content: Content,
    seconds: float = ANSWER_SECONDS,
) -> ServiceAnswer:
    """The answer of POST /results. Some agents, or their models, count calls from 0 again: a result under the
    id of another call is sent again under an id that its content gives. Raises ServiceError."""
    try:
        return ask(_result_request(fields, content, seconds))
    except Refused as error:
        if error.code != "idempotency_key_reused":
            raise
    digest = sha256(str(fields["tool_name"]).encode())
    for piece in content:
        digest.update(piece)
    own_id = f"{str(fields['tool_call_id'])[:128]}-{digest.hexdigest()}"
    return ask(_result_request({**fields, "tool_call_id": own_id}, content, seconds))


def masked(
    ask: Callable[[ServiceRequest], ServiceAnswer],
    fields: Mapping[str, str | bool],
    value: str,
    seconds: float = ANSWER_SECONDS,
) -> str:
    """The JSON of a value with masks; `value` itself if it stays as it is. `fields` are the query of POST
    /mask. Raises ServiceError."""
    body = encoded(value)
    answer = ask(ServiceRequest("POST", f"/mask?{_query(fields)}", body, size=len(body), seconds=seconds))
    return value if answer.status == _NO_CONTENT else answer.body.decode("utf-8", "replace")


def _result_request(
    fields: Mapping[str, str | bool | None], content: Content, seconds: float
) -> ServiceRequest:
    """A result of a tool for POST /results, with those of these fields that are not None. The content goes as
    text, with the fields in the query. If that would be too long, the body is JSON; a large result goes
    without `tool_arguments`."""
    set_fields = {name: value for name, value in fields.items() if value is not None}
    query = _query(set_fields)
    headers = {"Prefer": "return=minimal"}
    if len(query) > _MOST_QUERY:
        if isinstance(content, TextBody) and content.size <= LARGE_BYTES:
            body = json.dumps({**set_fields, "content": _SURROGATES.sub("\ufffd", content.text)}).encode()
            return ServiceRequest("POST", "/results", body, headers, seconds=seconds)
        query = _query({name: value for name, value in set_fields.items() if name != "tool_arguments"})
    headers["Content-Type"] = "text/plain; charset=utf-8"
    return ServiceRequest("POST", f"/results?{query}", content, headers, content.size, seconds)


def resolved(
    ask: Callable[[ServiceRequest], ServiceAnswer],
    session: str,
    tool: str,
    arguments: Any,
    seconds: float = RESOLVE_SECONDS,
) -> tuple[Any, str | None]:
    """The arguments of a call with the text of each stored result that they refer to; or None, and what the
    model reads instead of the call. Raises ServiceError."""
    try:
        references = references_in(arguments)
    except RecursionError:
        return None, TOO_DEEP
    body = json.dumps({"session_id": session, "tool_name": tool, "arguments": references}).encode()
    match ask(ServiceRequest("POST", "/arguments", body, seconds=seconds)).json():
        case {"refusal": str(refusal)}:
            return None, refusal
        case {"arguments": [*texts]} if [type(text) for text in texts] == [str] * len(references):
            following = iter(texts)
            return replaced(arguments, lambda reference, path: next(following)), None
    raise ServiceError("The service answered with something else than arguments.")


def _query(fields: Mapping[str, str | bool]) -> str:
    texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in fields.items()}
    return urlencode(texts, errors="replace")


def shown_unstored(text: str) -> str | None:
    """Head and tail of a result that could not be stored, for the model; None if it is short, and passes."""
    end = _CUT_CHARS // 2
    missing = len(text) - 2 * end
    if missing <= 0:
        return None
    note = f"[{missing} characters not shown: the result was too large, and is not stored]"
    return f"{text[:end]}\n{note}\n{text[-end:]}"


def service_address() -> Address:
    """Returns the address in SPILLGATE_URL or SPILLGATE_UDS, else that of the user's own service. Raises
    ConfigError, which does not repeat the URL, because a URL may hold a password."""
    try:
        return configured_address()
    except ValueError:
        raise ConfigError(
            "SPILLGATE_URL must be http://host:port, https://host:port or unix:/path."
        ) from None


def reaching(environment: Mapping[str, str]) -> str:
    """Returns the assignments that precede a command in a shell without this environment, so that it asks the
    same service."""
    for name in ("SPILLGATE_URL", "SPILLGATE_UDS"):
        if value := environment.get(name):
            path = os.path.abspath(value) if name == "SPILLGATE_UDS" else value
            return f"env {name}={shlex.quote(path)} "
    return ""


def own_path() -> str:
    """The path of the command `spillgate` that this process runs, or that lies beside its Python."""
    is_named = os.path.basename(sys.argv[0]) == "spillgate"
    beside = os.path.join(os.path.dirname(sys.executable), "spillgate")
    return os.path.abspath(shutil.which(sys.argv[0] if is_named else "spillgate") or beside)


def in_any_shell(path: str) -> str:
    """How a shell calls the command at `path`, so that it asks the same service. A login shell sets PATH
    itself: only the folders of the system are in it wherever it runs."""
    found = shutil.which("spillgate", path=_SYSTEM_FOLDERS)
    is_found = found is not None and os.path.realpath(found) == os.path.realpath(path)
    return reaching(os.environ) + ("spillgate" if is_found else shlex.quote(path))


def api_key() -> str | None:
    """The key in SPILLGATE_KEY or SPILLGATE_KEY_FILE. Raises ConfigError."""
    key, path = os.environ.get("SPILLGATE_KEY"), os.environ.get("SPILLGATE_KEY_FILE")
    if key and path:
        raise ConfigError("SPILLGATE_KEY and SPILLGATE_KEY_FILE are both set. Keep one.")
    if path:
        try:
            with open(path, encoding="utf-8") as file:
                key = file.read().strip()
        except (OSError, UnicodeDecodeError):
            raise ConfigError("SPILLGATE_KEY_FILE cannot be read.") from None
    if key and not (key.isascii() and key.isprintable()):
        raise ConfigError("SPILLGATE_KEY must be one line of printable ASCII characters.")
    return key or None


def project_here() -> str | None:
    """Returns the project of a program that a client has started: the name of its working folder."""
    try:
        return project_of(os.getcwd())
    except OSError:
        return None


def session_in(handle: str) -> str | None:
    """The session that a handle names; None if it names none."""
    match = _SESSION.search(handle)
    return match[1] if match else None


class ServiceClient:
    """Requests to one service over kept connections. Safe to use from several threads."""

    def __init__(
        self, address: Address, key: str | None = None, *, start: Callable[[], None] | None = None
    ) -> None:
        """`start` starts the service if it does not run; it may raise StartFailed."""
        self.address = address
        self.identity = f"{address} {key}"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._connections = Connections(address)
        self._start = start

    @classmethod
    def from_environment(
        cls,
        may_start: bool | None = None,
        seconds: float | None = None,
        retry_seconds: float = 0.0,
    ) -> "ServiceClient":
        """The service of SPILLGATE_URL or SPILLGATE_UDS, else the user's own (`beside.embedded`). That
        is started where none runs, unless `may_start` is False, or None and SPILLGATE_AUTO_START says no. If
        `may_start` is True, it is the user's own in any case. Raises ConfigError."""
        address = OWN if may_start else service_address()
        starts = address == OWN and (embedded.may_start() if may_start is None else may_start)
        start = partial(embedded.start, seconds, retry_seconds) if starts else None
        return cls(address, api_key(), start=start)

    @property
    def may_start(self) -> bool:
        return self._start is not None

    @property
    def reached(self) -> Address:
        """The address at which the service answered last."""
        return self._connections.reached

    def request(self, request: ServiceRequest) -> ServiceAnswer:
        """The answer, if its status is below 400. A service is started where none runs, also in place of one
        that is ending or of an older version. Raises ServiceError."""
        if self._start is None:
            return self._asked(request)
        if embedded.is_outdated():
            self._started()
        deadline = time.monotonic() + embedded.START_SECONDS
        has_started = False
        while True:
            try:
                return self._asked(request)
            except Unreachable:
                if has_started:
                    raise
                self._started()
                has_started = True
            except Refused as error:
                if error.code != "draining" or time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)

    def _started(self) -> None:
        """Raises ServiceError."""
        assert self._start is not None
        try:
            self._start()
        except embedded.StartFailed as error:
            raise ServiceError(str(error)) from None

    def _asked(self, request: ServiceRequest) -> ServiceAnswer:
        """The answer, if its status is below 400. Raises ServiceError."""
        sent = self._http(request)
        seconds = request.seconds + sent.length / _BYTES_A_SECOND
        with self._translating():
            return _accepted(self._connections.exchange(sent, seconds))

    def stream(self, request: ServiceRequest) -> Iterator[bytes]:
        """The body of the answer in pieces as they arrive, without a time limit. Raises ServiceError, also
        after some of the pieces."""
        if self._start is not None:
            self.request(ServiceRequest("GET", "/livez"))
        with self._translating(), closing(self._connections.connect(ANSWER_SECONDS)) as connection:
            response = connection.send(self._http(request))
            if response.status >= 400:
                _accepted(HttpAnswer(response.status, read_body(response)))
            while piece := response.read(_PIECE_BYTES):
                yield piece
            if response.length:
                raise ConnectionResetError("the answer is cut off")

    def _http(self, request: ServiceRequest) -> HttpRequest:
        headers = {"Content-Type": "application/json", **self._headers, **request.headers}
        target = self.address.prefix + request.route
        return HttpRequest(request.method, target, headers, request.body, request.size)

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Translates errors of a connection. Raises ServiceError."""
        try:
            yield
        except HTTPException as error:
            raise Unreachable(f"{self.address} closed the connection: {type(error).__name__}.") from None
        except TimeoutError:
            raise ServiceError(f"No answer from {self.address}: timed out.") from None
        except (ConnectionResetError, BrokenPipeError) as error:
            raise Unreachable(f"{self.address} closed the connection: {why(error)}.") from None
        except OSError as error:
            advice = "Start it, or correct SPILLGATE_URL or SPILLGATE_UDS."
            if self.address == OWN:
                advice = "Start one with `spillgate service start`, or set SPILLGATE_URL."
            raise Unreachable(f"No service answers at {self.address}: {why(error)}. {advice}") from None

    def close(self) -> None:
        self._connections.close()


def _accepted(answer: HttpAnswer) -> ServiceAnswer:
    """Raises Refused."""
    if answer.status < 400:
        return ServiceAnswer(answer.status, answer.body)
    try:
        problem = json.loads(answer.body)
        code, detail = str(problem["code"]), str(problem["detail"])
    except (ValueError, LookupError, TypeError, RecursionError):
        code, detail = "no problem document", "SPILLGATE_URL may name another server."
    if answer.status == 401:
        detail += " The commands take it from SPILLGATE_KEY."
    raise Refused(answer.status, code, detail)


def why(error: OSError) -> str:
    """Returns the message of a system error, without numbers and names of files."""
    return error.strerror or str(error) or type(error).__name__
