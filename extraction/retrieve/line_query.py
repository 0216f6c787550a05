"""The SQL over the lines of a text that answers a question for a count, groups, a sum or an extreme."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import filterfalse

from content.formats.log import GRAVEST, levels
from content.kind import Kind
from content.patterns import escaped
from content.relation import text_of
from content.source import Source
from extraction.retrieve.asking import EXTENT, is_of_asking, words_of
from extraction.retrieve.comparisons import UNIT, Unit, comparisons, unit_of, without_comparisons
from extraction.retrieve.instruction import ParsedInstruction, is_stop_word
from extraction.retrieve.words import stem

_KINDS = (Kind.LOG, Kind.LISTING, Kind.GREP)
_READ_BYTES = 1 << 20
_LEAST_LINES = 10
_LEAST_CHARS = 3
_SHOWN, _EXTREMES = 10, 3
_LEAST_KEYS = 2
_MOST_CONDITIONS = 3
_LEAST_WORDS = 2
_TEXT_CHARS = 240
_VERBATIM_WORDS = 30
_MEASURED_SHARE = 0.3
_ALIKE_LINES, _ALIKE_SHARE, _ALIKE_FIELDS = 400, 0.7, 2
_UNIT_WORDS = """
line lines event events entry entries message messages times log logs file files path paths request requests
response responses name names contain mention include match say hold show return
"""
_UNIT_STEMS = frozenset(map(stem, _UNIT_WORDS.split()))
"""Words for a line or a part of it, which the line need not hold."""

_IP = r"\d{1,3}(?:\.\d{1,3}){3}"
_KEYS = (
    (words_of(r"\b(?:ips?|ip[- ]?addr\w*|addresse?s?|clients?|attackers?|hosts?)\b|地址"), _IP),
    (words_of(r"\b(?:(?:status|http|response|return) codes?|status(?:es)?)\b"), r'" (\d{3}) '),
    (words_of(r"\b(?:extensions?|file types?|endings?|suffix(?:es)?)\b"), r"\.(\w{1,8})(?::|$)"),
    (words_of(r"\bhours?\b"), r"(?:^|[T :])(\d\d):\d\d:\d\d"),
    (
        words_of(r"\b(?:days?|dates?|daily)\b"),
        r"\b(\d{4}-\d\d-\d\d|\d\d/[A-Z][a-z]{2}/\d{4}|[A-Z][a-z]{2} [ \d]\d|\d\d-\d\d)[ T:]",
    ),
    (words_of(r"\b(?:files?|pages?|urls?|paths?|resources?|endpoints?)\b"), r'"[A-Z]{3,7} (\S+)'),
)
"""What a question asks for by a name that does not stand before it, and the pattern of it."""

ALL_OF_LEVEL = words_of(
    r"\b(?:which|what|list|all|any|show)\b.{0,30}\b(?:errors|warnings|fatals|criticals|exceptions|traces)\b"
)
_FATAL = GRAVEST[: GRAVEST.index("ERROR")]
LEVEL_STEMS = frozenset(stem(name.lower()) for name in (*GRAVEST, "warning", "level", "severity")) | {
    "warning"
}
_OF_LINES = words_of(r"\blines\b")
_OF_LEVELS = words_of(r"\b(?:levels?|severit\w+)\b")
_VALUE = r"([^\s,;)\]\"']+)"
_KEYED_SHARE = 0.3
_QUOTED = (r"'([^']{1,80})'", r"\"([^\"]{1,80})\"")
_NUMBER = r"(\d+(?:\.\d+)?)"
_MEASURES = (
    (
        words_of(
            r"\b(?:slow\w*|fast\w*|quick\w*|long\w*|short\w*|latenc\w+|durations?|elapsed|took|takes?"
            r"|ms|milliseconds|seconds)\b|\btime in\b|慢|快"
        ),
        (rf"\b{_NUMBER} ?(?:ns|[uµ]s|ms|milliseconds|s|secs?|seconds|min|minutes)\b",),
    ),
    (
        words_of(r"\b(?:larg\w*|small\w*|big\w*|great\w*|sizes?|bytes)\b|大|小"),
        (
            r'" \d{3} (\d+)\b',
            r"^[-dlbcps][-rwxsStT]{9}\S* +\d+ \S+ +\S+ +(\d+) ",
            rf"\b{_NUMBER} ?(?:bytes|[kKMGT]i?B|B)\b",
        ),
    ),
)
"""Numbers that an adjective compares, in the lines of any program: times, and sizes."""

_UNIT = re.compile(rf" ?{UNIT}\b")
_GROUPED = words_of(r"\b(?:per|by|each|every|which|what)\s+(\w+)")

_OF_MODE = re.compile(r"[-dlbcps][-rwxsStT]{9}")
_ENTRIES = (
    (words_of(r"\b(?:sub-?)?(?:directories|directory|dirs?|folders?)\b"), "^d"),
    (words_of(r"\b(?:(?:symbolic|soft) links?|sym-?links?|links?)\b"), "^l"),
    (words_of(r"\bfiles?\b"), "^-"),
)
"""What `ls -l` lists, and how its lines begin."""

_LENGTH = words_of(
    r"\b(?:long|short)(?:er|est)?\b.{0,20}?\b(?:(?:file ?)?(names?)|lines?|paths?|messages?|entr\w+)\b"
)
_ENDING = words_of(
    r"\b(?:end\w*|suffix\w*)\s+(?:in|with|on|of|mit|auf)\s+[\"'`]?(\S+?)[\"'`]?(?=[\s?!,;]|\.?\Z)"
)
_BEGINNING = words_of(
    r"\b(?:start\w*|begin\w*|prefix\w*)\s+(?:in|with|of|mit)\s+[\"'`]?(\S+?)[\"'`]?(?=[\s?!,;]|\.?\Z)"
)
_MENTIONED = words_of(
    r"\b(?:mention\w*|contain\w*|includ\w*|match\w*|with the (?:word|text|string)) "
    r"(?:the (?:word|text|string) |the |an? |any )?"
    r"[\"'`]?([\w./:@-]*\w)"
)
_EXTENSION = words_of(r"(?<![\w.*])\*?(\.[A-Za-z](?:[\w.]{0,8}\w)?)\s+(?:files?|paths?|entries)\b")


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition as SQL, and the lines of the sample that meet it."""

    sql: str
    lines: list[str]


