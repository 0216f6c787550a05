"""Secrets of known forms, by the rules of Kingfisher."""

import importlib.util
import re
import string
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from content.patterns import PatternFinder, compiled
from content.redaction.allowance import Allowance
from content.redaction.spans import SecretSpan

if TYPE_CHECKING:
    from kingfisher_sdk import Finding, Scanner

# Kinds whose rules have several names.
_KINDS = {
    "github_pat": "github_token",
    "github_fine_grained_pat": "github_token",
    "github_oauth": "github_token",
    "github_app_token": "github_token",
    "github_refresh_token": "github_token",
    "npmjsaccesstoken": "npm_token",
    "npm_access_token": "npm_token",
    "sendgrid": "sendgrid_api_token",
    "digitaloceanapikey": "digitalocean_token",
    "digitalocean_pat": "digitalocean_token",
    "generic_credential_uri": "url_password",
}

_BEGINS = re.compile(
    r"(?:\(\?i\))?(?:\\b|\(\?:\^\|\[\^[^\]]*\]\))\(*"
    r"(?P<begins>(?:(?:\(\?:[\w|-]+\)|\[\w{2,3}\]|[\w~-]|\\[.$+-])(?![{?*+]))+)"
)
"""A rule that wants something else than a letter before a text that is always the same."""

_MORE_BEGINNINGS = {"HRKU-", "bk[a-z]{2,3}_", r"hvs\.", "wrka"}
_SERVICES = {"AWS", "AccountKey", "amplitude", "bitly", "clickhouse", "cloudinary", "(?:couchbase|capella)"}
_SCHEMES = {"amqp", "ftp", "ldap", "mariadb", "mongodb", "mysql", "postgres", "redis", "smtp", "ssh"}
_NAMES = _SERVICES | _SCHEMES | {"pat"}
"""Beginnings that are words of many texts: names beside which a secret stands, and schemes of URLs."""

_WORDS = {"ey", "00", "curl", "http", "https"}
"""Beginnings that are too short or too usual, and stand apart anyway."""

_SHORT = b"sk-"
_SIGN = re.compile(rb"[^A-Za-z0-9]")
_ENDS = re.compile(rb"[.:](?=\s)")
_RUN = re.compile(rb"[\w./+=~:%$-]*")
_REGION_BYTES = 1024
"""What is searched behind a beginning, and the word that it ends in."""

_LONGEST_SCAN = 3600.0

_SPACE = 0x20
_SPACED = bytes(
    one
    if chr(one) in string.ascii_letters + string.digits + string.whitespace + "_-.:=+~$/\"'`;\\"
    else _SPACE
    for one in range(256)
)

# What the library finds only beside other parts of the credential. Ids, names and addresses are no secrets.
_SECRET_PART = re.compile(r"(?:secret|key|token|password|passphrase|pat)[a-z-]*(?<!-id)(?:\.\d+)?")


def is_available() -> bool:
    """Whether the library with the kept rules is installed."""
    return importlib.util.find_spec("kingfisher_sdk") is not None


@cache
def _library() -> "Scanner":
    """The kept rules. To load them takes 0.3 s, the first time on a machine 3 s."""
    from kingfisher_sdk import Rules, Scanner

    return Scanner(Rules(), base64=False)


@cache
def _beginnings() -> PatternFinder:
    """Finds the beginnings of known secrets, with the character before them."""
    rules = _library().rules
    begun = {
        match["begins"]
        for rule in rules.metadata()
        if rule["visible"] or _SECRET_PART.search(rule["id"])
        if (match := _BEGINS.match(rules.detail(rule["id"])["pattern"]))
    }
    tokens = "|".join([*sorted((begun | _MORE_BEGINNINGS) - _WORDS - _NAMES), "(?i:sk)-"])
    return compiled(rf"(?s:.)(?:{tokens})|[_0-9A-Fa-f-](?:{'|'.join(sorted(_NAMES))})")


_loading = Lock()


