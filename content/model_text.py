"""Lines, matches and values as a model reads them: numbered text within a cap of bytes, and how to go on."""

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from content.grep import Match, Surroundings
from content.lines import LinePage
from content.text import clip, count_of, cut_head

FOOTER_BYTES = 400
"""The bytes reserved for the last line, which gives the total and how to continue."""

LINE_ROOM = FOOTER_BYTES + 64
"""The bytes of a text of lines in addition to one line: the last line, the number of the line and its mark of
a cut."""

LONG_CHARS = 400
"""A longer line is shown as its matches with `_SIDE` characters on each side."""

_MOST_AGAIN = 5
_PLACE_BYTES = 200
"""The bytes reserved for the number of matches and how to continue."""

_SIDE = 120
_MOST_SPANS = 3
_NO_CONTROLS = dict.fromkeys([*range(9), *range(10, 32), *range(127, 160)])
_CELL_CHARS, _NAME_CHARS = 200, 60
_MOST_COLUMNS = 40
_INSIDE_WORD = 0.5
_SHORT_WORD = re.compile(r"[A-Za-z0-9]{1,5}")  # RE2 has no word boundary for letters outside ASCII.


class Fitted(NamedTuple):
    """`fitting` of the items fit. `next` is the first that did not, in the numbering of the items."""

    text: str
    fitting: int
    next: int | None


def lines_text(page: LinePage, first: int, max_bytes: int, onward: Callable[[int], str]) -> str:
    """Lines as `12: text`, then where the result goes on. `first` is the first line that was asked for;
    `onward` says how to ask for those from a line on. A line of the page has at most `max_bytes - LINE_ROOM`
    bytes."""
    total = page.total_lines
    if not page.lines:
        back = f" Ask for {onward(max(1, total - 39))}." if total else ""
        return f"[The result has {count_of(total, 'line')}: line {first:,} is past its end.{back}]"
    numbered = [
        (line.number, f"{line.number}: {line.text}{' [… cut: the line is longer]' if line.truncated else ''}")
        for line in page.lines
    ]
    fitted = fitting(numbered, room_of(max_bytes))
    last, following = page.lines[fitted.fitting - 1].number, fitted.next or page.next_offset
    go_on = f" Go on with {onward(following)}." if following else ""
    return f"{fitted.text}\n[Lines {page.lines[0].number:,} to {last:,} of {total:,}.{go_on}]"


SpanFinder = Callable[[str], list[tuple[int, int]]]


class Matches(NamedTuple):
    """Matches as a search found them. `first` is the number of the first one shown, counted from 1. `base` is
    the `offset` of the first match of all, as the caller counts: 0 or 1, None if it has no `offset`; then
    `onward` says how to ask for the lines behind one. `spans` finds the matches in a text, `around` is what
    they are shown with. `again` are the lines that read as the match on a line does; `headings` stand above
    matches, in order. `ends` are the last lines of the blocks that matching lines open."""

    lines: Sequence[Match]
    total: int
    first: int = 1
    base: int | None = 1
    spans: SpanFinder = lambda text: []
    around: Mapping[int, Surroundings] = {}
    onward: Callable[[int], str] = lambda line: "a narrower pattern"
    again: Mapping[int, Sequence[int]] = {}
    headings: Sequence[tuple[int, str]] = ()
    ends: Mapping[int, int] = {}

    @property
    def is_record(self) -> bool:
        """True if the first match is shown as a record."""
        around = self.around.get(self.lines[0].line) if self.lines else None
        return around is not None and bool(around.text)


def distinct(matches: Matches) -> Matches:
    """Merges equal matches, so that each line is shown once. Needs all matches, without context."""
    firsts: dict[str, Match] = {}
    again: dict[int, list[int]] = {}
    for match in matches.lines:
        first = firsts.setdefault(match.text.strip(), match)
        if first is not match:
            again.setdefault(first.line, []).append(match.line)
    return matches._replace(lines=list(firsts.values()), again=again) if again else matches


