"""A question as retrieve reads it: words, texts that are found as written, joined parts."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from extraction.passage_index import pieces

_MOST_CHARS = 2000
_MOST_OF_A_KIND = 40
_MOST_PARTS = 4
_SHORTEST_STEM = 4
_LEAST_DIGITS = 3

_STOP_WORDS = """
a about all also am an and any are as at be been being both but by can cannot could did do does each else
ever exact exactly extract find for from gave get give given had happen happened happens has have her here
him his how i if in into is it its itself just list located look made many me mention mentioned more most
much must my name no nor not of on one only or other our out over please provide quote report return s say
says shall she should show shows since so some such take tell than that the their them then there these they
this those to too under up upon us value values was we went were what when where whether which while who whom
whose why will with within would you your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

_QUOTED = re.compile(
    r"\"([^\"\n]{2,200})\"|`([^`\n]{2,200})`|(?<!\w)'([^'\n]{2,200})'(?!\w)|“([^”\n]{2,200})”"
)
_TOKEN = re.compile(r"[^\s\"'`“”’,;|?()\[\]{}<>，。；？、]+")
_HOW = re.compile(r"\bhow (?:many|much|long|often|large|big|old|far|fast|high|wide)\b", re.IGNORECASE)
_TRIM = ".:!=&*^$\\-#%/+@~"
_IDENTIFIER = re.compile(r"\w[./:@+_-]+\w|[a-z][A-Z]|[A-Z]{2}[a-z]|[^\W\d]\d|\d[^\W\d]")
_NUMBER = re.compile(rf"\d{{{_LEAST_DIGITS},}}\Z")
_BETWEEN_PARTS = re.compile(r"[\W_]+")
_JOINT = re.compile(r"[?;？；]+\s*|\s+and\s+", re.IGNORECASE)
_SUFFIX = re.compile(r"(?:ing|ed|ies|es|s|ly|y|ions?|ments?)\Z")


@dataclass(frozen=True, slots=True)
class Word:
    """`text` is as the question has it. `phrases` are looked for in its place: the word itself, or the pairs
    of adjacent characters of a script without spaces."""

    text: str
    phrases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ParsedQuestion:
    """`words` are without stop words. `exact` are identifiers, numbers and texts in quotes; `quoted` are only
    the texts in quotes. `parts` are the questions that are joined into this one; empty for a single
    question."""

    text: str
    words: tuple[Word, ...]
    exact: tuple[str, ...]
    quoted: tuple[str, ...]
    parts: tuple[str, ...]

    @property
    def phrases(self) -> list[str]:
        """The phrases of all words."""
        return [phrase for word in self.words for phrase in word.phrases]


def parse(instruction: str) -> ParsedQuestion:
    """Reads the first 2,000 characters."""
    text = _HOW.sub(" ", instruction[:_MOST_CHARS])
    quoted = [" ".join(next(filter(None, match.groups())).split()) for match in _QUOTED.finditer(text)]
    tokens = _tokens(text)
    identifiers = [token for token in tokens if _IDENTIFIER.search(token) or _NUMBER.match(token)]
    return ParsedQuestion(
        text=text,
        words=_distinct(tokens),
        exact=_few([*quoted, *identifiers]),
        quoted=_few(quoted),
        parts=_parts(text),
    )


def stem(word: str) -> str:
    """The word in lower case without an English ending."""
    bare = _SUFFIX.sub("", word.lower())
    return bare if len(bare) >= _SHORTEST_STEM else word.lower()


def _tokens(text: str) -> list[str]:
    """All words but stop words. A word in capitals, such as GET, is no stop word, unless the whole question
    is in capitals."""
    bare = (token.strip(_TRIM) for token in _TOKEN.findall(text))
    is_shouted = text.isupper()
    return [
        one
        for one in bare
        if one and (one.lower() not in STOP_WORDS or (len(one) > 1 and one.isupper() and not is_shouted))
    ]


def _distinct(tokens: Iterable[str]) -> tuple[Word, ...]:
    """One Word for all forms of a word. An identifier is split into its parts."""
    words: dict[str, Word] = {}
    for token in tokens:
        for part in _BETWEEN_PARTS.split(token):
            if part and (part == token or part.lower() not in STOP_WORDS):
                forms = dict.fromkeys(form for piece in pieces(part) for form in (piece, piece.lower()))
                words.setdefault(stem(part), Word(part, tuple(forms)))
    return tuple(words.values())[:_MOST_OF_A_KIND]


def _parts(text: str) -> tuple[str, ...]:
    parts = [part for part in _JOINT.split(text) if _tokens(part)]
    return tuple(parts[:_MOST_PARTS]) if len(parts) > 1 else ()


def _few(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))[:_MOST_OF_A_KIND]
