"""Questions in words that are plainly queries over records: read where they are, else left alone.

Nothing is guessed: every word must be accounted for, every key named must be exactly one of the data's.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from content.conditions import read_conditions
from content.record_keys import RecordKeys, plain_name, quoted

MAX_CHARS = 400

_GENERIC = frozenset({"record", "row", "entry", "item", "object", "element"})

_NOUN = r"(?P<noun>[a-z_]{2,40})"
_KEY = r"(?P<key>[\w\"'`][\w .\"'`-]{0,80}?)"
_KEYS = r"(?P<keys>[\w .,\"'`-]{1,200}?)"
_PLACE = (
    r"(?: (?:are there|there are|exist|do we have))?"
    r"(?: in (?:the|this) (?:array|csv|data|dataset|document|file|json|list|output|response|result|table))?"
)
_HAVING = r"(?:where|whose|with|having|have|that have|which have|for which)"
_WHERE = rf"(?: {_HAVING} (?P<where>.+))?"
_SHOW = r"(?:list|show|give|return|find|get|extract|print)(?: me)?"
_ASK = rf"(?:(?:{_SHOW}|what is|what are|calculate|compute) )?"
_MOST = r"largest|biggest|greatest|highest|maximum|max|most"
_LEAST = r"smallest|lowest|least|minimum|min|fewest"
_SIZE = rf"(?:(?P<most>{_MOST})|{_LEAST})"
_EACH = r"(?:all |every |each )?"
_OF_ALL = rf"(?: (?:of|over|across|for) {_EACH}(?:the )?{_NOUN})?"

Words = re.Match[str]
Form = Callable[[Words, RecordKeys], str | None]


@dataclass(frozen=True, slots=True)
class Question:
    """A form that the words have; whether the data has the keys is not known yet."""

    words: Words
    form: Form

    def expression(self, keys: RecordKeys) -> str | None:
        """In JMESPath; None where a noun or a key is not plainly one of these."""
        noun = self.words.groupdict().get("noun")
        if noun is not None and not _means_records(noun, keys):
            return None
        return self.form(self.words, keys)


def structured_question(instruction: str, keys: RecordKeys) -> str | None:
    """The query that the instruction plainly is."""
    question = read_question(instruction)
    return None if question is None else question.expression(keys)


def read_question(instruction: str) -> Question | None:
    """None for anything but one plain question; takes a millisecond or two at the worst."""
    if len(instruction) > MAX_CHARS:
        return None
    text = " ".join(instruction.split()).rstrip(" .?!").removeprefix("Please ").removeprefix("please ")
    for pattern, form in _FORMS:
        if words := pattern.fullmatch(text):
            return Question(words, form)
    return None


def _singular(noun: str) -> str:
    name = plain_name(noun)
    return f"{name[:-3]}y" if name.endswith("ies") else name.removesuffix("s")


def _means_records(noun: str, keys: RecordKeys) -> bool:
    """True for the records' own name; for "items" and its like unless a record has items itself."""
    name = _singular(noun)
    return name == _singular(keys.noun) or (name in _GENERIC and _named(noun, keys) is None)


def _named(name: str, keys: RecordKeys) -> tuple[str, ...] | None:
    """The key of this name; a plural may stand for it."""
    name = name.strip("\"'`")
    plurals = [(end, rest) for end, rest in (("s", ""), ("es", ""), ("ies", "y")) if name.endswith(end)]
    names = [name, *(name.removesuffix(end) + rest for end, rest in plurals)]
    return next((path for path in map(keys.find, names) if path), None)


def _key(words: Words, keys: RecordKeys, kind: str | None = None) -> tuple[str, ...] | None:
    """The key that is named; of this kind where one is asked."""
    path = _named(words["key"], keys)
    return path if path and kind in (None, keys.types[path]) else None


def _chosen(words: Words, keys: RecordKeys) -> str | None:
    """The records, or those that the conditions leave, as a projection."""
    where = words.groupdict().get("where")
    if where is None:
        return f"{keys.records}[]"
    conditions = read_conditions(where)
    parts = [condition.expression(keys) for condition in conditions or ()]
    known = [part for part in parts if part is not None]
    return f"{keys.records}[?{' && '.join(known)}]" if known and len(known) == len(parts) else None


def _count(words: Words, keys: RecordKeys) -> str | None:
    chosen = _chosen(words, keys)
    return None if chosen is None else f"length({chosen})"


def _list(words: Words, keys: RecordKeys) -> str | None:
    return _chosen(words, keys)