def grep_text(matches: Matches, max_bytes: int, notes: Iterable[str] = ()) -> str:
    """Matches as `12: text`, lines around them as `11- text`, `--` between groups; then how many matches
    there are, how to go on, and the `notes`."""
    if not matches.lines:
        offset = matches.first - 1 + (1 if matches.base is None else matches.base)
        lower = " Give a lower one, or none." if matches.total else ""
        return f"[{count_of(matches.total, 'matching line')}: offset {offset:,} is past the last.{lower}]"
    fitted = fitting_matches(matches, _room_of_matches(max_bytes))
    sentences = [_place(matches, fitted), *notes]
    return cut_head(f"{fitted.text}\n[{' '.join(sentences)}]".encode(), max_bytes).decode()


def _room_of_matches(max_bytes: int) -> int:
    return max(max_bytes - _PLACE_BYTES, max_bytes // 2)


def windows_text(texts: Sequence[str], count: str, max_bytes: int) -> str:
    """Matches in long lines as they are stored, each with the text around it; `count` says how many."""
    fitted = fitting([(number, f"…{text}…") for number, text in enumerate(texts, 1)], room_of(max_bytes))
    matches = "match" if count == "1" else "matches"
    first = " The first are shown." if fitted.fitting < len(texts) else ""
    footer = (
        f"[{count} {matches} in the text as it is stored; none where a search breaks its long lines.{first}]"
    )
    return cut_head(f"{fitted.text}\n{footer}".encode(), max_bytes).decode()


def matches_that_fit(matches: Matches, max_bytes: int) -> int:
    """The number of matches that a text of `max_bytes` shows."""
    return fitting_matches(matches, _room_of_matches(max_bytes)).fitting


def fitting_matches(matches: Matches, max_bytes: int) -> Fitted:
    """Matches and their context as in `grep_text`, as many as fit `max_bytes`."""
    return fitting(_groups(matches, max_bytes), max_bytes)


def room_of(max_bytes: int) -> int:
    """The part of `max_bytes` that the last line leaves, at least half of it."""
    return max(max_bytes - FOOTER_BYTES, max_bytes // 2)


def _place(matches: Matches, fitted: Fitted) -> str:
    total, count = matches.total, len(matches.lines)
    if fitted.fitting == count and matches.again:
        return f"All {total:,} matching lines, {count:,} of them different."
    if fitted.fitting == total:
        return "The only matching line." if total == 1 else f"All {total:,} matching lines."
    following = matches.first + fitted.fitting
    if matches.again:
        shown = f"{fitted.fitting:,} of {count:,} different ones among {total:,} matching lines."
        return f"{shown} {_onward(matches, fitted)}"
    place = f"Matching lines {matches.first:,} to {following - 1:,} of {total:,}."
    return place if following > total else f"{place} {_onward(matches, fitted)}"


def _onward(matches: Matches, fitted: Fitted) -> str:
    if matches.base is None:
        return f"Go on with {matches.onward(matches.lines[fitted.fitting - 1].line)}."
    return f"Go on with offset = {matches.first + fitted.fitting - 1 + matches.base}."


def _groups(matches: Matches, room: int) -> Iterator[tuple[int, str]]:
    """For each match its number here and its lines, without those that a match before has shown. The numbers
    of the lines tell where lines are left out; with context `--` does too. Context that does not fit `room`
    bytes with its match is left out, the farthest first."""
    by_line = {match.line: match for match in matches.lines}
    last = shown = 0
    above: tuple[object, ...] = ((), "")
    for index, whole in enumerate(matches.lines):
        match = _narrowed(whole, room)
        around = matches.around.get(match.line)
        lines = []
        start = match.line - len(match.before)
        heading = _heading(matches, match.line)
        if heading is not None and shown < heading[0] < start and heading[0] > last:
            shown = heading[0]
            lines.append(f"{shown}- {_head(heading[1])}")
        if around and above != (around.header, around.columns):
            above = around.header, around.columns
            lines += _header(around, last, start)
        if around and around.text:
            start, end = around.first, around.last
            if match.line > last:
                lines.append(_numbered(match.line, ":", around.text, matches))
        else:
            start, end = match.line - len(match.before), match.line + len(match.after)
            lines += _lines_of(match, last, by_line, matches, room)
        has_context = end > start and not (around and around.text)
        if lines and last and start > last + 1 and has_context:
            lines.insert(0, "--")
        last = max(last, end)
        yield index, "\n".join(lines)


def _lines_of(
    match: Match, last: int, by_line: Mapping[int, Match], matches: Matches, room: int
) -> list[str]:
    """The lines after `last` of a match and its context; of blank lines in a row one."""
    lines: list[str] = []
    was_blank = True
    start = match.line - len(match.before)
    for number, text in enumerate([*match.before, match.text, *match.after], start):
        own = by_line.get(number)
        is_blank = not own and not text.strip()
        if number > last and not (is_blank and was_blank):
            if own:
                beside = _repeated(number, matches) + _to_end(_narrowed(own, room), matches)
                lines.append(_numbered(number, ":", _excerpt(own, matches.spans) + beside, matches))
            else:
                lines.append(_numbered(number, "-", _head(text), matches))
        was_blank = is_blank
    if was_blank and len(lines) > 1 and match.after:
        lines.pop()
    return lines


def _heading(matches: Matches, line: int) -> tuple[int, str] | None:
    """Returns the nearest heading above the line."""
    place = bisect_left(matches.headings, (line, ""))
    return matches.headings[place - 1] if place else None


def _to_end(match: Match, matches: Matches) -> str:
    """Returns where the block of the line ends, if that line is not shown."""
    end = matches.ends.get(match.line, 0)
    return f"  [to line {end}]" if end > match.line + len(match.after) else ""


def _repeated(number: int, matches: Matches) -> str:
    """Returns the other lines with the same wording."""
    others = matches.again.get(number, ())
    if not others:
        return ""
    some = ", ".join(map(str, others[:_MOST_AGAIN]))
    return f"  [{len(others) + 1} times: also {some}{', …' if len(others) > _MOST_AGAIN else ''}]"


def _numbered(number: int, mark: str, text: str, matches: Matches) -> str:
    return f"{number}{mark} {text.translate(_NO_CONTROLS)}"


def _header(around: Surroundings, last: int, first: int) -> list[str]:
    """Returns the lines above a table's rows that were not shown yet."""
    if around.columns:
        return [f"[columns: {around.columns}]"]
    return [f"{number}- {_head(text)}" for number, text in around.header if last < number < first]


def _head(text: str) -> str:
    return text if len(text) <= LONG_CHARS else text[: 2 * _SIDE] + " …"


def _excerpt(match: Match, spans: SpanFinder) -> str:
    """Returns a long line as its first matches with the text on each side of them."""
    text = match.text
    if len(text) <= LONG_CHARS:
        return text
    places = spans(text)
    middle = len(text) // 2 if match.truncated else 0
    windows: list[tuple[int, int]] = []
    for start, end in places[:_MOST_SPANS] or [(middle, middle)]:
        left, right = max(0, start - _SIDE), min(len(text), min(end, start + 2 * _SIDE) + _SIDE)
        if windows and left <= windows[-1][1]:
            windows[-1] = windows[-1][0], right
        else:
            windows.append((left, right))
    parts = " … ".join(text[left:right] for left, right in windows)
    begin = "… " if windows[0][0] > 0 or match.truncated else ""
    more = f" (+{len(places) - _MOST_SPANS} in this line)" if len(places) > _MOST_SPANS else ""
    return f"{begin}{parts}{' …' if windows[-1][1] < len(text) or match.truncated else ''}{more}"


def _narrowed(match: Match, room: int) -> Match:
    """The match with as much of its context as fits."""
    before, after = list(match.before), list(match.after)
    size = sum(min(len(text.encode()), 4 * LONG_CHARS) + 12 for text in (*before, match.text, *after))
    while size > room and (before or after):
        gone = before.pop(0) if len(before) >= len(after) else after.pop()
        size -= min(len(gone.encode()), 4 * LONG_CHARS) + 12
    return replace(match, before=before, after=after)


def word_boundary_note(pattern: str, matches: Sequence[Match], ignore_case: bool) -> str:
    """Advice where a short word is mostly found inside longer words; "" otherwise."""
    if not matches or not _SHORT_WORD.fullmatch(pattern):
        return ""
    alone = re.compile(rf"(?<!\w){pattern}(?!\w)", re.IGNORECASE if ignore_case else 0)
    inside = sum(1 for match in matches if not alone.search(match.text))
    if inside <= _INSIDE_WORD * len(matches):
        return ""
    return rf"Mostly inside longer words: \b{pattern}\b finds the word alone."


def value_text(encoded: bytes) -> str:
    """A JSON value as text: a table where it is a list of flat objects with the same keys, else JSON."""
    value = json.loads(encoded)
    if isinstance(value, list) and len(value) > 1 and all(isinstance(row, dict) for row in value):
        keys = list(dict.fromkeys(key for row in value for key in row))
        if len(keys) <= _MOST_COLUMNS and all(_is_flat(row, keys) for row in value):
            rows = [" | ".join(_cell(row.get(key)) for key in keys) for row in value]
            return "\n".join((" | ".join(map(_line, keys)), *rows))
    return encoded.decode()


_LIMIT = re.compile(r"\blimit\s+(\d{1,9})(?:\s+offset\s+(\d{1,9}))?\s*;?\s*\Z", re.IGNORECASE)


class Selection(NamedTuple):
    """Rows that SQL selected, as JSON: those after the first `skipped` of `total`. `note` says where they are
    in the data."""

    sql: str
    columns: Sequence[str]
    rows: bytes
    skipped: int
    total: int
    is_cut: bool
    note: str


def selection_text(selection: Selection, max_bytes: int) -> str:
    """The rows under the names of their columns; a single value alone. Then how many there are, and how the
    query goes on."""
    rows = json.loads(selection.rows)
    notes = []
    if selection.total == len(rows) == len(selection.columns) == 1:
        value = rows[0][0]
        text = value if isinstance(value, str) else json.dumps(value)
    else:
        most = max(_CELL_CHARS, max_bytes // max(1, len(rows) * len(selection.columns)))
        lines = [" | ".join(_cell(cell, most) for cell in row) for row in rows]
        names = (_line(name, _NAME_CHARS) for name in selection.columns)
        text = "\n".join((" | ".join(names), *lines))
        notes.append(_place_of_rows(selection, len(rows)))
    if selection.is_cut and selection.total == len(rows):
        notes.append("Texts are cut: substr(column, 1, 1000) selects a part.")
    if selection.note:
        notes.append(selection.note)
    return f"{text}\n[{' '.join(notes)}]" if notes else text


def _place_of_rows(selection: Selection, count: int) -> str:
    if count == selection.total:
        return f"{count_of(selection.total, 'row')}."
    if not count:
        return f"{count_of(selection.total, 'row')}: offset {selection.skipped:,} is past the last."
    last = selection.skipped + count
    place = f"Rows {selection.skipped + 1:,} to {last:,} of {selection.total:,}."
    if last == selection.total:
        return place
    limit = _LIMIT.search(selection.sql)
    start = int(limit[2] or 0) if limit else 0
    return f"{place} Go on with: LIMIT {selection.total - last if limit else count} OFFSET {start + last}"


def _is_flat(row: dict[str, object], keys: Sequence[str]) -> bool:
    few_missing = 2 * len(row) >= len(keys)
    return few_missing and not any(isinstance(cell, dict | list) for cell in row.values())


def _cell(value: object, most: int = _CELL_CHARS) -> str:
    if isinstance(value, str):
        return _line(value, most)
    return "" if value is None else json.dumps(value)


def _line(text: str, most: int = _CELL_CHARS) -> str:
    """A cell on one line. Its spaces stay, so that it is found as it is shown."""
    if not text.isprintable():
        return clip(text, most)
    return text if len(text) <= most else text[: most - 1] + "…"


def fitting(items: Iterable[tuple[int, str]], max_bytes: int) -> Fitted:
    """Returns the texts, in order, that fit. The first text is always included, cut if necessary. Takes no
    item beyond the first that does not fit."""
    texts: list[str] = []
    count = 0
    for number, text in items:
        size = len(text.encode()) + 1
        if size > max_bytes:
            if count:
                return Fitted("\n".join(texts), count, number)
            text = cut_head(text.encode(), max_bytes).decode()
        max_bytes -= size
        if text:
            texts.append(text)
        count += 1
    return Fitted("\n".join(texts), count, None)
