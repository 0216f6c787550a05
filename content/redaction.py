"""Secrets in text: where they are, and the masks that stand for them in what a model reads."""

import importlib.util
import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import cache, cached_property, lru_cache
from hashlib import blake2b
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from content.patterns import Find, compiled
from content.text import TERMINAL_CODE
from domain.errors import BadPattern

if TYPE_CHECKING:
    from kingfisher_sdk import Scanner

SECRETS = "secrets"
"""The name of the kept rules; all other names are patterns of the operator's own."""

BLOCK = 1 << 20
MARGIN = 1 << 16
"""A body is searched in blocks at fixed places, each with this much before and behind it. A secret is found
wherever the chunks end, unless it is longer than the margin."""

_REPEATED_BYTES = 8
"""A secret of this length is masked wherever its text is repeated in the block."""

_NUMBERS = 900_000

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

# What the library finds only beside other parts of the credential. Ids, names and addresses are no secrets.
_SECRET_PART = re.compile(r"(?:secret|key|token|password|passphrase|pat)[a-z-]*(?<!-id)(?:\.\d+)?")

_GIVEN = r"[\"']?\s{0,3}[:=]{1,2}>?\s{0,3}"
"""Between a name and its value."""

_OWN = {
    "aws_access_key_id": r"\b((?:AKIA|ASIA)[A-Z2-7]{16})\b",
    "password": (
        rf"(?i)(?:passwords?|passwd|passphrase){_GIVEN}"
        r"(?:\"([^\s\"\\$<{](?:[^\s\"\\]|\\\S){7,})\"|'([^\s'\\$<{](?:[^\s'\\]|\\\S){7,})'"
        r"|([^\s\"'\\$<{(,;&][^\s\"'\\,;&()\[]{7,})(?:[\s\"'\\,;&)]|$))"
        r"|<[\w.:-]*password>([^\s<$]{8,})</"
    ),
    "api_key": (
        r"(?i)(?:api|access|auth|secret|private|client|encryption|signing|account)[_-]?(?:key|token|secret)"
        rf"{_GIVEN}[\"']?([A-Za-z0-9+/_=.-]{{20,}})"
    ),
    "authorization": (
        rf"(?i)authorization{_GIVEN}[\"']?(?:basic|bearer|token)\s{{1,3}}([A-Za-z0-9+/_=.~-]{{12,}})"
    ),
    "secret": (
        rf"(?:\b(?i:token)|[A-Z]_TOKEN|(?i:secret)){_GIVEN}[\"']?([A-Za-z0-9+/_=.-]{{20,}})"
        r"(?:[^A-Za-z0-9+/_=.(\[-]|$)"
    ),
}
"""What the library does not look for. A generic value must look like one: see `_is_random`."""

_GENERIC = frozenset(_OWN) - {"aws_access_key_id"}

_DEEPEST = 4
"""How many levels of escapes and colours are taken off a text: JSON in JSON in JSON has three."""

_MANY_ESCAPES = 1000


class Span(NamedTuple):
    """A secret in a text: its bytes are those from `start` to before `end`."""

    start: int
    end: int
    kind: str


def is_available() -> bool:
    """Whether the library with the kept rules is installed."""
    return importlib.util.find_spec("kingfisher_sdk") is not None


@cache
def _library() -> "Scanner":
    """The kept rules. To load them takes 0.3 s, the first time on a machine 3 s."""
    from kingfisher_sdk import Rules, Scanner

    return Scanner(Rules(), base64=False)


_loading = Lock()


def load() -> None:
    """Loads the kept rules, once. For a thread."""
    with _loading:
        _library()