def _pick(words: Words, keys: RecordKeys) -> str | None:
    """Some keys of the records; each by its own name."""
    chosen = _chosen(words, keys)
    names = re.split(r", and |, | and ", words["keys"], flags=re.IGNORECASE)
    paths = [_named(name, keys) for name in names]
    known = [path for path in paths if path is not None]
    if chosen is None or len(known) < len(paths):
        return None
    if len(known) == 1:
        return f"{chosen}.{quoted(known[0])}"
    labels = [quoted((".".join(path),)) for path in known]
    if len(set(labels)) < len(labels):
        return None
    return f"{chosen}.{{{', '.join(f'{a}: {quoted(b)}' for a, b in zip(labels, known, strict=True))}}}"


def _having_most(words: Words, keys: RecordKeys) -> str | None:
    """Whole records; all of them, not one, where several have the most."""
    path = _key(words, keys, "number")
    if path is None:
        return None
    return f"{'all_max_by' if words['most'] else 'all_min_by'}({keys.records}[], &{quoted(path)})"


def _top(words: Words, keys: RecordKeys) -> str | None:
    path = _key(words, keys, "number")
    if path is None:
        return None
    ordered = f"sort_by({keys.records}[?{quoted(path)} != `null`], &{quoted(path)})"
    # "Top 5 by price" says no size: it means the most.
    least = "most" in words.groupdict() and not words["most"]
    return f"{ordered}[:{words['number']}]" if least else f"reverse({ordered})[:{words['number']}]"


def _extreme(words: Words, keys: RecordKeys) -> str | None:
    path = _key(words, keys, "number")
    return None if path is None else f"{'max' if words['most'] else 'min'}({keys.records}[].{quoted(path)})"


def _sum(words: Words, keys: RecordKeys) -> str | None:
    path = _key(words, keys, "number")
    how = "avg" if words["how"].lower() in ("average", "mean") else "sum"
    return None if path is None else f"{how}({keys.records}[].{quoted(path)})"


def _distinct(words: Words, keys: RecordKeys) -> str | None:
    path = _key(words, keys)
    return None if path is None else f"unique({keys.records}[].{quoted(path)})"


def _count_distinct(words: Words, keys: RecordKeys) -> str | None:
    found = _distinct(words, keys)
    return None if found is None else f"length({found})"


def _count_by(words: Words, keys: RecordKeys) -> str | None:
    path = _key(words, keys)
    return None if path is None else f"count_by({keys.records}[], &{quoted(path)})"


_COUNT = (
    r"(?:how many|count(?: all)?(?: of)?(?: the)?"
    r"|(?:what is )?(?:the )?(?:total )?number of(?: all)?(?: the)?)"
)
_DISTINCT = rf"(?:distinct|unique|different) (?:values (?:of|for|in) )?{_KEY}(?: values)?"

_FORMS: tuple[tuple[re.Pattern[str], Form], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), form)
    for pattern, form in (
        (rf"{_COUNT} {_DISTINCT}{_PLACE}", _count_distinct),
        (rf"{_COUNT} {_NOUN}(?: are there)? (?:by|per|for each|grouped by) {_KEY}", _count_by),
        (rf"{_COUNT} {_NOUN}{_PLACE}{_WHERE}", _count),
        (rf"(?:(?:{_SHOW}|what are) )?(?:all )?(?:of )?(?:the )?{_DISTINCT}{_PLACE}", _distinct),
        (rf"(?:which|what) {_NOUN} (?:has|have) the {_SIZE} {_KEY}", _having_most),
        (rf"(?:{_SHOW} )?the {_NOUN} with the {_SIZE} {_KEY}", _having_most),
        (rf"{_ASK}(?:the )?(?P<number>\d{{1,3}}) {_NOUN} with the {_SIZE} {_KEY}", _top),
        (rf"{_ASK}(?:the )?top (?P<number>\d{{1,3}}) {_NOUN} by {_KEY}", _top),
        (rf"{_ASK}(?:the )?{_SIZE}(?: value)?(?: of)? {_KEY}{_OF_ALL}{_PLACE}", _extreme),
        (rf"{_ASK}(?:the )?(?P<how>average|mean|sum|total)(?: of)?(?: the)? {_KEY}{_OF_ALL}{_PLACE}", _sum),
        (rf"(?:{_SHOW} )?(?:all )?(?:of )?(?:the )?{_NOUN} {_HAVING} (?P<where>.+)", _list),
        (
            rf"(?:{_SHOW}|what are) (?:all )?(?:the )?{_KEYS} (?:of|for) {_EACH}(?:the )?{_NOUN}{_WHERE}",
            _pick,
        ),
    )
)
