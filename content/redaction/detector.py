"""Finds the secrets of a text: those of known forms, and what patterns match."""

import math
from collections.abc import Callable, Iterator, Mapping

from content.patterns import PatternFinder, compiled
from content.redaction.allowance import Allowance
from content.redaction.escapes import DEEPEST, bare
from content.redaction.known import is_loaded, known_secrets, load_rules
from content.redaction.repeats import SHORTEST, Values
from content.redaction.spans import SecretSpan, merged
from domain.errors import BadPattern

SECRETS = "secrets"
"""The name of the kept rules; all other names are patterns of the operator's own."""

_GIVEN = r"[\"']?\s{0,3}[:=]{1,2}>?\s{0,3}"
"""Between a name and its value."""

_OWN = {
    "aws_access_key_id": r"((?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16})(?:[^A-Z2-7]|$)",
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

    @property
    def is_loaded(self) -> bool:
        """False if the first search will take longer."""
        return not self._has_secrets or is_loaded()

    def find(self, data: bytes, seconds: float = math.inf) -> list[SecretSpan]:
        """In order, without overlaps. Searches the text as it is, and as it is read when its escapes,
        terminal codes and NULs are taken off. Raises SearchTooLong after these seconds of processor time."""
        if self._has_secrets:
            load_rules()
        return self._levels(data, DEEPEST, Allowance(seconds))

    def _levels(self, data: bytes, levels: int, allowance: Allowance) -> list[SecretSpan]:
        """The spans of a text and of the levels below it."""
        allowance.check()
        sources = self._found(data, allowance)
        repeats = Values(
            {
                data[start:end]: kind
                for spans in sources
                for start, end, kind in spans
                if end - start >= SHORTEST
            }
        )
        sources.append(list(allowance.spent_on(repeats.occurrences(data))))
        if levels and (below := bare(data)) is not None:
            spans = self._levels(below.data, levels - 1, allowance)
            sources.append([below.back(one) for one in spans])
        return list(allowance.spent_on(merged(sources, _GENERIC)))

    def _found(self, data: bytes, allowance: Allowance) -> list[list[SecretSpan]]:
        """The spans of each rule or set of rules, in order."""
        sources = [*known_secrets(data, allowance)] if self._has_secrets else []
        if self._patterns and self._any(data, 0, len(data))[0][0] >= 0:
            for name, find in self._patterns:
                sources.append(list(allowance.spent_on(_matches(find, name, data))))
        return sources


def checked(pattern: str) -> PatternFinder:
    """A pattern of the operator's. Raises BadPattern, also for one that matches nothing at all."""
    find = compiled(pattern, captures=True)
    if find(b"", 0, 0)[0][0] >= 0:
        raise BadPattern("The pattern matches an empty text.")
    return find


def _matches(find: PatternFinder, kind: str, data: bytes) -> Iterator[SecretSpan]:
    """A group of the pattern is the secret, if it has one; else all that it matches."""
    at, size, is_generic = 0, len(data), kind in _GENERIC
    while at < size:
        groups = find(data, at, size)
        start, end = groups[0]
        if start < 0:
            return
        at = max(end, start + 1)
        if len(groups) > 1:
            start, end = next((one for one in groups[1:] if one[1] > one[0] >= 0), groups[0])
        if end > start and not (is_generic and not _is_random(data, start, end, kind)):
            yield SecretSpan(start, end, kind)


def _is_random(data: bytes, start: int, end: int, kind: str) -> bool:
    """Whether a value looks generated: of three sorts of characters, or letters and several digits; few of
    them twice. A `secret` of two sorts may be an id or a digest, and a word with one digit a name in code."""
    value, is_quoted = data[start:end], data[start - 1 : start] in (b'"', b"'")
    lower, upper, digits, others = (len(value) - len(value.translate(None, sort)) for sort in _SORTS)
    is_mixed = sum(map(bool, (lower, upper, digits, others))) >= 3
    if kind == "secret" or (kind == "password" and not is_quoted):
        is_mixed = is_mixed and not (digits < 2 and not value.translate(None, _IN_NAMES))
    if kind != "secret":
        is_mixed = is_mixed or (digits >= 2 and lower + upper >= 2)
    return is_mixed and len(set(value)) >= min(8, len(value) * 2 // 3)


def _bytes_that(is_of_sort: Callable[[str], bool]) -> bytes:
    return bytes(one for one in range(256) if is_of_sort(chr(one)))


_SORTS = [
    *map(_bytes_that, (str.islower, str.isupper, str.isdigit)),
    _bytes_that(lambda one: not one.isalnum() and one not in "._-/"),
]
_IN_NAMES = _bytes_that(lambda one: one.isascii() and (one.isalnum() or one in "_.:/@-"))