class LineQuery:
    """The sampled lines, and what a question asks of them. `noun` is the word for what is counted."""

    def __init__(self, text: Source, instruction: ParsedInstruction, noun: str) -> None:
        self._instruction = instruction
        self._noun = noun
        self._rows = instruction.rows
        self._kind = text.format.kind
        self._head = text.data[:_READ_BYTES].decode("utf-8", "replace")
        self._lowered = self._head.lower()
        self._lines = [line.rstrip("\r") for line in self._head.split("\n") if line]
        self._comparisons = comparisons(instruction.text)
        self._of_form = self._words_of_form()
        self._levels = [name for name, _ in levels(text)] if self._kind is Kind.LOG else []
        self._level_of = text.format.of_lines(text).get("level")
        self._of_where = ""
        self._everywhere: set[str] = set()

    def _words_of_form(self) -> frozenset[str]:
        """The words of the question for what lines are grouped or compared by."""
        patterns = [*(one for one, _ in (*_KEYS, *_MEASURES)), _OF_LEVELS, _LENGTH, _ENDING, _BEGINNING]
        if self._kind is Kind.LISTING:
            patterns += [one for one, _ in _ENTRIES]
        texts = [match[0] for pattern in patterns for match in pattern.finditer(self._instruction.text)]
        texts += [one.text for one in self._comparisons]
        return frozenset(" ".join(texts).lower().split())

    def uses(self, word: str) -> bool:
        """True for a word that the queries here stand for, or that lines need not hold."""
        return self._is_of_form(word) or self._is_of_all(stem(word))

    def _is_of_form(self, word: str) -> bool:
        is_unit = stem(word) in _UNIT_STEMS and not (self._kind is Kind.LISTING and stem(word) == "log")
        return word in self._of_form or is_unit or word in self._everywhere

    def _is_of_all(self, noun: str) -> bool:
        """True for the noun of what is counted, if all lines that are counted hold it."""
        return noun == stem(self._noun) and all(noun in line.lower() for line in self._held)

    @property
    def has_records(self) -> bool:
        """True if each line is a record. In plain text most lines then have the same number of fields."""
        if len(self._lines) < _LEAST_LINES:
            return False
        if self._kind is not Kind.TEXT:
            return self._kind in _KINDS
        if self._is_about_lines:
            return True
        lines = self._lines[:_ALIKE_LINES]
        alike = sum(len(line.split()) == self._fields for line in lines)
        return self._fields >= _ALIKE_FIELDS and alike >= _ALIKE_SHARE * len(lines)

    @property
    def _is_about_lines(self) -> bool:
        text = self._instruction.text
        return _OF_LINES.search(text) is not None and _MENTIONED.search(text) is not None

    @cached_property
    def _fields(self) -> int:
        """How many fields most lines have."""
        return Counter(len(line.split()) for line in self._lines[:_ALIKE_LINES]).most_common(1)[0][0]

    @property
    def can_compare(self) -> bool:
        """False if the question compares a number, as in `more than 800 ms`, and lines do not have it."""
        return len(self._of_comparisons) == len(self._comparisons)

    @property
    def compares_numbers(self) -> bool:
        """True if the question compares times, sizes or lengths."""
        patterns = (_LENGTH, *(one for one, _ in _MEASURES))
        return any(one.search(self._instruction.text) for one in patterns)

    def count(self) -> str:
        """The number of the lines, "" where no word of the question is in the lines, nor a level."""
        if self._is_unmet or (things := self._things()) is None:
            return ""
        if EXTENT.search(self._instruction.text) and len(self._instruction.words) < _LEAST_WORDS:
            # How many lines there are is said beside the passages.
            return ""
        if (where := self._where) and not self._asks_by_level:
            return select(things, where) if self._are_alike(self._held) else ""
        if not self._levels or not self._counts_lines or EXTENT.search(self._instruction.text):
            return ""
        return select("level, count(*)", rest="GROUP BY level ORDER BY 2 DESC")

    def _things(self) -> str | None:
        """What is counted: lines, or the different values of the key that the question counts. None if these
        may be meant and are not told from other words."""
        if self._counts_lines:
            return "count(*)"
        noun = stem(self._noun)
        for sign, marks in (("=", "="), ("[: ]+", ": ")):
            if not any(noun + mark in self._lowered for mark in marks):
                continue
            pattern = rf"\b{escaped(noun)}{sign}{_VALUE}"
            values = Counter(_parts(pattern, self._lines))
            if values.total() > max(len(values), _KEYED_SHARE * len(self._lines)):
                return f"count(DISTINCT part(text, {text_of(pattern)}))" if sign == "=" else None
        return "count(*)"

    @property
    def _counts_lines(self) -> bool:
        """True if the question counts lines or levels, not things that lines name."""
        noun = stem(self._noun)
        return not noun or noun in _UNIT_STEMS or noun in LEVEL_STEMS

    def _are_alike(self, lines: list[str]) -> bool:
        """False for lines of plain text that are not records, as those of a summary among the tests."""
        if self._kind is not Kind.TEXT or self._is_about_lines:
            return True
        return all(len(line.split()) == self._fields for line in lines)

    def of_level(self) -> str:
        """The lines of the levels that the question names, as in `which errors were logged`."""
        where = self._where
        if not (where and "level" in self._conditions[0].sql and ALL_OF_LEVEL.search(self._instruction.text)):
            return ""
        text = f"substr(text, 1, {_TEXT_CHARS}) AS text"
        return select(f"line, {text}", where, f"LIMIT {_SHOWN}")

    def groups(self, *, descending: bool) -> str:
        """The number of the lines by what the question groups by, "" where that is not known."""
        key = self._key()
        if not key:
            return ""
        where = _where(self._conditions, "found IS NOT NULL")
        order = "DESC" if descending else "ASC"
        return select(
            f"{key} AS found, count(*)",
            where,
            f"GROUP BY found ORDER BY 2 {order} LIMIT {self._rows or _SHOWN}",
        )

    def distinct(self) -> str:
        """The number of different parts by which the question groups."""
        key, where = self._key(), self._where
        return select(f"count(DISTINCT {key})", where) if key else ""

    def extreme(self, *, descending: bool) -> str:
        """The lines with the largest or smallest number that the question compares."""
        measure = self._measure()
        if not measure or self._is_unmet:
            return ""
        where = _where(self._conditions, "found IS NOT NULL").replace(measure, "found")
        columns = f"line, {measure} AS found, substr(text, 1, {_TEXT_CHARS}) AS text"
        order = "DESC" if descending else "ASC"
        most = self._rows or (_SHOWN if self._comparisons else _EXTREMES)
        return select(columns, where, f"ORDER BY found {order} LIMIT {most}")

    def aggregate(self, function: str, *, is_grouped: bool, descending: bool) -> str:
        measure = self._measure()
        if not measure:
            return ""
        value = f"round({function}({measure}), 2)"
        if not is_grouped:
            return select(value, self._where)
        key = self._key()
        if not key or not self._grouped_by or any(bare in measure for bare in self._grouped_by):
            return ""
        rest = f"GROUP BY found ORDER BY 2 {'DESC' if descending else 'ASC'} LIMIT {self._rows or _SHOWN}"
        return select(f"{key} AS found, {value}", _where(self._conditions, "found IS NOT NULL"), rest)

    @property
    def _is_unmet(self) -> bool:
        """True if the question names a beginning or an end that no line has, or two kinds of entries."""
        patterns = (_ENDING, _EXTENSION, _BEGINNING)
        forms = [match[1].lower() for one in patterns for match in one.finditer(self._instruction.text)]
        kinds = [one for one, _ in _ENTRIES if one.search(self._instruction.text)]
        has_kinds = self._kind is Kind.LISTING and len(kinds) > 1
        return has_kinds or bool(self._conditions and any(form not in self._of_where for form in forms))

    @property
    def _where(self) -> str:
        return _where(self._conditions)

    @property
    def _asks_by_level(self) -> bool:
        return _OF_LEVELS.search(self._instruction.text) is not None

    # The lines that are meant.

    @cached_property
    def _conditions(self) -> list[Condition]:
        """For each word or phrase that some lines hold, as long as lines hold all of them."""
        conditions: list[Condition] = []
        lines = self._lines
        if (of_level := self._of_levels()) is not None:
            conditions.append(of_level)
            lines = of_level.lines or lines
        for condition in (*self._of_entries(), *self._of_comparisons):
            conditions.append(condition)
            matching = set(condition.lines)
            lines = [line for line in lines if line in matching] or lines
        for word in filterfalse(is_stop_word, _MENTIONED.findall(self._instruction.text)):
            # Also one that the sample does not hold.
            sql, pattern, words = self._holding(word, is_whole=True)
            conditions.append(Condition(sql, list(filter(pattern.search, lines))))
            self._of_where += f" {words}"
            lines = conditions[-1].lines or lines
        for sql, pattern, words in self._wanted():
            if len(conditions) == _MOST_CONDITIONS or any(word in self._of_where for word in words.split()):
                continue
            held = list(filter(pattern.search, lines))
            if len(held) == len(lines) and all(map(pattern.search, self._lines)):
                self._everywhere |= set(words.split())
            elif held and held != self._lines[:1]:
                # The first line alone is a header.
                conditions.append(Condition(sql, held))
                self._of_where += f" {words}"
                lines = held
        return conditions

    def _of_levels(self) -> Condition | None:
        """The lines of the levels that the question names. The sample need not hold the gravest."""
        level_of = self._level_of
        if not self._levels or level_of is None:
            return None
        stems = {stem(word.lower()): word.lower() for word in self._instruction.words}
        if "warning" in stems:
            stems |= {"warn": stems["warning"]}
        levels = dict.fromkeys((*self._levels, *GRAVEST))
        names = [name for name in levels if stem(name.lower()) in stems]
        if not names:
            return None
        lines = [line for line in self._lines if level_of(line.encode()) in names]
        # `fatal errors` are not all errors.
        fatal = [name for name in names if name in _FATAL]
        names = fatal or [name for name in names if name in self._levels] or names[:1]
        self._of_where += "".join(f" {stems[stem(name.lower())]}" for name in names)
        listed = ", ".join(map(text_of, names))
        return Condition(f"level IN ({listed})" if len(names) > 1 else f"level = {listed}", lines)

    def _of_entries(self) -> Iterator[Condition]:
        """The lines of what `ls -l` lists: files, directories or links."""
        if self._kind is Kind.LISTING and any(map(_OF_MODE.match, self._lines)):
            for words, beginning in _ENTRIES:
                if words.search(self._instruction.text):
                    lines = [line for line in self._lines if line.startswith(beginning[1])]
                    yield Condition(f"matches(text, '{beginning}')", lines)
                    return

    @cached_property
    def _of_comparisons(self) -> list[Condition]:
        """The lines whose number is larger or smaller than one in the question."""
        conditions: list[Condition] = []
        for one in self._comparisons:
            for pattern, unit in self._measuring(self._lines):
                limit = one.limit(unit)
                if limit is not None and stem(one.noun) in pattern:
                    matches = filter(None, map(re.compile(pattern).search, self._lines))
                    lines = [match.string for match in matches if one.is_met(float(match[1]), limit)]
                    conditions.append(Condition(f"{_number_of(pattern)} {one.sign} {limit:.12g}", lines))
                    break
        return conditions

    def _wanted(self) -> Iterator[tuple[str, re.Pattern[str], str]]:
        """Conditions that the question may mean, as SQL and as a pattern, with their words, best first."""
        instruction = self._instruction
        for pattern, form in ((_ENDING, "{}$"), (_EXTENSION, "{}$"), (_BEGINNING, "^{}")):
            for match in pattern.finditer(instruction.text):
                yield _matching(form.format(escaped(match[1])), match[1].lower())
        for text in (*instruction.quoted, *self._verbatim(), *instruction.exact):
            if not self._is_idle(text):
                yield self._holding(text, is_whole=True)
        noun = stem(self._noun)
        words = [one for one in (*instruction.phrases, *instruction.words) if not self._is_idle(one)]
        for text in sorted(words, key=lambda one: (-len(one.split()), stem(one.lower()) == noun)):
            if not (self._of_where and stem(text.lower()) == noun):
                yield self._holding(text)

    def _verbatim(self) -> Iterator[str]:
        """The longest part of the question, of three words or more, that the lines hold."""
        words = self._instruction.text.split()[:_VERBATIM_WORDS]
        for count in range(len(words), 2, -1):
            for at in range(len(words) - count + 1):
                part = " ".join(words[at : at + count]).strip(".,;:?!\"'")
                if part.lower() in self._lowered:
                    yield part
                    return

    def _is_idle(self, phrase: str) -> bool:
        """True for words of asking, for those of what the lines are grouped or compared by, and for units."""
        bare = phrase.lower()
        words = bare.split()
        return len(bare) < _LEAST_CHARS or all(map(self._is_of_form, words)) or any(map(is_of_asking, words))

    def _holding(self, text: str, *, is_whole: bool = False) -> tuple[str, re.Pattern[str], str]:
        """The condition that a line holds the text, which may be spelled in another case or form."""
        bare = text.lower()
        if text.isdecimal():
            status = f'" {text} '
            if any(status in line for line in self._lines):
                return _matching(status, bare)
            name = re.search(rf"(?i)\b(status|code|port|pid|line|version)\W+{text}\b", self._instruction.text)
            return _matching(
                rf"(?i)\b{name[1]}\W{{0,3}}{text}\b" if name else rf"(?:^|[^\w.,:]){text}\b", bare
            )
        if not is_whole and bare.isalpha() and (inside := self._inside_words(bare)):
            return _matching(inside, bare)
        if bare not in self._lowered and not is_whole:
            bare = stem(bare)
        at = self._lowered.find(bare)
        spelled = self._head[at : at + len(bare)] if at >= 0 else text
        if spelled.lower() != bare:
            # Letters before it are longer in lower case.
            spelled = bare
        case = "" if self._head.count(spelled) == self._lowered.count(bare) else "(?i)"
        # A number ends with its last digit: part3 is not part30.
        bounds = [r"\b" if end.isdecimal() else "" for end in (spelled[0], spelled[-1])]
        return _matching(f"{case}{bounds[0]}{escaped(spelled)}{bounds[1]}", bare)

    def _inside_words(self, word: str) -> str:
        """The pattern of the word alone, if lines have it so and longer words have it too."""
        if not word.isascii():
            return ""
        base = re.sub(r"s\Z", "", word)
        text, total = self._lowered, self._lowered.count(base)
        # A pattern that begins with a letter is looked for many times faster than one with \b before it.
        starts = (match.start() for match in re.finditer(rf"{base}(?:e?s)?\b", text)) if total else ()
        alone = sum(1 for at in starts if not at or not (text[at - 1].isalnum() or text[at - 1] == "_"))
        return rf"(?i)\b{base}(?:e?s)?\b" if 0 < alone < total else ""

    @property
    def _held(self) -> list[str]:
        return self._conditions[-1].lines if self._conditions else self._lines

    # What they are grouped by or compared by.

    def _key(self) -> str:
        """The expression of what the question groups by: a known form, or what stands behind a word of it."""
        if self._levels and self._asks_by_level:
            return "level"
        lines = self._held
        grouped = self._grouped_by
        usual = [pattern for name, pattern in _KEYS if name.search(self._instruction.text)]
        words = [
            bare
            for word in self._instruction.words
            if len(bare := stem(word.lower())) >= _LEAST_CHARS
            and (bare in grouped or bare not in self._of_where)
            and not is_of_asking(word)
        ]
        words = [bare for bare in words if bare in grouped] or words
        behind = [rf"\b{escaped(bare)}{sign}{_VALUE}" for bare in words for sign in ("=", "[=: ]+")]
        behind += [rf"\b({escaped(bare)}[-_#]?\d+)\b" for bare in words]
        for pattern in (*usual, *behind, *(() if usual or grouped else _QUOTED)):
            parts = Counter(_parts(pattern, lines))
            if parts.total() > len(parts) >= (1 if pattern in usual else _LEAST_KEYS):
                return f"part(text, {text_of(pattern)})"
        return ""

    @property
    def _grouped_by(self) -> set[str]:
        """The stems of the words by which the question groups."""
        return {stem(word.lower()) for word in _GROUPED.findall(self._instruction.text)}

    def _measure(self) -> str:
        """The expression of the number that the question compares, "" where lines have none, or in several
        units."""
        if length := _LENGTH.search(self._instruction.text):
            is_name = length[1] and self._kind is Kind.LISTING
            return "length(part(text, '[^/]+$'))" if is_name else "length(text)"
        return next((_number_of(pattern) for pattern, _ in self._measuring(self._held)), "")

    def _measuring(self, lines: list[str]) -> Iterator[tuple[str, Unit | None]]:
        """Patterns of the number that the question compares, and its unit, which is the same in all lines."""
        text = self._instruction.text
        labelled = [
            rf"\b{escaped(stem(word.lower()))}\w*[\"']?[=: ]+\"?{_NUMBER}\b"
            for word in self._instruction.words
            if word.isalpha()
            and len(word) >= _LEAST_CHARS
            and not is_of_asking(word)
            and stem(word.lower()) not in _UNIT_STEMS | {stem(self._noun)}
            # `lab 1` names a lab.
            and not re.search(rf"\b{word}\W+\d", text)
        ]
        compared = text if any(one.unit for one in self._comparisons) else without_comparisons(text)
        dimensions = {one.unit.is_of_bytes for one in self._comparisons if one.unit}
        usual = [
            one
            for is_of_bytes, (adjective, patterns) in enumerate(_MEASURES)
            if adjective.search(compared) or is_of_bytes in dimensions
            for one in patterns
        ]
        for pattern in (*labelled, *usual):
            matches = list(filter(None, map(re.compile(pattern).search, lines)))
            units = {_unit_behind(one) for one in matches}
            if len(matches) >= max(_LEAST_KEYS, _MEASURED_SHARE * len(lines)) and len(units) == 1:
                yield pattern, units.pop()


def _unit_behind(number: re.Match[str]) -> Unit | None:
    unit = _UNIT.match(number.string, number.end(1))
    return unit_of(unit[1]) if unit else None


def _number_of(pattern: str) -> str:
    """The expression of a number that a pattern finds."""
    return f"part(text, {text_of(pattern)}) + 0"


def _parts(pattern: str, lines: Iterable[str]) -> Iterator[str]:
    compiled = re.compile(pattern)
    return (match[min(1, compiled.groups)] for match in map(compiled.search, lines) if match)


def _matching(pattern: str, words: str) -> tuple[str, re.Pattern[str], str]:
    return f"matches(text, {text_of(pattern)})", re.compile(pattern), words


def _where(conditions: Iterable[Condition], *more: str) -> str:
    every = [*(one.sql for one in conditions), *more]
    return f"WHERE {' AND '.join(every)}" if every else ""


def select(columns: str, where: str = "", rest: str = "") -> str:
    """The query over the table `data`."""
    return " ".join(filter(None, ("SELECT", columns, "FROM data", where, rest)))
