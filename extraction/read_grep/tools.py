"""The tools of a model on one source: Read and Grep."""

import codecs
from collections.abc import Callable
from functools import partial

import anyio.to_thread
import msgspec

from content.reading.grep import LINE_BYTES, Grep, GrepPage, Match
from content.reading.greppable import Greppable, needs_view
from content.reading.lines import Line, LinePage, LinePager
from content.text import cut_head
from domain.errors import BadPattern
from domain.llm import ToolCall
from extraction.prompts.fences import fenced
from extraction.task.source import Source

_BLOCK = 1 << 20
_INLINE_BYTES = 1 << 14

_LINES = 200
_MOST_LINES = 2000
_MATCHES = 100
_MOST_CONTEXT = 20

# Bytes for the notes around the output, and the least output of a call.
_FRAME_BYTES = 400
_LEAST_BYTES = 200

_VIEW = (
    "[The data stands on very long lines. This is a view of it with line breaks added; line numbers "
    "count in this view.]\n"
)
_CUT = " …[line cut: Grep shows the text around a match]"


class _Read(msgspec.Struct):
    offset: int | None = None
    limit: int | None = None


class _Grep(msgspec.Struct):
    pattern: str
    context: int | None = None
    ignore_case: bool | None = None


class Tools:
    """Answers every tool call with text, also a wrong one. An answer has at most `max_bytes`, and at most
    `max_tokens` by `count`."""

    def __init__(
        self, source: Source, *, max_bytes: int, max_tokens: int, count: Callable[[str], int], nonce: str
    ) -> None:
        self._source = source
        self._nonce = nonce
        self._max_bytes = max_bytes
        self._max_tokens = max(1, max_tokens)
        self._count = count
        measure = source.stored.measure
        self._viewed = needs_view(measure.bytes, measure.lines)

    async def answer(self, call: ToolCall) -> str:
        arguments = call.arguments.strip() or "{}"
        try:
            match call.name:
                case "Read":
                    return await self._read(msgspec.json.decode(arguments, type=_Read, strict=False))
                case "Grep":
                    return await self._grep(msgspec.json.decode(arguments, type=_Grep, strict=False))
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            return f"The arguments of {call.name} are wrong: {error}."
        except BadPattern as error:
            return error.detail
        return "There is no such tool. Use Read or Grep."

    async def _read(self, wish: _Read) -> str:
        offset = max(1, wish.offset or 1)
        limit = min(max(1, wish.limit or _LINES), _MOST_LINES)
        pager = LinePager(offset, limit, self._max_bytes)
        await self._scan(pager)
        page = pager.finish()
        if not page.lines:
            return f"There is no line {offset}: the data has {page.total_lines} lines."
        return self._fitted(partial(_lines_text, page))

    async def _grep(self, wish: _Grep) -> str:
        if not wish.pattern:
            return "The pattern is empty."
        context = min(max(0, wish.context or 0), _MOST_CONTEXT)
        grep = Grep(
            wish.pattern,
            context=context,
            ignore_case=bool(wish.ignore_case),
            limit=_MATCHES,
            max_bytes=self._max_bytes,
        )
        await self._scan(grep)
        page = grep.finish()
        if not page.matches:
            return "No line matches."
        return self._fitted(partial(_matches_text, page))

    async def _scan(self, scanner: LinePager | Grep) -> None:
        """Feeds the scanner with the source, or with its greppable view. Large blocks are fed in a thread."""
        view = Greppable() if self._viewed else None
        # Ranges may cut characters: the decoder drops the parts.
        narrowed = self._source.size != self._source.stored.measure.bytes
        decoder = codecs.getincrementaldecoder("utf-8")("ignore") if narrowed else None

        def feed(block: bytes) -> None:
            block = decoder.decode(block).encode() if decoder else block
            scanner.feed(view.feed(block) if view else block)

        for start in range(0, self._source.size, _BLOCK):
            block = await self._source.read(start, min(start + _BLOCK, self._source.size))
            if len(block) <= _INLINE_BYTES:
                feed(block)
            else:
                await anyio.to_thread.run_sync(feed, block)
        if view:
            scanner.feed(view.finish())

    def _fitted(self, render: Callable[[int], tuple[list[str], str]]) -> str:
        """Renders as much as the caps in bytes and tokens allow."""
        room = self._max_bytes - _FRAME_BYTES
        text = self._framed(*render(room))
        while room > _LEAST_BYTES and (excess := self._excess(text)) > 1:
            room = max(_LEAST_BYTES, int(room / excess * 0.98))
            text = self._framed(*render(room))
        return text

    def _excess(self, text: str) -> float:
        # A text with many look-alikes of fences grows when they are neutralised.
        return max(self._count(text) / self._max_tokens, len(text.encode()) / self._max_bytes)

    def _framed(self, rows: list[str], note: str) -> str:
        lead, text = _VIEW if self._viewed else "", "\n".join(rows)
        return f"{lead}{fenced('data', text, self._nonce)}\n{note}"


def _lines_text(page: LinePage, room: int) -> tuple[list[str], str]:
    rows = _filled([f"{line.number}\t{_shown(line)}" for line in page.lines], room)
    left_out = page.lines[len(rows) :]
    following = left_out[0].number if left_out else page.next_offset
    more = f"the next is line {following}" if following else "this is the end"
    return rows, f"[{page.total_lines} lines in all; {more}.]"


def _shown(line: Line) -> str:
    data = line.text.encode()
    whole = len(data) <= LINE_BYTES and not line.truncated
    return line.text if whole else cut_head(data, LINE_BYTES).decode() + _CUT


def _matches_text(page: GrepPage, room: int) -> tuple[list[str], str]:
    rows: list[str] = []
    matching: list[int] = []
    for match in page.matches:
        matching.append(len(rows) + len(match.before))
        rows.extend(_rows(match))
    rows = _filled(rows, room)
    shown = sum(index < len(rows) for index in matching)
    more = "" if shown == page.total_matches else f"; {shown} of them are shown: narrow the pattern"
    return rows, f"[Matching lines: {page.total_matches}{more}.]"


def _rows(match: Match) -> list[str]:
    """Rows as in grep: a colon after the number of a matching line, a hyphen after that of a context line."""
    first = match.line - len(match.before)
    before = [f"{first + index}-\t{text}" for index, text in enumerate(match.before)]
    after = [f"{match.line + 1 + index}-\t{text}" for index, text in enumerate(match.after)]
    rows = [*before, f"{match.line}:\t{match.text}" + " …[cut]" * match.truncated, *after]
    return [*rows, "--"] if before or after else rows


def _filled(rows: list[str], room: int) -> list[str]:
    """The first rows that fit, at least one, which may be cut."""
    kept = [cut_head(rows[0].encode(), room).decode()]
    for row in rows[1:]:
        room -= len(kept[-1].encode()) + 1
        if len(row.encode()) > room:
            break
        kept.append(row)
    return kept
