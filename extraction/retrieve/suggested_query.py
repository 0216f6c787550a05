"""The SQL that answers a question for a count, sum, extreme or the latest, with the columns of the data."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from content.formats.json import Literal, parsed_head
from content.formats.numerals import numbers_in
from content.kind import Kind
from content.relation import Cells, Column, Row, columns_of, relation_of, spelled, text_of
from content.source import Source
from content.values import read_rows
from domain.errors import NotQueryable
from extraction.queries import MAX_DATA_BYTES
from extraction.retrieve.asking import (
    COUNT,
    DISTINCT,
    EXTENT,
    GROUP,
    LEAST,
    MEAN,
    MOST,
    SUM,
    is_of_asking,
    words_of,
)
from extraction.retrieve.comparisons import (
    UNIT,
    Comparison,
    Month,
    compared_in,
    comparisons,
    month_in,
    unit_of,
    without_comparisons,
)
from extraction.retrieve.index import is_pair
from extraction.retrieve.instruction import ParsedInstruction, synonyms
from extraction.retrieve.line_query import ALL_OF_LEVEL, LEVEL_STEMS, LineQuery, select
from extraction.retrieve.words import stem

_READ_BYTES = 1 << 20
_LEAST_ROWS = 3
_SAMPLED_ROWS = 5000
_MOST_COLUMNS = 200
_MOST_CELLS = 100_000
_MOST_GROUPS = 50
_SHOWN = 10
_LOOKED_AT = 300
_EXTREMES, _NEWEST = 5, 3
_NAMING_CHARS = 60
_NAMING_WORDS = 4
_VALUE_CHARS = 60
_CODE_CHARS = 3
_PLAIN = """
total count number data rows row records entries items lines events messages files paths requests responses
name names times occurrences results came come comes contain contains contained give given hold holds listed
made mention mentions mentioned named occur occurs occurred appear appears return returned returns say says
use used uses logged occurred happened
"""
_PLAIN_WORDS = frozenset(_PLAIN.split())
"""Words of the rows and verbs, which say little about which rows are meant."""

_ROWS_NOUN = words_of(
    r"\b(?:how many|number of|count of|which|what|most|fewest|wie viele|welche|cuántos|combien de|quanti)"
    r"\s+((?:[\w-]+\s+){0,2}?[\w-]+)(?=\s+(?:are|is|was|were|have|has|had|do|does|did|there|with|in|of|from|for"
    r"|per|by|that|which|came|come|contain\w*|mention\w*|occur\w*|appear\w*|to|at|on|pro|por|par|hat|haben"
    r"|makes?|made|takes?|took|sends?|sent|gets?|got|uses?|causes?|logs?|[a-z]{3,}ed)\b"
    r"|\W*\Z|[?,.;])"
)
"""What is counted or compared. Its noun is the last word, or the first as in `how many workers failed`."""

_WHICH_HAS_MOST = words_of(
    r"\b(?:which|what)\s+(\w+)\b.{0,60}?\b(?:most|fewest|least)\b(?!\s+(?:\w+ly|recent)\b)"
)
_OFTEN = words_of(r"\b(?:common|commonly|frequent|frequently|often)\b")
_EACH = words_of(r"\b(?:for each|for every|per|each|every)\b")
_UNASKABLE = words_of(
    r"\b(?:no|not|without|lack\w*|except|excluding|other than|outside|neither|never|\w+n't|kein\w*|nicht|ohne"
    r"|sin|sans|non)\b|不|没有"
    r"|\b(?:between|after|before|since|until|during|within|at)\b.{0,30}?\d"
    r"|\b(?:last|past|previous) (?:\d+ )?(?:seconds?|minutes?|hours?|days?|weeks?|months?|years?)\b"
    r"|\bmost recently\b"
    r"|\b(?:second|third|fourth|2nd|3rd|[4-9]th) (?:most|least|\w+est)\b"
    r"|\bor (?:more|less|fewer|above|below|over|older|younger|equal|\d|has|have|costs?)\b|[!=]="
    r"|\bmore [\w ]{1,40}? than\b|\bcompared\b|\d (?:thousand|million|billion)\b"
)
"""Conditions that no query here tells."""

_UNCOMPUTED = words_of(
    r"\b(?:percent(?:age)?|proportion|ratio|rate|median|percentile|p\d\d|difference|missing)\b|%"
)
"""What no query here computes. A column may have the name."""

_LEAST_MENTIONED = 4
_SAME_BEGINNING = 4

_MEASURES = (
    (
        "expensive cheap teuer billig günst caro cher barat 贵 便宜 price",
        "price cost amount fee total 价格 价",
    ),
    (
        "long short slow fast lange lang kurz schnell langsam 长 短 快 慢",
        "duration elapsed latency ms seconds time length",
    ),
    ("large big small groß klein grand petit 大 小", "size bytes length population area amount"),
    ("popular beliebt popular populaire", "stars votes likes downloads views count score rating"),
    ("old young alt jung", "age year"),
    ("heavy light schwer leicht", "weight mass"),
    ("high tall hoch", "height score value price"),
    ("best worst rated beste", "rating score stars"),
)
_ADJECTIVES = frozenset(word for adjectives, _ in _MEASURES for word in adjectives.split())
_MONEY = frozenset(map(stem, ("dollars", "euros", "pounds", "francs")))
_LISTED = words_of(r"\b(?:which|what|list|show|find|name|are there|welche|quels|quelles|cuáles)\b")
_SIZE_WORDS = """
size bytes length volume memory storage disk kb mb gb tb kib mib gib b
"""
_OF_SIZE = frozenset(_SIZE_WORDS.split())
_OF_NAMES = frozenset(map(stem, ("name", "id", "key", "code", "number", "login", "uuid")))
_AN_ID = words_of(
    r"(?:^|[_. ])(?:id|index|key|uuid|no|nr|number|zip|code|lat|lon|latitude|longitude|ean|phone)$|Id$"
)
_A_LABEL = words_of(r"(?:^|[_. ])(?:name|title|label|id|key|subject|path|url|file)$|[a-z](?:Name|Id)$")
_A_TIME = words_of(
    r"(?:^|[_. ])(?:date|time|timestamp|created|updated|modified|published|day|日期|时间|at)$"
    r"|(?:At|Date|Time)$|date|time"
)
_A_GROUP = words_of(r"(?:^|[_. ])(?:status|state|level|severity|type|kind|category|group|class)$")
_SORTABLE = re.compile(r"\d{4}-\d\d(?:-\d\d)?|\d{4}/\d\d|\d{10,13}\Z|\d\d:\d\d")
_ISO_DATE = re.compile(r"\d{4}-\d\d-")
_PARTS = re.compile(r"[^\W\d_]+|\d+")
_UNNAMED = re.compile(r"column_\d+|value")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class SuggestedQuery(NamedTuple):
    """A query that answers a question. `without` are the words of the question that it does not use, `names`
    the names, identifiers and numbers. `is_sure`: it uses all of the words."""

    sql: str
    without: tuple[str, ...]
    names: tuple[str, ...]
    is_sure: bool


def asks_for_rows(instruction: ParsedInstruction) -> bool:
    """True for a question for a count, sum, extreme, group or the latest."""
    return _Question.of(instruction) is not None


def may_need_query(instruction: ParsedInstruction) -> bool:
    """True also for a question for what no query here computes, such as a percentage."""
    return asks_for_rows(instruction) or _UNCOMPUTED.search(instruction.text) is not None


def suggested_query(text: Source, instruction: ParsedInstruction) -> SuggestedQuery | None:
    """A query that answers the question, None where none would, or the data is no table."""
    question = _Question.of(instruction)
    if question is None or len(text.stored) > MAX_DATA_BYTES:
        return None
    if _UNASKABLE.search(without_comparisons(instruction.text)):
        return None
    query = (
        _over_lines(text, instruction, question)
        if text.format.is_lines
        else _over_rows(text, instruction, question)
    )
    uncomputed = _UNCOMPUTED.search(instruction.text)
    if not query.sql or (uncomputed and uncomputed[0].lower() not in query.sql.lower()):
        return None
    if question.function == "avg" and "avg(" not in query.sql:
        return None
    exact = (one for one in instruction.exact if one in instruction.text)
    in_query = query.conditions.lower()
    names = {word for word in map(str.lower, (*instruction.names, *exact)) if word not in in_query}
    used, without = _usage(query, instruction, names)
    if without and not used:
        return None
    lowered = query.sql.lower().replace("\\", "")
    left_out = tuple(name for name in names if name not in lowered and name.replace(",", "") not in lowered)
    return SuggestedQuery(query.sql, without, left_out, not without)


class _Query(NamedTuple):
    """`conditions` are the comparisons and the month of the question, which the query has in another form.
    `uses` tells whether the query stands for another word of the question that is not in it, `may_omit`
    whether a noun that the question counts by may be its word for the rows."""

    sql: str
    conditions: str = ""
    uses: Callable[[str], bool] = lambda word: False
    may_omit: Callable[[str], bool] = lambda word: False


def _over_rows(text: Source, instruction: ParsedInstruction, question: "_Question") -> _Query:
    rows, is_whole = _sampled(text)
    if len(rows) < _LEAST_ROWS:
        return _Query("")
    table = _Table(rows, instruction, question, has_written_numbers=is_whole)
    conditions = f"{compared_in(instruction.text)} {table.month.words if table.month else ''}"
    return _Query(table.query(), conditions, table.uses, table.may_omit)


def _over_lines(text: Source, instruction: ParsedInstruction, question: "_Question") -> _Query:
    nouns = _ROWS_NOUN.findall(instruction.text)
    conditions = compared_in(instruction.text)
    lines = LineQuery(text, instruction, nouns[0].lower().split()[-1] if nouns else "")
    if not (lines.has_records and lines.can_compare):
        return _Query("")
    is_compared = question.descending is not None
    if question.function:
        is_grouped, descending = question.groups or is_compared, question.descending is not False
        aggregate = lines.aggregate(question.function, is_grouped=is_grouped, descending=descending)
        if aggregate or not question.count:
            return _Query(aggregate, conditions, lines.uses)
    if question.distinct:
        return _Query(lines.distinct(), conditions, lines.uses)
    # The slowest are not those of which there are most.
    is_grouped = question.groups or (is_compared and (question.count or not lines.compares_numbers))
    queries = (
        lines.extreme(descending=question.descending is True) if is_compared and not question.count else "",
        lines.groups(descending=question.descending is not False) if is_grouped else "",
        lines.count() if question.count and not is_compared and not _EACH.search(instruction.text) else "",
        lines.of_level() if question.levels and not is_compared else "",
    )
    return _Query(next(filter(None, queries), ""), conditions, lines.uses)


def _usage(query: _Query, instruction: ParsedInstruction, names: set[str]) -> tuple[int, tuple[str, ...]]:
    """How many words of the question the query uses, and those that it does not. The word for the rows, as in
    `how many orders`, words of asking and pairs of characters do not count."""
    sql = query.sql.replace(r"\b", " ")
    query_stems = set(map(stem, map(str.lower, _PARTS.findall(f"{_CAMEL.sub(' ', sql)} {sql}"))))
    nouns = (phrase.lower().split()[-1] for phrase in _ROWS_NOUN.findall(instruction.text))
    rows = {stem(noun) for noun in nouns if query.may_omit(noun)}
    compared = set(_PARTS.findall(query.conditions.lower()))
    used, without = 0, list[str]()
    for word in dict.fromkeys(word.lower() for word in instruction.words):
        is_idle = not instruction.needs(word) and word not in _ADJECTIVES
        is_part = is_pair(word) or (len(word) == 1 and not word.isascii())
        if is_of_asking(word) or is_part or word in _PLAIN_WORDS or is_idle:
            continue
        if word in compared or (query.uses(word) and word not in names) or _is_used(word, query_stems):
            used += 1
        elif stem(word) not in rows:
            without.append(word)
    return used, tuple(without)


def _is_used(word: str, query_stems: set[str]) -> bool:
    stems = {stem(word), *(() if stem(word) in LEVEL_STEMS else map(stem, synonyms([word])))}
    stems |= {name for adjectives, names in _MEASURES if word in adjectives.split() for name in names.split()}
    return bool(stems & query_stems) or any(_begin_alike(stem(word), one) for one in query_stems)


def _sampled(text: Source) -> tuple[list[Row], bool]:
    """The rows that the first MiB of the data holds, and whether its texts may be numbers in a form for
    people: in a table they are told already, and of data that goes on they are not known."""
    is_whole = len(text.stored) <= _READ_BYTES
    head = text.data[:_READ_BYTES]
    if not is_whole:
        value = parsed_head(head)[0] if text.format.kind is Kind.JSON else None
        if value is not None:
            return relation_of(value).rows[:_SAMPLED_ROWS], False
        last = b"), (" if isinstance(text.format, Literal) else b"\n"
        head = head[: head.rfind(last) + 1] + (b"]" if last != b"\n" else b"")
    try:
        value = read_rows(head, text.tool_name, text.path)[1]
    except (NotQueryable, MemoryError):
        return [], False
    if isinstance(value, Cells):
        names = value.types if is_whole else [name for name in value.types if name not in value.notes]
        rows = (dict(zip(value.types, row, strict=True)) for row in islice(value.read(), _SAMPLED_ROWS))
        return [{name: row[name] for name in names} for row in rows], False
    rows_read = relation_of(value).rows
    return rows_read[:_SAMPLED_ROWS], is_whole and len(rows_read) <= _SAMPLED_ROWS


@dataclass(frozen=True, slots=True)
class _Question:
    """What a question asks for."""

    count: bool
    function: str
    descending: bool | None
    latest: bool | None
    groups: bool
    distinct: bool
    levels: bool

    @classmethod
    def of(cls, instruction: ParsedInstruction) -> "_Question | None":
        text = without_comparisons(instruction.text)
        most, least = MOST.search(text) is not None, LEAST.search(text) is not None
        latest = instruction.about_newest if instruction.about_newest != instruction.about_oldest else None
        function = "avg" if MEAN.search(text) else "sum" if SUM.search(text) else ""
        if latest is not None and function == "sum":
            # The latest total is one of the totals.
            function = ""
        count = COUNT.search(text) is not None
        distinct = DISTINCT.search(text) is not None
        levels = ALL_OF_LEVEL.search(text) is not None
        compared = comparisons(instruction.text)
        if compared and not (most or least or function or count or distinct) and _LISTED.search(text):
            most = ">" in compared[0].sign
            least = not most
        if not (most or least or function or count or distinct or levels or latest is not None):
            return None
        descending = most if most != least else None
        groups = GROUP.search(text) is not None
        return cls(count, function, descending, latest, groups, distinct, levels)


class _Table:
    """The sampled rows, and which of their columns and values the question names."""

    def __init__(
        self,
        rows: list[Row],
        instruction: ParsedInstruction,
        question: _Question,
        *,
        has_written_numbers: bool,
    ) -> None:
        self._columns = columns_of(rows)[:_MOST_COLUMNS]
        self._rows = rows[: _MOST_CELLS // max(1, len(self._columns))]
        self._has_written_numbers = has_written_numbers and len(self._rows) == len(rows)
        self._text = instruction.text
        self._names = instruction.names
        self._limit = instruction.rows
        self._content_words = list(dict.fromkeys(word.lower() for word in instruction.words))
        parts = [part.lower() for part in _PARTS.findall(instruction.text) if len(part) > 2]
        self._words = list(dict.fromkeys((*self._content_words, *parts)))
        self._stems = {stem(word) for word in self._words}
        self._is_by_number = False
        self._question = self._with_columns(question)

    def _with_columns(self, question: _Question) -> _Question:
        """Without a function whose word is the name of a column, as in `the highest total`."""
        names = {
            one: bool((match := one.search(self._text)) and stem(match[0].lower()) in self._named_stems)
            for one in (SUM, MEAN, COUNT)
        }
        is_compared = question.descending is not None
        if (names[SUM] or names[MEAN]) and (is_compared or question.count):
            question = replace(question, function="")
        return replace(question, count=False) if names[COUNT] and is_compared else question

    def uses(self, word: str) -> bool:
        """True for any word where the numbers of columns without names are compared."""
        return self._is_unnamed and self._is_by_number

    def may_omit(self, noun: str) -> bool:
        """False for a noun that is in the data: it may be a condition."""
        bare = stem(noun)
        if bare in LEVEL_STEMS or any(bare in map(stem, _parts(column)) for column in self._flags):
            return False
        return not any(_begin_alike(bare, stem(word)) for word in self._words_of_groups)

    @cached_property
    def month(self) -> Month | None:
        """The month that the question names, if one column alone has dates, as ISO 8601 writes them. None for
        a name in the data, such as June."""
        month = month_in(self._text)
        if month is None or len(self._dates) != 1:
            return None
        if not all(_ISO_DATE.match(cell) for cell in self._cells(self._dates[0]) if cell):
            return None
        texts = (cell for column in self._columns for cell in self._cells(column) if isinstance(cell, str))
        is_name = any(month.name in text.lower().split() for text in texts)
        return None if is_name else month

    @cached_property
    def _dates(self) -> list[Column]:
        return [column for column in self._columns if self._is_date(column)]

    @cached_property
    def _flags(self) -> list[Column]:
        return [column for column in self._columns if column.types - {type(None)} == {bool}]

    @cached_property
    def _words_of_groups(self) -> set[str]:
        """The words in columns of few values and in arrays."""
        values = {value for column in self._groups for value in self._values[column.name]}
        texts = [value for value in values if isinstance(value, str) and len(value) <= _VALUE_CHARS]
        texts += [str(cell) for column in self._arrays for cell in islice(self._cells(column), _LOOKED_AT)]
        return {word.lower() for text in texts for word in _PARTS.findall(text)}

    @cached_property
    def _is_unnamed(self) -> bool:
        return all(_UNNAMED.fullmatch(column.name) for column in self._columns)

    def query(self) -> str:
        question = self._question
        if not self._can_compare:
            return ""
        where, named_values = self._filter()
        if where is None:
            return ""
        if question.latest is not None and not question.count and not question.function:
            return self._newest(where)
        if question.function and ((aggregate := self._aggregate(where)) or not question.count):
            return aggregate
        group = self._group(named_values)
        if ranked := self._ranked(group, where):
            return ranked
        if question.distinct:
            return select(f"count(DISTINCT {spelled(group.name)})", where) if group else ""
        if question.count and question.descending is None and not (question.groups and group):
            return "" if _EACH.search(self._text) else self._counted(group, where, named_values)
        if group and (question.groups or question.descending is not None or not where):
            order = "ASC" if question.descending is False else "DESC"
            things = self._things(where) if question.count and question.descending is None else None
            if things is None or things not in self._numbers:
                return self._grouped(group, "count(*)", where, order)
            total = f"sum({spelled(things.name)})"
            return select(total, where) if things == group else self._grouped(group, total, where, order)
        return ""

    def _ranked(self, group: Column | None, where: str) -> str:
        """The rows with the longest arrays, or with the largest or smallest numbers."""
        question, is_each = self._question, _EACH.search(self._text) is not None
        is_row = group is None or len(self._values[group.name]) == len(self._rows)
        is_ranked = question.descending is not None and not question.count
        is_of_most = is_ranked and question.descending and not _OFTEN.search(self._text)
        array = self._best(filter(self._is_named_by_word, self._arrays))
        if array and is_row and (is_of_most or is_each):
            return self._lengths(array, where)
        if not is_ranked:
            return ""
        order = "DESC" if question.descending else "ASC"
        if (owners := self._owners()) is not None:
            numbers = [one for one in self._numbers if one != owners and self._score(one)]
            if not numbers:
                return self._grouped(owners, "count(*)", where, order)
            number = self._best(filter(self._is_named_by_word, numbers))
            return self._grouped(owners, f"sum({spelled(number.name)})", where, order) if number else ""
        measure = self._measure(may_be_unnamed=self._is_unnamed)
        if measure and is_each:
            value = f"{'max' if question.descending else 'min'}({spelled(measure.name)})"
            return self._grouped(group, value, where, order) if group and group != measure else ""
        return self._extreme(measure, where) if measure else ""

    def _owners(self) -> Column | None:
        """The column of `branch` in `which branch has the most failures`, if rows share its values."""
        match = _WHICH_HAS_MOST.search(self._text)
        if match is None or any(word in _ADJECTIVES for word in self._content_words):
            return None
        noun = stem(match[1].lower())
        columns = (column for column in self._columns if _is_named(column, {noun}))
        return next((one for one in columns if len(self._values[one.name]) < len(self._rows)), None)

    def _counted(self, group: Column | None, where: str, named_values: set[str]) -> str:
        """The number of rows, or of the different values of the column that is counted."""
        if things := self._things(where):
            is_told = str in things.types and things.name not in named_values
            if things in self._numbers and not _AN_ID.search(things.name):
                return select(f"sum({spelled(things.name)})", where)
            return select(f"count(DISTINCT {spelled(things.name)})", where) if is_told else ""
        is_extent = len(self._content_words) < 2 or EXTENT.search(self._text) is not None
        if not where and (group or is_extent):
            # How much there is of the data is said beside the passages.
            return ""
        where = where or self._mentions()
        return select("count(*)", where) if where else self._by_usual_group()

    def _things(self, where: str) -> Column | None:
        """The column that names what is counted, if rows share its values: the rows are not counted then."""
        nouns = {stem(phrase.lower().split()[-1]) for phrase in _ROWS_NOUN.findall(self._text)[:1]}
        if nouns & set(map(stem, _PARTS.findall(where.lower()))):
            # `errors` are the rows whose level is error.
            return None
        columns = [one for one in self._columns if _is_named(one, nouns) and spelled(one.name) not in where]
        are_rows = any(len(self._values[column.name]) == len(self._rows) for column in columns)
        return None if are_rows or not columns else columns[0]

    def _is_named_by_word(self, column: Column) -> bool:
        return self._score(column) >= 1

    @property
    def _can_compare(self) -> bool:
        every = comparisons(self._text)
        # Which number is compared with which column is not known.
        is_clear = len(every) < 2 or sum(map(self._is_named_by_word, self._numbers)) < 2
        return is_clear and all(map(self._comparison, every))

    def _comparison(self, comparison: Comparison) -> str:
        """The condition as SQL, "" if no column has such numbers."""
        measure = self._measure(may_be_unnamed=True)
        if measure is None:
            return ""
        noun, parts = stem(comparison.noun), _parts(measure)
        if noun and noun not in _MONEY and noun not in map(stem, (*parts, *synonyms(parts))):
            return ""
        if comparison.unit and comparison.unit.is_of_bytes and not _OF_SIZE & set(parts):
            return ""
        unit = unit_of(parts[-1]) if parts and re.fullmatch(UNIT, parts[-1], re.IGNORECASE) else None
        limit = comparison.limit(unit)
        return "" if limit is None else f"{spelled(measure.name)} {comparison.sign} {limit:.12g}"

    def _mentions(self) -> str:
        """The condition that a text holds a word of the question: the word that the fewest rows hold."""
        candidates: list[tuple[int, str, str]] = []
        texts = {
            column.name: [cell.lower() for cell in self._cells(column) if isinstance(cell, str)]
            for column in self._columns
            if str in column.types
        }
        for word in self._content_words:
            bare = stem(word)
            if len(bare) < _LEAST_MENTIONED or word in _PLAIN_WORDS or bare in self._named_stems:
                continue
            counts = [(sum(bare in text for text in cells), name) for name, cells in texts.items()]
            count, name = max(counts, default=(0, ""))
            if 0 < count < len(self._rows):
                candidates.append((count, bare, name))
        if not candidates:
            return ""
        _, bare, name = min(candidates)
        return f"WHERE {spelled(name)} LIKE {text_of(f'%{bare}%')}"

    def _by_usual_group(self) -> str:
        usual = [column for column in self._groups if _A_GROUP.search(column.name)]
        return self._grouped(usual[0], "count(*)", "", "DESC") if usual else select("count(*)")

    def _lengths(self, array: Column, where: str) -> str:
        length = f"json_array_length({spelled(array.name)})"
        columns = [*(spelled(column.name) for column in self._labels), length]
        return select(", ".join(columns), where, f"ORDER BY {length} DESC LIMIT {self._limit or _SHOWN}")

    def _grouped(self, group: Column, value: str, where: str, order: str) -> str:
        if len(self._values[group.name]) == len(self._rows):
            return ""
        name = spelled(group.name)
        return select(
            f"{name}, {value}", where, f"GROUP BY {name} ORDER BY 2 {order} LIMIT {self._limit or _SHOWN}"
        )

    def _aggregate(self, where: str) -> str:
        measure = self._measure(may_be_unnamed=True)
        if measure is None:
            return ""
        value = f"round({self._question.function}({spelled(measure.name)}), 2)"
        is_ranked = self._question.descending is not None
        group = self._group(set()) if self._question.groups or is_ranked else None
        if is_ranked and self._limit and not self._question.groups:
            # The total of the five largest is not computed here.
            return ""
        if group and group != measure:
            return self._grouped(group, value, where, "ASC" if self._question.descending is False else "DESC")
        return select(value, where)

    def _extreme(self, measure: Column, where: str) -> str:
        self._is_by_number = True
        names = [column.name for column in (*self._labels, measure)]
        columns = ", ".join(map(spelled, dict.fromkeys(names)))
        order = "DESC" if self._question.descending else "ASC"
        name = spelled(measure.name)
        most = self._limit or (_SHOWN if comparisons(self._text) else _EXTREMES)
        if order == "ASC":
            where = f"{where} AND {name} IS NOT NULL" if where else f"WHERE {name} IS NOT NULL"
        return select(columns, where, f"ORDER BY {name} {order} LIMIT {most}")

    def _newest(self, where: str) -> str:
        times = [
            column for column in self._columns if _A_TIME.search(column.name) and self._is_sortable(column)
        ]
        times = times or self._dates
        number = self._best(self._numbers)
        time = max(times, key=self._score) if times else self._measure()
        if time is None:
            return ""
        columns = (*self._labels, *([number] if number else []), time)
        names = ", ".join(map(spelled, dict.fromkeys(column.name for column in columns)))
        order = "DESC" if self._question.latest else "ASC"
        return select(names, where, f"ORDER BY {spelled(time.name)} {order} LIMIT {self._limit or _NEWEST}")

    # What the question names.

    def _score(self, column: Column) -> float:
        """How many of the words of the column's name the question has; its synonyms count half."""
        parts = _parts(column)
        if not parts:
            return 0
        stems = [stem(part) for part in parts]
        same = float(sum(one in self._stems for one in stems))
        # A language without spaces between its words.
        same += sum(not part.isascii() and part in self._text for part in parts) if not same else 0
        if same:
            return same + same / len(parts)
        if any(_begin_alike(one, word) for one in stems for word in self._stems):
            return 0.6
        return 0.4 if set(map(stem, synonyms(parts))) & self._stems else 0

    def _best(self, columns: Iterable[Column]) -> Column | None:
        scored = [(self._score(column), column) for column in columns]
        best = max(scored, key=lambda one: one[0], default=(0.0, None))
        return best[1] if best[0] else None

    @cached_property
    def _named_stems(self) -> set[str]:
        return {stem(part) for column in self._columns for part in _parts(column)}

    @cached_property
    def _arrays(self) -> list[Column]:
        return [column for column in self._columns if column.types - {type(None)} == {list}]

    @cached_property
    def _numbers(self) -> list[Column]:
        return [column for column in self._columns if self._is_number(column)]

    @cached_property
    def _groups(self) -> list[Column]:
        """Columns with few values, each of them often."""
        return [
            column
            for column in self._columns
            if 0 < (number := len(self._values[column.name])) <= max(_MOST_GROUPS, len(self._rows) // 2)
            and number < sum(self._values[column.name].values())
        ]

    @cached_property
    def _values(self) -> dict[str, Counter[object]]:
        return {
            column.name: Counter(cell for cell in self._cells(column) if isinstance(cell, str | int | float))
            for column in self._columns
        }

    @cached_property
    def _labels(self) -> list[Column]:
        """The columns that say which row it is."""
        best = self._best(column for column in self._columns if str in column.types)
        labels = [column for column in self._columns if _A_LABEL.search(column.name)][:2]
        if not labels:
            labels = list(islice(filter(self._is_serial, self._columns), 1))
        if all(_AN_ID.search(column.name) for column in labels):
            labels += [column for column in self._columns if str in column.types and column not in labels][:1]
        return [*labels, *([best] if best and best not in labels else [])]

    def _cells(self, column: Column) -> Iterator[Any]:
        return map(column.read, self._rows)

    def _is_number(self, column: Column) -> bool:
        types = column.types - {type(None)}
        if types and types <= {int, float}:
            return True
        if types != {str}:
            return False
        numbers = numbers_in(self._cells(column))
        return numbers is not None and (self._has_written_numbers or not numbers.note)

    def _is_serial(self, column: Column) -> bool:
        cells = list(self._cells(column))
        return all(isinstance(cell, int) for cell in cells) and cells == list(
            range(cells[0], cells[0] + len(cells))
        )

    def _is_sortable(self, column: Column) -> bool:
        cells = [str(cell) for cell in self._cells(column) if cell not in (None, "")][:50]
        return bool(cells) and all(map(_SORTABLE.match, cells))

    def _is_date(self, column: Column) -> bool:
        return str in column.types and not self._is_number(column) and self._is_sortable(column)

    def _measure(self, *, may_be_unnamed: bool = False) -> Column | None:
        """The column of numbers that the question names, or whose numbers its adjective compares; the only
        one, if it `may_be_unnamed`."""
        numbers = [column for column in self._numbers if not _AN_ID.search(column.name)]
        best = self._best(numbers)
        alike = [one for one in numbers if best and self._score(one) == self._score(best)]
        if len(alike) > 1:
            # Two columns that the question names alike, unless one only numbers the rows.
            alike = [one for one in alike if not self._is_serial(one)]
            return alike[0] if len(alike) == 1 else None
        if best and self._is_named_by_word(best):
            return best
        text = self._text.lower()
        for adjectives, names in _MEASURES:
            if any(re.search(rf"\b{one}" if one.isascii() else one, text) for one in adjectives.split()):
                for name in names.split():
                    for column in numbers:
                        if name in re.split(r"[^a-z]+", _CAMEL.sub(" ", column.name).lower()) or (
                            not name.isascii() and name in column.name
                        ):
                            return column
        return best or (numbers[0] if len(numbers) == 1 and may_be_unnamed else None)

    def _group(self, without: set[str]) -> Column | None:
        """The column by whose values the question groups: the one that it names last after "by"."""
        if match := GROUP.search(self._text):
            rest = self._text[match.end() :]
            after = [
                column for column in self._columns if self._values[column.name] and _begins_with(rest, column)
            ]
            if after:
                return max(after, key=self._score)
        is_compared = self._question.descending is not None
        is_ranked = is_compared or self._question.distinct
        return self._best(
            column
            for column in (self._columns if is_ranked else self._groups)
            if column.name not in without
            and self._values[column.name]
            and (column not in self._numbers or not (self._question.function or is_compared))
            and float not in column.types
            and (is_ranked or not (_AN_ID.search(column.name) or _A_LABEL.search(column.name)))
        )

    def _filter(self) -> tuple[str | None, set[str]]:
        """The condition of the values that the question names, and their columns; None if one word is in
        values of two columns."""
        conditions = list(self._comparisons())
        columns: set[str] = set()
        stems = set[str]()
        for column in self._groups:
            if column in self._numbers:
                continue
            texts = [value for value in self._values[column.name] if isinstance(value, str)]
            values = [value for value in texts if self._is_named(value)]
            if values and len(values) < len(texts):
                # Of values that hold others, such as "not found" and "found", the longest is meant.
                values = [one for one in values if not any(one != other and one in other for other in values)]
                of_values = {stem(part.lower()) for value in values for part in _PARTS.findall(value)}
                if of_values & stems:
                    return None, columns
                stems |= of_values
                listed = ", ".join(map(text_of, values))
                name = spelled(column.name)
                conditions.append(f"{name} IN ({listed})" if len(values) > 1 else f"{name} = {listed}")
                columns.add(column.name)
        conditions += self._of_names(columns)
        return (f"WHERE {' AND '.join(conditions)}" if conditions else ""), columns

    def _of_names(self, columns: set[str]) -> Iterator[str]:
        """For each name in the question that is the whole of a cell in another column."""
        for name in self._names:
            for column in self._columns:
                cells = (cell for cell in self._cells(column) if isinstance(cell, str))
                if column.name not in columns and any(cell.lower() == name.lower() for cell in cells):
                    yield f"{spelled(column.name)} = {text_of(name)}"
                    break

    def _comparisons(self) -> Iterator[str]:
        for one in comparisons(self._text):
            self._is_by_number = True
            yield self._comparison(one)
        if self.month:
            yield f"{spelled(self._dates[0].name)} LIKE {text_of(self.month.pattern)}"
        text = without_comparisons(self._text)
        for column in self._numbers:
            names = "|".join(map(re.escape, _parts(column)))
            match = re.search(rf"\b(?:{names})s?\W+(?:code\W+|is\W+|of\W+)?(\d+)\b", text, re.IGNORECASE)
            if names and match and int(match[1]) in self._values[column.name]:
                yield f"{spelled(column.name)} = {match[1]}"

    def _is_named(self, value: str) -> bool:
        parts = [part.lower() for part in _PARTS.findall(value)]
        if (
            not parts
            or len(value) > _VALUE_CHARS
            or (len(parts) == 1 and len(parts[0]) < 2 and parts[0].isascii())
        ):
            return False
        if not value.isascii() and value in self._text:
            return True
        if value.isupper() and len(value) <= _CODE_CHARS:
            # IN is no `in`.
            return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", self._text) is not None
        if len(parts) == 1 and not value.isupper():
            return parts[0] in self._words or bool({parts[0], stem(parts[0])} & self._stems)
        pattern = r"\W*".join(map(re.escape, parts))
        return re.search(rf"(?<!\w){pattern}(?:e?s|ings?)?(?!\w)", self._text.lower()) is not None


def _begin_alike(one: str, other: str) -> bool:
    """True for forms of one word, such as `close` and `clos`."""
    short, long = sorted((one, other), key=len)
    return len(short) >= _SAME_BEGINNING and long.startswith(short) and len(long) - len(short) <= 2


def _parts(column: Column) -> list[str]:
    """The words of a column's name, in lower case."""
    return [part.lower() for part in _PARTS.findall(_CAMEL.sub(" ", column.name))]


def _is_named(column: Column, nouns: Iterable[str]) -> bool:
    """True if the column's name is one of the nouns, but for words such as `id`."""
    stems = set(map(stem, _parts(column))) - _OF_NAMES
    return len(stems) == 1 and any(_begin_alike(one, noun) for one in stems for noun in nouns)


def _begins_with(text: str, column: Column) -> bool:
    """True if the first words of the text name the column."""
    text = text[:_NAMING_CHARS].lower()
    stems = {stem(word) for word in _PARTS.findall(text)[:_NAMING_WORDS]}
    return any(
        stem(part) in stems or (not part.isascii() and text.startswith(part)) for part in _parts(column)
    )