class Detector:
    """Finds secrets by the kept rules, and by patterns, each under its name."""

    def __init__(self, patterns: Mapping[str, str], *, secrets: bool) -> None:
        """Raises BadPattern."""
        self._has_secrets = secrets
        self._patterns = [(name, checked(pattern)) for name, pattern in patterns.items()]
        if secrets:
            self._patterns += [(name, checked(pattern)) for name, pattern in _OWN.items()]
            patterns = {**patterns, **_OWN}
        # One search shows that no pattern matches. A set of RE2 also reports no match if it lacks memory.
        self._any = compiled("|".join(f"(?:{pattern})" for pattern in patterns.values()))

    def find(self, data: bytes) -> list[Span]:
        """In order, without overlaps. Searches the text as it is, and as it is read when its escapes and
        terminal codes are taken off. Takes 0.3 ms for 100 KB without secrets, and 0.1 to 0.3 ms per thousand
        escapes and codes: 4 to 8 ms for 100 KB of JSON in JSON."""
        return self._levels(data, _DEEPEST, None)[0]

    def _levels(self, data: bytes, levels: int, made: "_Bare | None") -> tuple[list[Span], dict[bytes, str]]:
        """The spans of a text and of the levels below it, and the values whose repeats are left to the level
        above: those that are written there as they are here. `made`: how the text was made."""
        spans = self._found(data)
        values = {data[one.start : one.end]: one.kind for one in spans}
        if levels and (bare := _bare(data)) is not None:
            below, left = self._levels(bare.data, levels - 1, bare)
            spans += map(bare.back, below)
            values |= left
        left = {value: kind for value, kind in values.items() if made is not None and made.keeps(value)}
        spans += _repeats({value: kind for value, kind in values.items() if value not in left}, data)
        return _merged(spans), left

    def _found(self, data: bytes) -> list[Span]:
        spans = [*self._known(data)] if self._has_secrets else []
        if self._patterns and self._any(data, 0, len(data))[0][0] >= 0:
            for name, find in self._patterns:
                spans += _matches(find, name, data)
        return spans

    def _known(self, data: bytes) -> Iterator[Span]:
        load()
        for finding in _library().scan(data):
            if not finding.visible and not _SECRET_PART.search(finding.rule_id):
                continue
            secret, kind = finding.secret.encode(), _kind(finding.rule_id)
            start, end = finding.location["start_offset"], finding.location["end_offset"]
            if data[start:end] == secret:
                yield Span(start, end, kind)
            elif secret:
                # Offsets are those of the scanner's own copy, which may be another encoding.
                yield from _occurrences(secret, kind, data)


class _Bare:
    """A text without one level of its escapes, or without its terminal codes."""

    def __init__(self, before: bytes, pattern: re.Pattern[bytes]) -> None:
        """`pattern` is a group."""
        self._before, self._pattern = before, pattern
        pieces = pattern.split(before)
        pieces[1::2] = map(_plain, pieces[1::2])
        self._made = frozenset(pieces[1::2])
        self.data = b"".join(pieces)

    @cached_property
    def _starts(self) -> "tuple[array[int], array[int]]":
        """Where each piece begins, in this text and in the one before. Most texts have no span, and need
        none."""
        pieces = self._pattern.split(self._before)
        before = array("Q", accumulate(map(len, pieces), initial=0))
        pieces[1::2] = map(_plain, pieces[1::2])
        return array("Q", accumulate(map(len, pieces), initial=0)), before

    @cached_property
    def _made_bytes(self) -> bytes:
        return bytes({*b"".join(self._made)})

    def keeps(self, value: bytes) -> bool:
        """Whether the value, wherever this text has it, is written with the same bytes in the one before."""
        return b"" not in self._made and len(value.translate(None, self._made_bytes)) == len(value)

    def back(self, span: Span) -> Span:
        """Where the text before has the span."""
        return Span(self._stood(span.start)[0], self._stood(span.end - 1)[1], span.kind)

    def _stood(self, at: int) -> tuple[int, int]:
        """What stood for the byte at `at`."""
        after, before = self._starts
        number = bisect_right(after, at) - 1
        start, end, inside = before[number], before[number + 1], at - after[number]
        if number % 2 == 0:
            return start + inside, start + inside + 1
        if self._before[start + 1 : start + 2] in b"ux":
            return start, end
        return start + 2 * inside, start + 2 * inside + 2


_ESCAPE = re.compile(rb"""(\\(?:["'/bfnrt]|\\(?:\\\\){0,63}+|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}))""")
"""Backslashes that are escaped again are one piece where they follow each other. It begins with a literal,
which is looked for several times as fast as a choice."""

_CODE = re.compile(rb"(%b)" % TERMINAL_CODE.pattern)
_LETTERS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def _bare(data: bytes) -> _Bare | None:
    """None if the text has neither escapes nor codes."""
    for sign, pattern in ((b"\x1b", _CODE), (b"\\", _ESCAPE)):
        if sign in data and pattern.search(data):
            return _Bare(data, pattern)
    return None


@lru_cache(maxsize=4096)
def _plain(piece: bytes) -> bytes:
    """What escapes stand for; nothing for a terminal code."""
    if piece.startswith(b"\x1b"):
        return b""
    if piece[1] in b"ux":
        return chr(int(piece[2:], 16)).encode("utf-8", "replace")
    return _LETTERS.get(piece[1:], piece[1::2])


def _as_read(value: bytes) -> bytes:
    """The value without its escapes and codes: it has one number however it is written."""
    for _ in range(_DEEPEST):
        if (bare := _bare(value)) is None:
            break
        value = bare.data
    return value


