"""Passes stored results to other tools: replaces the references in a tool's arguments by the stored text."""

import codecs
import logging
import re
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from app.answering.reading import NO_VALUE, begun, entry_about, look_up, path_of, run_query, scan
from app.answering.tool_arguments import LineRange, line_range
from app.masking.redactions import ShownResult
from app.runtime import Runtime
from content.csv_text import rows_csv
from content.grep import MatchingLines
from content.json_text import as_json
from content.lines import LastLines, LinePager
from domain.accounting import EntryType
from domain.errors import BadPattern, Gone, InvalidField, NotFound, SpillgateError
from domain.handles import SessionKey, forgiven_handle
from domain.references import NOT_RUN, REFERENCE, replaced
from domain.results import StoredResult
from extraction.query_terms import DataQuery
from policies.tool_calls import split_tool_name

log = logging.getLogger(__name__)

CALL_SHARE = 8
"""The most bytes of all arguments of a call, as a multiple of SPILLGATE_MAX_ARGUMENT_BYTES."""

_MOST_REFERENCES = 64
_MOST_ROWS = 1 << 30
_PART = re.compile(r"#(?P<kind>lines|pattern|query)=(?P<value>.+?)(?:&as=(?P<form>\w+))?")
_FRAGMENTS = (
    "After the handle comes nothing, #lines=120-180, #pattern=… or #query=…, and after a query &as=csv or "
    "&as=json, percent-encoded."
)
_FORMS = {"query": (None, "csv", "json")}
_PARTS_OF_LINES = (
    "tool_output breaks the long lines of this result, so these lines are parts of longer ones. Give "
    "#pattern= for all of the stored lines that match, #query=, or no part for all of the result."
)
_AS_STORED = " It is searched as it is stored: tool_output breaks its long lines."
_IS_ALL = (
    "These lines are all of the result: tool_output breaks the long lines that are stored. Give #query=, or "
    "no part for all of it."
)


@dataclass(frozen=True, slots=True)
class Used:
    """`path` is the JSON Pointer of the argument, `bytes` the size of the text that stands there now."""

    handle: str
    path: str
    bytes: int


class PassedOn(NamedTuple):
    """`arguments` are the chunks of a JSON text. If the tool must not run, `refusal` is what the model reads
    instead, and there are no arguments."""

    arguments: AsyncIterator[bytes] | None
    used: list[Used]
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class _Text:
    """A text that another tool gets. `chunks` is None if `data` is the whole text."""

    stored: StoredResult
    size: int
    data: bytes = b""
    chunks: AsyncIterator[bytes] | None = None


async def pass_on(key: SessionKey, tool_name: str, arguments: Any, rt: Runtime) -> PassedOn:
    """Raises StorageError; Overloaded if queries wait too long for a slot."""
    references: list[tuple[str, str]] = []
    sign = secrets.token_hex(16)

    def mark(reference: str, path: str) -> str:
        references.append((reference, path))
        return f"{sign}{len(references) - 1:02d}"

    try:
        marked = as_json(replaced(arguments, mark))
        if len(references) > _MOST_REFERENCES:
            raise InvalidField(f"One call takes at most {_MOST_REFERENCES} stored results.")
        texts = await _texts(key, tool_name, [reference for reference, _ in references], rt)
    except (NotFound, Gone, InvalidField, BadPattern, RecursionError) as error:
        return PassedOn(None, [], _refused(rt, tool_name, error, [one for one, _ in references]))
    for text in texts:
        await account_passed_on(rt, text.stored, tool_name, text.size)
    used = [
        Used(str(text.stored.handle), path, text.size)
        for text, (_, path) in zip(texts, references, strict=True)
    ]
    return PassedOn(_written(marked, sign, texts), used)


def _refused(
    rt: Runtime, tool_name: str, error: SpillgateError | RecursionError, references: list[str]
) -> str:
    if isinstance(error, RecursionError):
        error = InvalidField("The arguments are nested too deeply.")
    rt.observer.told(error, [_handle_in(one)[0] for one in references[:_MOST_REFERENCES]])
    fields = {"tool": tool_name, "code": error.code}
    log.warning("A stored result was not handed on.", extra={"fields": fields})
    return f"{error.detail} {NOT_RUN}"


async def _texts(key: SessionKey, tool_name: str, references: list[str], rt: Runtime) -> list[_Text]:
    most = rt.settings.max_argument_bytes
    left, texts = CALL_SHARE * most, list[_Text]()
    for reference in references:
        texts.append(text := await _text(key, tool_name, reference, min(most, left), rt))
        left -= text.size
    # After all checks, so that no body is open if a reference is refused.
    return [text if text.chunks is None else replace(text, chunks=await begun(text.chunks)) for text in texts]


async def _text(key: SessionKey, tool_name: str, reference: str, most: int, rt: Runtime) -> _Text:
    """Raises NotFound, Gone, InvalidField, BadPattern."""
    named, rest = _handle_in(reference)
    part = _part(rest)
    handle = forgiven_handle(named, key)
    stored = await look_up(rt, key.tenant, str(handle))
    shown = await rt.redactions.handed_on(stored, tool_name)
    if part is None:
        size = shown.result.measure.bytes
        if size > most:
            raise _too_large(size, most)
        return _Text(stored, size, chunks=shown.store.read(shown.result))
    data = await _CUTS[part.kind](rt, shown, part, most)
    if len(data) > most:
        raise _too_large(len(data), most)
    return _Text(stored, len(data), data)


def _handle_in(reference: str) -> tuple[str, str]:
    """The handle as the model wrote it, and the rest of the reference."""
    parts = REFERENCE.fullmatch(reference)
    assert parts is not None
    return f"{unquote(parts['session'])}/{unquote(parts['file'])}", parts["rest"] or ""


