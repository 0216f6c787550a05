"""Logs: their times, levels and status codes; an event stays together with its trace."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import dropwhile, islice, repeat

from content.formats.cuts import UNINDENTED, at_ends
from content.formats.format import Description, Format, Part, Sample, SketchForm
from content.kind import Kind
from content.source import Source
from content.tables import Readers

_TIMES = (
    (rb"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d", "%Y %m %d %H %M %S"),
    (rb"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d", "%Y %m %d %H %M"),
    (rb"\d\d/[A-Z][a-z]{2}/\d{4}[: ]\d\d:\d\d:\d\d", "%d %b %Y %H %M %S"),
    (rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}", "%b %d %H %M %S %Y"),
    (rb"[A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d", "%b %d %H %M %S"),
    (rb"\d\d-\d\d \d\d:\d\d:\d\d", "%m %d %H %M %S"),
    (rb"\d\d:\d\d:\d\d", "%H %M %S"),
)
"""The times of logs, and what `strptime` takes their parts for."""

_PART = re.compile(r"\d+|[A-Z][a-z]{2}")
_TIME = re.compile(b"|".join(b"(%b)" % pattern for pattern, _ in _TIMES))
_FORMS = [(re.compile(pattern), form) for pattern, form in _TIMES]
# A part of every time, how much of one may stand before and behind it, and how many are tried: a pattern that
# begins with a literal is looked for ten times as fast.
_CLOCK, _BEFORE_CLOCK, _AFTER_CLOCK, _CLOCKS = re.compile(rb":\d\d"), 14, 8, 60
_END = 4096

_WORDS = rb"TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL"
_ACCESS_LINE = rb"\S++ \S++ \S++ \[\d\d/[A-Z][a-z]{2}/\d{4}[: ]"
# No pattern here begins with an optional group: one such costs more than all of these.
STAMP = re.compile(
    rb"[\[(]?(?:\d{4}[-/]\d\d[-/]\d\d[T ]\d|\d\d:\d\d:\d\d|\d\d-\d\d \d\d:\d\d:\d\d"
    rb"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d"
    rb"|<\d{1,3}>|[IWEF]\d{4} \d\d:\d\d|(?:time|ts|level)=\S|\[?(?:%b)\b)"
    rb"|%b" % (_WORDS, _ACCESS_LINE)
)
# Lines without a time, such as a stack trace, belong to the event above them.
EVENT = re.compile(
    rb"\n(?=(?!\s)[^\n]{0,60}?(?:\d\d:\d\d|\d{4}[-/]\d\d[-/]\d\d|\b\d{9,})|[^\w\s]?(?:%b)\b)" % _WORDS
)

# A level: a word, a field, in brackets, or the single letter of Android. Each alternative begins with a
# literal, so that the search skips what begins none of them, and none with a space, which is frequent.
_TAG = rb"(?<= .)(?= [\w.$-]{1,60} *:)"
_IN_BRACKETS = rb"\[(trace|debug|info|notice|warn|warning|error|crit|alert|emerg)\]"
_BRACKETED = re.compile(_IN_BRACKETS)
_LEVEL = re.compile(
    rb"T(?<!\wT)RACE\b|D(?:(?<!\wD)EBUG\b|%b)|I(?:(?<!\wI)NFO\b|%b)|N(?<!\wN)OTICE\b"
    rb"|W(?:(?<!\wW)ARN(?:ING)?\b|%b)|E(?:(?<!\wE)RROR\b|%b)|F(?:(?<!\wF)ATAL\b|%b)|V%b"
    rb"|C(?<!\wC)RITICAL\b|level=\"?(\w{1,12})|%b" % (*(_TAG,) * 6, _IN_BRACKETS)
)
_LEVEL_STARTS = 80
_LEVEL_ENDS = 120
_SAMPLED = 2 << 10
_COUNTED = 16 << 10
_LETTERS = {
    b"V": "VERBOSE", b"D": "DEBUG", b"I": "INFO", b"W": "WARN", b"E": "ERROR", b"F": "FATAL"
}  # fmt: skip
_BY_WEIGHT = [
    "EMERG", "ALERT", "FATAL", "CRITICAL", "CRIT", "ERROR", "WARNING", "WARN", "NOTICE", "INFO", "DEBUG",
    "VERBOSE", "TRACE",
]  # fmt: skip
_NO_CAPITALS = bytes(byte for byte in range(256) if not chr(byte).isupper() or byte > 127).replace(b"\n", b"")
# Words of levels that contain no other such word.
_CAPITALS = (b"FATAL", b"CRITICAL", b"ERROR", b"WARN", b"NOTICE", b"INFO", b"DEBUG", b"TRACE")
# The second line of an access log: it has statuses, and no levels.
_ACCESS = re.compile(b"\n" + _ACCESS_LINE)
_STATUS = re.compile(rb'HTTP/[\d.]{1,3}" (\d{3}) ')
_MOST = 12


def levels(source: Source) -> list[tuple[str, int]]:
    """The levels, most severe first, with the number of lines of each in a whole source; 0 where lines are
    not counted: in a part, and in a longer log whose levels are not words in capitals."""
    data, sample = source.data, _levels_at_ends(source)
    if not sample:
        return []
    if source.is_whole and (counts := _counted(source, sample)):
        return _by_weight(counts)
    if source.is_whole and len(data) <= _COUNTED:
        return _by_weight(levels_of_lines(data))
    return [(name, 0) for name, _ in _by_weight(sample)]


def _levels_at_ends(source: Source) -> Counter[str]:
    """Counts the levels of the first and the last lines; none for an access log."""
    if _ACCESS.search(source.data, 0, _SAMPLED):
        return Counter()
    return levels_of_lines(source.data[:_SAMPLED] + b"\n" + source.tail[-_SAMPLED:])


def _counted(source: Source, sample: Counter[str]) -> Counter[str] | None:
    """Counts the levels of a log whose levels are words in capitals; None if it has other levels, or if
    words of a message look like a level."""
    data = source.data
    both_ends = data[:_SAMPLED] + data[-_SAMPLED:]
    if any(name != "WARNING" and name.encode() not in _CAPITALS for name in sample):
        return None
    if not all(name.encode() in both_ends for name in sample):
        return None
    capitals = data.translate(None, _NO_CAPITALS)
    counts = Counter({word.decode(): count for word in _CAPITALS if (count := capitals.count(word))})
    if "WARNING" in sample and "WARN" not in sample:
        counts["WARNING"] = counts.pop("WARN", 0)
    return counts if sum(counts.values()) <= source.lines else None


def levels_of_lines(data: bytes) -> Counter[str]:
    """Counts the lines by their first level."""
    if not _may_have_levels(data):
        return Counter()
    found = map(_LEVEL.search, data.split(b"\n"), repeat(0), repeat(_LEVEL_ENDS))
    names = Counter(
        [match[match.lastindex or 0] for match in found if match and match.start() <= _LEVEL_STARTS]
    )
    counts = Counter[str]()
    for name, count in names.items():
        counts[_in_capitals(name)] += count
    return counts


def _may_have_levels(data: bytes) -> bool:
    """Six times as fast as searching all lines. A log whose levels are single letters or fields has one in
    its first lines."""
    if _LEVEL.search(data, 0, _SAMPLED) or (b"[" in data and _BRACKETED.search(data)):
        return True
    capitals = data.translate(None, _NO_CAPITALS)
    return any(word in capitals for word in _CAPITALS)


def level_of(line: bytes) -> str | None:
    """The level of a line, in capitals."""
    match = _LEVEL.search(line, 0, _LEVEL_ENDS)
    if match is None or match.start() > _LEVEL_STARTS:
        return None
    return _in_capitals(match[match.lastindex or 0])


def _in_capitals(name: bytes) -> str:
    return _LETTERS.get(name) or name.decode("ascii", "replace").upper()


_WEIGHT = {name: place for place, name in enumerate(_BY_WEIGHT)}
GRAVEST = _BY_WEIGHT[: _BY_WEIGHT.index("WARN") + 1]


def _by_weight(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda one: (_WEIGHT.get(one[0], len(_WEIGHT)), -one[1]))[:_MOST]


def _first_time(data: bytes) -> re.Match[bytes] | None:
    clocks = islice(_CLOCK.finditer(data), _CLOCKS)
    near = ((max(0, clock.start() - _BEFORE_CLOCK), clock.end() + _AFTER_CLOCK) for clock in clocks)
    return next(filter(None, (_TIME.search(data, start, end) for start, end in near)), None)


def ends(source: Source) -> tuple[str, str, str] | None:
    """The first time in the log, the time of the same form in its last lines, and their form for
    `strptime`."""
    first = _first_time(source.data[:_END])
    if first is None or first.lastindex is None:
        return None
    same, form = _FORMS[first.lastindex - 1]
    clocked = filter(_CLOCK.search, reversed(source.tail[-_END:].split(b"\n")))
    last = next(filter(None, map(same.search, clocked)), None)
    return None if last is None else (first[0].decode(), last[0].decode(), form)


def _between(first: str, last: str, form: str) -> timedelta | None:
    """None if a time is not valid. Negative for times without a date that start again at midnight."""
    try:
        return _moment(last, form) - _moment(first, form)
    except ValueError:
        return None


def _moment(text: str, form: str) -> datetime:
    """Raises ValueError."""
    parts = " ".join(_PART.findall(text))
    if "%Y" in form:
        return datetime.strptime(parts, form)
    # A leap year, so that 29 February is a date.
    return datetime.strptime(f"2000 {parts}", f"%Y {form}")


def span(source: Source) -> str:
    """For example `from 10:00:01 to 10:04:59 (0:04:58)`; "" without times."""
    times = ends(source)
    if times is None:
        return ""
    first, last, form = times
    between = _between(first, last, form)
    return f"from {first} to {last}" + (f" ({between})" if between and between > timedelta(0) else "")


_NAME = re.compile(rb'\s*"?[A-Za-z_][\w .()/%-]{0,60}"?\s*')


def _is_table(lines: list[bytes]) -> bool:
    """True if the lines are rows of times below a header, which may have comments above it: as many cells in
    each, and names in the first."""
    header, *rows = [*dropwhile(lambda line: line.startswith(b"#"), lines)] or lines
    mark = max((b",", b"\t", b";", b"|"), key=header.count)
    names = header.split(mark)
    # A sentence with one comma may stand above a log whose times have one.
    is_named = len(names) > 2 or (len(names) == 2 and b" " not in header)
    return (
        is_named
        and not STAMP.match(header)
        and all(map(_NAME.fullmatch, names))
        and all(row.count(mark) == len(names) - 1 for row in rows)
    )


class LogFormat(Format):
    kind = Kind.LOG
    noun = "a log"
    sketch_form = SketchForm.LOG
    has_row_in_sketch = False
    finds = (at_ends(EVENT), at_ends(UNINDENTED))
    passage_finds = finds[:1]

    def matches(self, sample: Sample) -> bool:
        return sample.reaches(STAMP, 0.5) and not _is_table(sample.lines)

    def shape(self, source: Source) -> Description:
        facts = [f"{count:,} {name}" if count else name for name, count in levels(source)]
        group = "level" if facts else ""
        if facts and not facts[0][0].isdigit():
            facts[0] = f"levels at its beginning and end: {facts[0]}"
        facts += filter(None, [span(source)])
        return Description("log", facts=facts, group=group)

    def outline(self, source: Source) -> Iterator[str]:
        statuses = Counter(status.decode() for status in _STATUS.findall(source.data)).most_common(_MOST)
        for name, counts in (("levels", levels(source)), ("status", statuses)):
            if counts:
                yield f"{name}: " + ", ".join(f"{what} {count}" if count else what for what, count in counts)
        if times := span(source):
            yield times

    def of_lines(self, source: Source) -> Readers:
        read: dict[str, Callable[[bytes], str | None]] = {}
        first = _first_time(source.data[:_END])
        if first is not None and first.lastindex is not None:
            same = _FORMS[first.lastindex - 1][0]

            def time(line: bytes) -> str | None:
                match = same.search(line, 0, _LEVEL_ENDS)
                return match[0].decode() if match else None

            read["time"] = time
        return read | {"level": level_of} if _levels_at_ends(source) else read

    def tables_part(self, source: Part) -> Part:
        return source
