"""Handles: `session-<session id>/file-<uuid>`, safe as a relative path on every backend."""

import hashlib
import re
import secrets
from typing import NamedTuple

from domain.errors import InvalidField, ResultNotFound

DEFAULT_SESSION = "default"
DEFAULT_TENANT = "default"

NAME_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9._:@=+~-]{0,127}"

_NAME = re.compile(NAME_PATTERN)
_HANDLE = re.compile(
    rf"session-(?P<session>{NAME_PATTERN})"
    r"/file-(?P<file>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
)


_COPY = "Use it exactly as the handle message gave it."
_FILE_CHARS = 36
_QUOTES = " \t\r\n\"'`“”‘’<>"
_SPELLING = re.compile(
    r"(?:spillgate://)?(?:session-(?P<session>[^/\s]+)/)?file-(?P<file>[0-9a-f-]{36})", re.IGNORECASE
)
_CUT_OFF = re.compile(
    rf"session-(?:{NAME_PATTERN})?/?|(?:session-{NAME_PATTERN}/)?file-?(?P<file>[0-9a-f-]*)", re.IGNORECASE
)


class SessionKey(NamedTuple):
    """Identifies an agent's run. Every key holds the tenant, so no answer crosses tenants."""

    tenant: str
    session_id: str


class Handle(NamedTuple):
    """Names one stored result of a tenant. `parse_handle` ensures that both parts are safe in paths."""

    session_id: str
    file_id: str

    def __str__(self) -> str:
        return f"session-{self.session_id}/file-{self.file_id}"


def is_name(text: str) -> bool:
    """True for a session id or tenant that is safe as a path part and as a Redis key part."""
    return _NAME.fullmatch(text) is not None


def checked_session_id(text: str) -> str:
    if not is_name(text):
        raise InvalidField(
            "session_id must be 1 to 128 characters out of letters, digits and ._:@=+~- "
            "and start with a letter, a digit or _."
        )
    return text


def parse_handle(text: str) -> Handle:
    """Raises ResultNotFound for anything that is not a handle: a wrong shape cannot name a result."""
    match = _HANDLE.fullmatch(text)
    if match is None:
        raise ResultNotFound(cut_off(text) or f"No stored result has this handle. {_COPY}")
    return Handle(match["session"], match["file"])


def forgiven_handle(text: str, key: SessionKey) -> Handle:
    """Forgives quotes, spaces, letter case and a missing session. `key` is the session of the caller: another
    one is not found. Raises ResultNotFound."""
    spelling = _SPELLING.fullmatch(text.strip(_QUOTES))
    if spelling is None:
        return parse_handle(text.strip(_QUOTES))
    session = spelling["session"] or key.session_id
    if session.casefold() != key.session_id.casefold():
        raise ResultNotFound(f"No stored result of this session has this handle. {_COPY}")
    return parse_handle(f"session-{key.session_id}/file-{spelling['file'].lower()}")


MOST_HANDLES = 20
"""The most results that one call of a model's tool asks about."""


def split_handles(text: str) -> list[str]:
    """The handles of a list that a model wrote: joined by commas, perhaps in brackets. Each once."""
    parts = (part.strip(_QUOTES) for part in text.strip(_QUOTES + "[]").split(","))
    return list(dict.fromkeys(part for part in parts if part)) or [text]


def session_named_in(handle: object, default: str) -> str:
    """The session that a handle names; `default` if it names none, or the same one in other letter case."""
    spelling = _SPELLING.fullmatch(handle.strip(_QUOTES)) if isinstance(handle, str) else None
    session = spelling["session"] if spelling else None
    if session is None or not is_name(session) or session.casefold() == default.casefold():
        return default
    return session


def cut_off(text: str) -> str:
    """What is missing of a text that begins as a handle does and ends too early; "" for any other text."""
    start = _CUT_OFF.fullmatch(text.strip(_QUOTES).rstrip("….").rstrip())
    if start is None or len(file := start["file"] or "") >= _FILE_CHARS:
        return ""
    return f"The handle is cut off: it has {len(file)} of the {_FILE_CHARS} characters after `file-`. {_COPY}"


def is_safe(tenant: str, handle: Handle) -> bool:
    """A second check, of stores that use names as paths: the caller parsed them."""
    return is_name(tenant) and _HANDLE.fullmatch(str(handle)) is not None


def new_handle(key: SessionKey, epoch: int, call_id: str | None, sha256: str) -> Handle:
    """Random for a call without an id; derived from a call with an id, so that a retry gets the same
    handle."""
    if call_id is None:
        return Handle(key.session_id, _uuid(secrets.token_bytes(16), 4))
    seed = "\0".join((key.tenant, key.session_id, str(epoch), call_id, sha256))
    # RFC 9562 version 8: made by the application's own rule.
    return Handle(key.session_id, _uuid(hashlib.sha256(seed.encode()).digest(), 8))


def _uuid(data: bytes, version: int) -> str:
    """A UUID out of 16 bytes. `uuid.UUID` has no version 8 before Python 3.14."""
    text = data.hex()
    variant = "89ab"[data[8] >> 4 & 3]
    return f"{text[:8]}-{text[8:12]}-{version}{text[13:16]}-{variant}{text[17:20]}-{text[20:32]}"