def checked(pattern: str) -> Find:
    """A pattern of the operator's. Raises BadPattern, also for one that matches nothing at all."""
    find = compiled(pattern, captures=True)
    if find(b"", 0, 0)[0][0] >= 0:
        raise BadPattern("The pattern matches an empty text.")
    return find


def _matches(find: Find, kind: str, data: bytes) -> Iterator[Span]:
    """A group of the pattern is the secret, if it has one; else all that it matches."""
    at, size = 0, len(data)
    while at < size:
        groups = find(data, at, size)
        if groups[0][0] < 0:
            return
        start, end = next((one for one in groups[1:] if one[1] > one[0] >= 0), groups[0])
        is_quoted = data[start - 1 : start] in (b'"', b"'")
        if end > start and (kind not in _GENERIC or _is_random(data[start:end], kind, is_quoted=is_quoted)):
            yield Span(start, end, kind)
        at = max(groups[0][1], groups[0][0] + 1)


def _is_random(value: bytes, kind: str, *, is_quoted: bool) -> bool:
    """Whether a value looks generated: of three sorts of characters, or letters and several digits; few of
    them twice. A `secret` of two sorts may be an id or a digest, and a word with one digit a name in code."""
    sorts = [sum(map(is_of_sort, value.decode("latin-1"))) for is_of_sort in _SORTS]
    is_mixed = sum(map(bool, sorts)) >= 3
    if kind == "secret" or (kind == "password" and not is_quoted):
        is_mixed = is_mixed and not (sorts[2] < 2 and _NAME.fullmatch(value))
    if kind != "secret":
        is_mixed = is_mixed or (sorts[2] >= 2 and sorts[0] + sorts[1] >= 2)
    return is_mixed and len(set(value)) >= min(8, len(value) * 2 // 3)


_NAME = re.compile(rb"[\w.:/@-]*")

_SORTS: tuple[Callable[[str], bool], ...] = (
    str.islower,
    str.isupper,
    str.isdigit,
    lambda one: not one.isalnum() and one not in "._-/",
)


def _occurrences(secret: bytes, kind: str, data: bytes) -> Iterator[Span]:
    at = data.find(secret)
    while at >= 0:
        yield Span(at, at + len(secret), kind)
        at = data.find(secret, at + len(secret))


def _repeats(values: Mapping[bytes, str], data: bytes) -> Iterator[Span]:
    """Where else the text has a secret that was recognised by what stands beside it. Takes a pass of the text
    per value."""
    for value, kind in values.items():
        if len(value) >= _REPEATED_BYTES:
            yield from _occurrences(value, kind, data)


def _merged(spans: list[Span]) -> list[Span]:
    """In order. Of spans that overlap there is one, of the kind of the longest; a generic kind gives way."""

    def says_most(one: Span) -> tuple[bool, int]:
        return one.kind not in _GENERIC, one.end - one.start

    merged: list[Span] = []
    for span in sorted(set(spans), key=lambda one: (one.start, -one.end, one.kind)):
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            kind = max(last, span, key=says_most).kind
            merged[-1] = Span(last.start, max(last.end, span.end), kind)
        else:
            merged.append(span)
    return merged


@cache
def _kind(rule_id: str) -> str:
    """`betterleaks.github-pat` is `github_token`."""
    name = re.sub(r"\.\d+$", "", rule_id).rpartition(".")[2].rpartition("/")[2].replace("-", "_")
    return _KINDS.get(name, name)


class Search:
    """Finds the spans of a body that comes in chunks, the same wherever they end."""

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self._held = bytearray()
        self._base = 0
        self._block = 0
        self.masks = Masks()

    def feed(self, chunk: bytes) -> None:
        self._held += chunk
        while self._base + len(self._held) >= self._block + BLOCK + MARGIN:
            self._look(self._block + BLOCK)

    def finish(self) -> "Masks":
        self._look(self._base + len(self._held))
        self._held.clear()
        return self.masks

    def _look(self, end: int) -> None:
        """Searches the block up to `end`, with its margins."""
        window = bytes(self._held[: end + MARGIN - self._base])
        for start, stop, kind in self._detector.find(window):
            if self._base + start < end and self._base + stop > self._block:
                self.masks.add(self._base + start, self._base + stop, kind, window[start:stop])
        self._block = end
        keep = max(self._base, end - MARGIN)
        del self._held[: keep - self._base]
        self._base = keep


class Masks:
    """Where the secrets of a body are, in order. Of each it keeps a digest of the value, and how many lines
    it ends: its mask ends as many, so that the lines of a body have the same numbers with masks."""

    def __init__(self) -> None:
        self.starts, self.ends = array("Q"), array("Q")
        self._kinds: list[str] = []
        self._digests: list[bytes] = []
        self._breaks = array("Q")

    def __len__(self) -> int:
        return len(self.starts)

    def add(self, start: int, end: int, kind: str, value: bytes) -> None:
        if self.ends and start < self.ends[-1]:
            # Found again in the margin of the next block, perhaps longer there.
            if end <= self.ends[-1]:
                return
            value = value[self.ends[-1] - start :]
            self.ends[-1] = end
            self._breaks[-1] += value.count(b"\n")
            return
        self.starts.append(start)
        self.ends.append(end)
        self._kinds.append(kind)
        self._digests.append(blake2b(_as_read(value).strip(), digest_size=16).digest())
        self._breaks.append(value.count(b"\n"))

    @property
    def counts(self) -> dict[str, int]:
        """How many secrets there are of each kind."""
        return dict(Counter(self._kinds))

    def texts(self, key: bytes) -> list[bytes]:
        """The mask of each secret. `key` is that of the session: it chooses the numbers."""
        masks = zip(self._kinds, self._digests, self._breaks, strict=True)
        return [_mask(kind, digest, key) + b"\n" * breaks for kind, digest, breaks in masks]


def _mask(kind: str, digest: bytes, key: bytes) -> bytes:
    """`[redacted: github_token #482913]`. The same value has the same number in a session. Without the key
    nothing can be learned of the value from its number."""
    keyed = blake2b(kind.encode() + b"\0" + digest, key=key, digest_size=8).digest()
    number = 100_000 + int.from_bytes(keyed) % _NUMBERS
    return f"[redacted: {kind} #{number}]".encode()


MASK = re.compile(r"\[redacted: ([a-z0-9][a-z0-9_-]{0,63}) #\d{6}\]")
MASK_BYTES = 84
"""A mask has at most so many."""


def masks_in(text: str) -> dict[str, int] | None:
    """How many masks of each kind a text has; None if it has none."""
    return dict(Counter(MASK.findall(text))) or None


Read = Callable[[int, int], AsyncIterator[bytes]]
"""The bytes of a body from a start to before an end, in chunks."""


class Masked:
    """A body with masks in place of its secrets. Offsets into it count its own bytes."""

    def __init__(self, masks: Masks, size: int, key: bytes) -> None:
        """`size` is that of the body as it is stored."""
        self._masks, self._texts = masks, masks.texts(key)
        self._at = array("Q")
        shift = 0
        for start, end, text in zip(masks.starts, masks.ends, self._texts, strict=True):
            self._at.append(start + shift)
            shift += len(text) - (end - start)
        self.size = size + shift

    def apply(self, chunk: bytes, at: int) -> bytes:
        """A chunk that begins at `at` of the stored body. A mask is where its secret begins."""
        starts, ends = self._masks.starts, self._masks.ends
        number = max(bisect_right(starts, at) - 1, 0)
        parts, done, stop = [], at, at + len(chunk)
        while number < len(starts) and starts[number] < stop:
            start, end = starts[number], ends[number]
            if start >= at:
                parts += [chunk[done - at : start - at], self._texts[number]]
            done = max(done, end)
            number += 1
        return b"".join([*parts, chunk[done - at :]])

    async def read(self, read: Read, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes from `start` to before `end`."""
        end = min(end, self.size)
        if start >= end:
            return
        at, skip = self._stored(start)
        # One byte more than the last that is shown: a mask comes with the first byte of its secret.
        last = self._stored(end - 1)[0] + 1
        left = end - start
        async for chunk in read(at, last):
            masked = self.apply(chunk, at)
            at += len(chunk)
            piece = masked[skip : skip + left]
            skip = max(0, skip - len(masked))
            left -= len(piece)
            if piece:
                yield piece

    def _stored(self, at: int) -> tuple[int, int]:
        """Where the stored byte is that the byte at `at` comes from, and how far into a mask it is."""
        number = bisect_right(self._at, at) - 1
        if number < 0:
            return at, 0
        inside = at - self._at[number]
        if inside < len(self._texts[number]):
            return self._masks.starts[number], inside
        return self._masks.ends[number] + inside - len(self._texts[number]), 0


def has_many_escapes(data: bytes) -> bool:
    """Whether it takes long to search even a short text: 4 ms for 32 KiB of escapes."""
    return data.count(b"\\") + data.count(b"\x1b") > _MANY_ESCAPES


def masks_of(detector: Detector, data: bytes) -> Masks:
    search = Search(detector)
    search.feed(data)
    return search.finish()
