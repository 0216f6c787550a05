"""API keys and their roles, read from a file."""

import hashlib
import logging
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from app.files import ReloadedKeys, read_text
from app.http.api.roles import KeyRole
from domain.errors import ConfigError, Unauthorized
from domain.handles import is_name

log = logging.getLogger(__name__)

EXPIRING_SECONDS = 14 * 86_400
"""The time before a key's end in which it is a warning."""

_SETTING = "SPILLGATE_API_KEYS_FILE"
_LINE = re.compile(
    r"(?P<tenant>.+):(?P<digest>[0-9a-fA-F]{64})(?::(?P<role>[^:]*))?(?::(?P<name>[^:]*))?(?::(?P<expires>.*))?"
)
SHOWN_DIGITS = 12
"""Hexadecimal digits of its digest that stand for a key without a name."""

NAME = re.compile(r"[A-Za-z0-9_.@-]{0,64}")
NAME_RULE = "a name has at most 64 letters, digits and _.@-"


class ApiKey(NamedTuple):
    """One line of the file: `tenant:sha256hex[:role][:name][:expires]`. The `name` stands for the key in
    logs. `expires` is in seconds since 1970, None for never."""

    tenant: str
    digest: str
    role: KeyRole = KeyRole.AGENT
    name: str = ""
    expires: float | None = None

    def has_expired(self, now: float) -> bool:
        return self.expires is not None and now >= self.expires


class KeyFile(NamedTuple):
    """The keys by their digests, and for each line that is not in force its number and why."""

    keys: dict[str, ApiKey]
    faults: list[str]


class ApiKeys(ReloadedKeys[KeyFile]):
    """The keys of a file. A bad line is left out. An empty file, as a change, revokes all keys."""

    def __init__(
        self,
        path: Path,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Raises ConfigError if the file cannot be read, or holds no key."""
        super().__init__(path, _SETTING, load_keys, monotonic)
        self._read = partial(load_keys, may_be_empty=True)
        self._now = now
        self._told: set[str] = set()
        self._log_faults()

    def key_of(self, token: str) -> ApiKey:
        """Raises Unauthorized for a key that is not known, or has expired."""
        key = self.lines.keys.get(digest_of(token))
        if key is None:
            raise Unauthorized("This API key is not known, or has expired.")
        if key.expires is not None and key.has_expired(self._now()):
            raise Unauthorized("This API key has expired.")
        return key

    @property
    def warnings(self) -> list[str]:
        """Includes the number of keys that have expired."""
        warnings, now = super().warnings, self._now()
        expired = sum(key.has_expired(now) for key in self._lines.keys.values())
        return [*warnings, f"{_SETTING}: keys that have expired: {expired}."] if expired else warnings

    @property
    def notices(self) -> list[str]:
        """The warnings, and how many keys expire soon."""
        warnings, ending = self.warnings, self._expiring()
        if not ending:
            return warnings
        first = _day(min(ending, key=lambda key: key.expires or 0))
        return [
            *warnings,
            f"{_SETTING}: keys that expire within 14 days: {len(ending)}, the first on {first}.",
        ]

    @property
    def next_expiry(self) -> float:
        """When the next key in force expires that has no successor, in seconds since 1970; 0: none does."""
        self._expiring()
        return min((key.expires or 0 for key in self._ending(float("inf"))), default=0.0)

    def _expiring(self) -> list[ApiKey]:
        """The keys that expire soon. Logs each once, by its name."""
        ending = self._ending(EXPIRING_SECONDS)
        for key in ending:
            if key.digest not in self._told:
                self._told.add(key.digest)
                fields = {"tenant": key.tenant, "key": key.name or key.digest[:12], "expires": _day(key)}
                log.warning(
                    "An API key expires soon, and no other one has its name.", extra={"fields": fields}
                )
        return ending

    def _ending(self, within: float) -> list[ApiKey]:
        """The keys in force that expire within so many seconds, without those that `keys rotate` replaced:
        another key of the same tenant, role and name lasts longer."""
        now, last = self._now(), dict[tuple[str, KeyRole, str], float]()
        in_force = [key for key in self.lines.keys.values() if not key.has_expired(now)]
        for key in in_force:
            whose = key.tenant, key.role, key.name
            last[whose] = max(last.get(whose, 0.0), _end(key))
        return [
            key
            for key in in_force
            if _end(key) <= now + within
            and key.expires is not None
            and _end(key) >= last[key.tenant, key.role, key.name]
        ]

    def _reload(self) -> None:
        before = self._lines
        super()._reload()
        if self._lines is not before:
            self._log_faults()

    def _log_faults(self) -> None:
        for fault in self._lines.faults:
            log.warning("A line of the API keys is not in force.", extra={"fields": {"why": fault}})


def _end(key: ApiKey) -> float:
    return float("inf") if key.expires is None else key.expires


def _day(key: ApiKey) -> str:
    return f"{datetime.fromtimestamp(key.expires or 0, UTC):%Y-%m-%d}"


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def load_keys(path: Path, *, may_be_empty: bool = False) -> KeyFile:
    """Raises ConfigError for a file that cannot be read, has bad lines alone, or holds no key."""
    file = KeyFile({}, [])
    lines = read_text(path, _SETTING, secret=True).splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        if is_blank(line):
            continue
        try:
            if is_cut(line):
                raise ValueError("it has no newline, so its end may be missing. End the file with a newline")
            key = parse_key(line.strip())
            if file.keys.setdefault(key.digest, key).tenant != key.tenant:
                raise ValueError("the key of another tenant. Make a new key")
        except ValueError as error:
            file.faults.append(f"line {number}: {error}.")
    if file.faults and not file.keys:
        raise ConfigError(f"{_SETTING}, {file.faults[0]}")
    if not file.keys and not may_be_empty:
        raise ConfigError(f"{_SETTING}: the file holds no key. `spillgate keys new` makes one.")
    return file


def is_blank(line: str) -> bool:
    """Also true for a comment."""
    return not line.strip() or line.lstrip().startswith("#")


def is_cut(line: str) -> bool:
    """True for a last line without a newline: its role or its expiry may be missing."""
    return not line.endswith(("\n", "\r"))


def parse_key(line: str) -> ApiKey:
    """Raises ValueError, which repeats nothing of the line."""
    match = _LINE.fullmatch(line)
    if match is None or not is_name(match["tenant"]):
        raise ValueError("write `tenant:sha256hex[:role][:name][:expires]`; see docs/settings.md")
    role, name, expires = match["role"] or KeyRole.AGENT, match["name"] or "", match["expires"]
    if role not in frozenset(KeyRole):
        raise ValueError(f"unknown role; there is {', '.join(KeyRole)}")
    if not NAME.fullmatch(name):
        raise ValueError(NAME_RULE)
    return ApiKey(match["tenant"], match["digest"].lower(), KeyRole(role), name, parse_expiry(expires))


def parse_expiry(text: str | None) -> float | None:
    """Seconds since 1970 of `2027-01-31` or `2027-01-31T12:00Z`, in UTC. Raises ValueError."""
    if not text:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("`expires` is a date, such as 2027-01-31 or 2027-01-31T12:00Z") from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