def _too_large(size: int | None, most: int) -> InvalidField:
    what = "more" if size is None else f"{size:,} bytes"
    return InvalidField(
        f"The argument would get {what}, and {most:,} are left for it. Give a part: #lines=, #pattern= or "
        "#query=."
    )


class _Part(NamedTuple):
    """A part of a result. `form` is the format of a query's rows: `csv`, `json`, or "". With "", texts stay
    as they are and other values become JSON."""

    kind: str
    value: str
    form: str


def _part(fragment: str) -> _Part | None:
    """Parses the fragment of a reference. Returns None for the whole result. A fragment with spaces was not
    URL-encoded and is not decoded. Raises InvalidField."""
    if fragment in ("", "#"):
        return None
    match = _PART.fullmatch(fragment)
    if match is None:
        raise InvalidField(_FRAGMENTS)
    value, is_encoded = match["value"], not re.search(r"\s", fragment)
    if (is_encoded and "&" in value) or match["form"] not in _FORMS.get(match["kind"], (None,)):
        raise InvalidField(_FRAGMENTS)
    try:
        value = unquote(value, errors="strict") if is_encoded else value
    except UnicodeDecodeError:
        raise InvalidField(_FRAGMENTS) from None
    return _Part(match["kind"], value, match["form"] or "")


async def _lines(rt: Runtime, shown: ShownResult, part: _Part, most: int) -> bytes:
    """Resolves line numbers, which count lines of the view that the tools show. Raises InvalidField if the
    stored lines differ from those of the view."""
    asked = line_range(part.value, most=_MOST_ROWS)
    scanner = _scanner(asked, most)
    page = await scan(rt, shown, scanner, greppable=False)
    if shown.needs_view:
        view = await scan(rt, shown, _scanner(asked, most), greppable=True)
        if [line.text for line in view.lines] != [line.text for line in page.lines]:
            raise InvalidField(_PARTS_OF_LINES)
    if not page.lines:
        raise InvalidField(f"The result has {page.total_lines:,} lines.")
    first, last = page.lines[0].number, page.lines[-1].number
    if asked.first is None:
        is_cut = first > max(1, last - asked.most + 1)
    else:
        is_cut = page.next_offset is not None and last < asked.first + asked.most - 1
    if is_cut or any(line.truncated for line in page.lines):
        raise _too_large(None, most)
    ending = "\n" if last < page.total_lines or scanner.is_ended else ""
    return ("\n".join(line.text for line in page.lines) + ending).encode()


def _scanner(asked: LineRange, most: int) -> LastLines | LinePager:
    return LastLines(asked.most, most) if asked.first is None else LinePager(asked.first, asked.most, most)


async def _matching(rt: Runtime, shown: ShownResult, part: _Part, most: int) -> bytes:
    scanner = MatchingLines(part.value, most)
    lines = await scan(rt, shown, scanner, greppable=False)
    if scanner.is_too_large:
        raise _too_large(None, most)
    if not lines:
        raise InvalidField("No line matches." + _AS_STORED * shown.needs_view)
    if shown.needs_view and len(lines) == shown.result.measure.bytes:
        raise InvalidField(_IS_ALL)
    return lines


async def _rows(rt: Runtime, shown: ShownResult, part: _Part, most: int) -> bytes:
    query = DataQuery(part.value, most, shown.result.tool_name, _MOST_ROWS, path=path_of(shown.result))
    answer = await run_query(rt, [shown], query)
    data = bytes(answer.slice.result)
    if answer.slice.truncated:
        raise _too_large(None, most)
    if data.decode() in NO_VALUE:
        raise InvalidField(f"The query selects nothing. {answer.hint}".rstrip())
    if part.form == "csv":
        rows = msgspec.json.decode(data)
        if not isinstance(rows, list):
            raise InvalidField("Only rows can be CSV: the query selects one value. Take &as=json.")
        return rows_csv(rows).encode()
    is_text = answer.slice.type == "string" and not part.form
    return str(msgspec.json.decode(data)).encode() if is_text else data


_CUTS = {"lines": _lines, "pattern": _matching, "query": _rows}


async def account_passed_on(rt: Runtime, stored: StoredResult, tool_name: str, size: int) -> None:
    """Charges the text. Raises StorageError while the ledger is unavailable: a text that cannot be accounted
    is not passed on."""
    entry = entry_about(rt, stored, EntryType.PASS_ON, rt.clock())
    server, tool = split_tool_name(tool_name)
    details = replace(entry.details, bytes=size)
    named = replace(entry, tool_name=tool_name, mcpServer=server, command=tool, details=details)
    await rt.ledger.append(named)
    fields = {"tool": tool_name, "handle": str(stored.handle), "bytes": size}
    log.info("A stored result was handed on.", extra={"fields": fields})


async def _written(marked: bytes, sign: str, texts: list[_Text]) -> AsyncIterator[bytes]:
    """Yields the JSON with each mark replaced by its text."""
    pieces = re.split(rb"%b(\d\d)" % sign.encode(), marked)
    for at, piece in enumerate(pieces):
        if not at % 2:
            yield piece
            continue
        async for chunk in _escaped(texts[int(piece)]):
            yield chunk


async def _escaped(text: _Text) -> AsyncIterator[bytes]:
    """Yields the text as the inside of a JSON string, without the quotes."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    if text.chunks is None:
        yield msgspec.json.encode(decoder.decode(text.data, final=True))[1:-1]
        return
    async for chunk in text.chunks:
        yield msgspec.json.encode(decoder.decode(chunk))[1:-1]
    yield msgspec.json.encode(decoder.decode(b"", final=True))[1:-1]
