"""Secrets of known forms, by the rules of Kingfisher."""

import importlib.util
import re
import string
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

from content.patterns import Find, compiled
from content.redaction.allowance import Allowance
from content.redaction.spans import Span

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

_MORE_BEGINNINGS = {"AWS", "AccountKey", "HRKU-", "bk[a-z]{2,3}_", r"hvs\.", "wrka"} | {
    "amqp",
    "ftp",
    "ldap",
    "mariadb",
    "mongodb",
    "mysql",
    "postgres",
    "redis",
    "smtp",
    "ssh",
}
"""What rules begin with in another way: names beside which a secret stands, and the schemes of URLs."""

_WORDS = {"ey", "00", "curl", "http", "https"}
"""Beginnings that are too short or too usual, and stand apart anyway."""

_CHOICES = re.compile(r"\(\?:[^)]*\)|\[[^\]]*\]")
_SIGN = re.compile(r"[_~-]|\\[.$+-]")

_LONGEST_SCAN = 3600.0

_SPACE = 0x20
_TOUCHING = "_-.:" + string.ascii_letters + string.digits
_SPACED = bytes(
    one if chr(one) in f"{_TOUCHING}=+~$/\"'`;\\{string.whitespace}" else _SPACE for one in range(256)
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
def _beginnings() -> Find:
    """Finds what has to stand apart: the beginnings of known secrets with the character before them, and the
    ends of long words with the point or colon and the space behind them."""
    rules = _library().rules
    begun = {
        match["begins"]
        for rule in rules.metadata()
        if rule["visible"] or _SECRET_PART.search(rule["id"])
        if (match := _BEGINS.match(rules.detail(rule["id"])["pattern"]))
    }
    plain, signed = set[str](), set[str]()
    for one in (begun | _MORE_BEGINNINGS) - _WORDS:
        # Base64 has letters and digits alone: what is begun without a sign is begun by chance there.
        (signed if _SIGN.search(_CHOICES.sub("", one)) else plain).add(one)
    behind_any, behind_sign = (f"(?:{'|'.join(sorted(ones))})" for ones in (signed, plain))
    return compiled(
        rf"(?s:.){behind_any}|(?:[_-]|%[0-9A-Fa-f]{{2}}){behind_sign}|[0-9_](?i:sk-)|[\w-]{{10}}[.:]\s"
    )


_loading = Lock()


def load() -> None:
    """Loads the kept rules, once. For a thread."""
    with _loading:
        _beginnings()
        # The first text that may hold a secret takes 70 ms.
        _library().scan(b"secret: 0123456789abcdef0123456789abcdef01234567")


def is_loaded() -> bool:
    return _beginnings.cache_info().currsize > 0


def known_secrets(data: bytes, allowance: Allowance) -> Iterator[list[Span]]:
    """Those of the text as it is, and of the text in which they stand apart; each in order. Raises
    SearchTooLong."""
    for text in (data, _apart(data, allowance)):
        spans = set()
        for finding in allowance.spent_on(_scanned(text, allowance)):
            if not finding.visible and not _SECRET_PART.search(finding.rule_id):
                continue
            start, end = finding.location["start_offset"], finding.location["end_offset"]
            # The library decodes what it takes for UTF-16: its offsets are then those of another text.
            if text[start:end] == finding.secret.encode():
                spans.add(Span(start, end, _kind(finding.rule_id)))
        yield sorted(spans)


def _apart(data: bytes, allowance: Allowance) -> bytes:
    """The text, of the same size, with a space in place of each character that no known secret holds, and of
    what touches the beginning of one: many rules want a secret to stand between spaces or quotes."""
    apart, find, size = bytearray(data.translate(_SPACED)), _beginnings(), len(data)

    def touched() -> Iterator[int]:
        at = 0
        while at < size and (span := find(data, at, size)[0])[0] >= 0:
            start, at = span
            if data[at - 1 : at].isspace():
                yield at - 2
            else:
                yield start + 2 if data.startswith(b"%", start) else start

    for at in allowance.spent_on(touched()):
        if chr(apart[at]) in _TOUCHING:
            apart[at] = _SPACE
    return bytes(apart)


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