def load_rules() -> None:
    """Loads the kept rules, once. For a thread."""
    with _loading:
        _beginnings()
        # The first text that may hold a secret takes 70 ms.
        _library().scan(b"secret: 0123456789abcdef0123456789abcdef01234567")


def is_loaded() -> bool:
    return _beginnings.cache_info().currsize > 0


def known_secrets(data: bytes, allowance: Allowance) -> Iterator[list[SecretSpan]]:
    """Those of the text as it is, and of the parts in which secrets may touch other characters; each in
    order. Raises SearchTooLong."""
    yield sorted(set(_secrets(data, allowance)))
    parts = _apart(data, allowance)
    if not parts:
        return
    joined = _ENDS.sub(b" ", b"\n".join(one.text for one in parts))
    ends = [*accumulate(len(one.text) + 1 for one in parts)]
    spans = set()
    for start, end, kind in _secrets(joined, allowance):
        number = bisect_right(ends, start)
        shift = parts[number].start + len(parts[number].text) + 1 - ends[number]
        spans.add(SecretSpan(start + shift, end + shift, kind))
    yield sorted(spans)


def _secrets(data: bytes, allowance: Allowance) -> Iterator[SecretSpan]:
    for finding in allowance.spent_on(_scanned(data, allowance)):
        if not finding.visible and not _SECRET_PART.search(finding.rule_id):
            continue
        start, end = finding.location["start_offset"], finding.location["end_offset"]
        # The library decodes what it takes for UTF-16: its offsets are then those of another text.
        if data[start:end] == finding.secret.encode():
            yield SecretSpan(start, end, _kind(finding.rule_id))


class _Part(NamedTuple):
    """A part of a text that begins at `start`."""

    start: int
    text: bytes


def _apart(data: bytes, allowance: Allowance) -> list[_Part]:
    """The parts that begin as known secrets do. In place of a character that no known secret holds, and of
    one that touches a beginning, is a space: many rules want a secret to stand between spaces or quotes."""
    apart, regions = bytearray(data.translate(_SPACED)), list[tuple[int, int]]()
    for at, end in allowance.spent_on(_begun(data)):
        if _touches(data, at, data[at + 1 : end]):
            apart[at] = _SPACE
        start = max(at, 0)
        first, last = regions.pop() if regions and start <= regions[-1][1] else (start, start)
        if (least := min(end + _REGION_BYTES, len(data))) > last:
            run = _RUN.match(data, least)
            last = least if run is None else run.end()
        regions.append((first, last))
    return [_Part(start, bytes(apart[start:end])) for start, end in regions]


def _begun(data: bytes) -> Iterator[tuple[int, int]]:
    """The spans of the beginnings of known secrets, each with the character before it: -1 if there is
    none."""
    find, text, at = _beginnings(), b" " + data, 0
    while at < len(text) and (span := find(text, at, len(text))[0])[0] >= 0:
        start, at = span
        yield start - 1, at - 1


def _touches(data: bytes, at: int, begins: bytes) -> bool:
    """Whether the character at `at` hides from the rules what begins behind it, and is not by chance there.
    Base64 has letters and digits alone: what begins without a sign begins by chance there."""
    before = data[at : at + 1]
    if before in (b"_", b"-"):
        return before == b"_" or begins.lower() != _SHORT
    if not before.isalnum():
        return False
    if begins.lower() == _SHORT:
        return before.isdigit()
    return _SIGN.search(begins) is not None or data[at - 2 : at - 1] == b"%"


def _scanned(data: bytes, allowance: Allowance) -> "list[Finding]":
    while True:
        # The library counts by the clock: on a busy machine it gives up too early, and is asked again.
        with suppress(TimeoutError):
            return _library().scan(data, timeout=min(allowance.check(), _LONGEST_SCAN))


@cache
def _kind(rule_id: str) -> str:
    """`betterleaks.github-pat` is `github_token`."""
    name = re.sub(r"\.\d+$", "", rule_id).rpartition(".")[2].rpartition("/")[2].replace("-", "_")
    return _KINDS.get(name, name)
