"""Finds out which question a model asks with one call, for any tool name and any offered tools."""

import re
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from app.answering.tool_definitions import AskArguments, GrepArguments, QueryArguments, Tool
from content import MAX_EXPRESSION_CHARS, MAX_PATTERN_CHARS
from content.text import without_surrogates
from domain.errors import InvalidField
from domain.extraction import Mode
from domain.handles import MOST_HANDLES
from domain.library_errors import msgspec_rule, types_in_words
from policies.policy import Offer

MOST_LINES = 10_000
_USUAL_LINES = 40
_LIST_CHARS = 8192

_RANGE = re.compile(r"(?:lines?\s*)?L?(\d{1,15})\s*((?:[-–—−:]|\.\.|to)\s*L?(\d{1,15})?)?", re.IGNORECASE)
_BETWEEN = re.compile(r"\s*[,;]\s*")
_MOST_RANGES = 20
_LAST = re.compile(r"(?:last\s*|[-–—−]\s*)(\d{1,15})", re.IGNORECASE)
_HOW = 'Write `lines` as "120-180", "120", "-40" for the last 40, or several: "10-20,95,-5".'


class LineRange(Struct, frozen=True):
    """`most` lines from `first` on, counted from 1; the last `most` lines if `first` is None."""

    first: int | None
    most: int


class LinesAsked(Struct, frozen=True):
    handle: str
    ranges: tuple[LineRange, ...]


ToolQuestion = AskArguments | GrepArguments | LinesAsked | QueryArguments


class _AnyArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of all tools."""

    handle: (
        Annotated[str, Meta(min_length=1, max_length=_LIST_CHARS)]
        | Annotated[list[Annotated[str, Meta(min_length=1, max_length=512)]], Meta(max_length=MOST_HANDLES)]
    )
    extract: Annotated[str, Meta(max_length=65_536)] = ""
    mode: Mode = Mode.AUTO
    pattern: Annotated[str, Meta(max_length=MAX_PATTERN_CHARS)] = ""
    context: Annotated[int, Meta(ge=0, le=20)] = 0
    ignore_case: bool = False
    lines: str | int = ""
    offset: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=0, le=MOST_LINES)] = 0
    query: Annotated[str, Meta(max_length=MAX_EXPRESSION_CHARS)] = ""
    expression: Annotated[str, Meta(max_length=MAX_EXPRESSION_CHARS)] = ""


_QUESTIONS = ("extract", "pattern", "lines", "query", "expression")


def question(tool: Tool, arguments: object) -> ToolQuestion:
    """Returns the question of a call of `tool`, which may have the arguments of any tool. `None` means no
    arguments. An argument that is None or blank is ignored, because some models send every argument. Lone
    surrogates become U+FFFD. Raises InvalidField, which names arguments and repeats none of their text."""
    fields = _parsed(tool, arguments)
    handle = fields.handle if isinstance(fields.handle, str) else ", ".join(fields.handle)
    query = fields.query or fields.expression
    asked = {"extract": fields.extract, "pattern": fields.pattern, "lines": fields.lines, "query": query}
    names = [name for name, value in asked.items() if value != ""]
    match names:
        case []:
            if fields.offset or fields.limit:
                return LinesAsked(handle, (LineRange(fields.offset or 1, fields.limit or _USUAL_LINES),))
            raise InvalidField(_empty(arguments) or f"{_takes(tool)} {_missing(tool)}")
        case ["extract"]:
            return AskArguments(handle, fields.extract, fields.mode)
        case ["pattern"]:
            return GrepArguments(handle, fields.pattern, fields.context, fields.ignore_case, fields.offset)
        case ["lines"]:
            return LinesAsked(handle, line_ranges(fields.lines, fields.limit))
        case ["query"]:
            return QueryArguments(handle, query)
    several = ", ".join(f"`{name}`" for name in names)
    raise InvalidField(f"One call asks one question. Give only one of {several}.")


def _parsed(tool: Tool, arguments: object) -> _AnyArguments:
    try:
        arguments = {} if arguments is None else without_surrogates(arguments)
        if isinstance(arguments, str):
            arguments = msgspec.json.decode(arguments)
        if isinstance(arguments, dict):
            arguments = {name: value for name, value in arguments.items() if not _is_blank(value)}
        return msgspec.convert(arguments, type=_AnyArguments, strict=False)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidField(f"{_takes(tool)} {_broken_rule(error)}.") from None


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _empty(arguments: object) -> str:
    """Returns the error for a call with one question, which is blank."""
    fields = msgspec.json.decode(arguments) if isinstance(arguments, str) else arguments
    blank = [name for name in _QUESTIONS if isinstance(fields, dict) and fields.get(name) is not None]
    return f"`{blank[0]}` is empty: say what you look for." if len(blank) == 1 else ""


def _takes(tool: Tool) -> str:
    fields = tool.arguments.__struct_fields__
    if tool.offer is Offer.ONE:
        return f"{tool.name} takes a JSON object with handle and one of {', '.join(fields[1:])}."
    return f"{tool.name} takes a JSON object with {', '.join(fields)}."


def _missing(tool: Tool) -> str:
    return (
        "None of them is given."
        if tool.offer is Offer.ONE
        else f"`{tool.arguments.__struct_fields__[1]}` is missing."
    )


def _broken_rule(error: msgspec.DecodeError | RecursionError) -> str:
    """msgspec's message with the argument at fault first, and types in words."""
    if isinstance(error, RecursionError):
        return "The arguments are nested too deeply"
    path, rule = msgspec_rule(str(error))
    # `mode` is the only argument with a list of allowed values.
    rule = (
        f"must be one of {', '.join(Mode)}" if rule.startswith("Invalid enum value") else types_in_words(rule)
    )
    return f"`{path}`: {rule}" if path else f"{rule[:1].upper()}{rule[1:]}"


def line_ranges(lines: str | int, limit: int = 0) -> tuple[LineRange, ...]:
    """Parses ranges that are separated by commas. Raises InvalidField."""
    parts = list(filter(None, _BETWEEN.split(_bare(lines))))
    if not 0 < len(parts) <= _MOST_RANGES:
        raise InvalidField(f"{_HOW} At most {_MOST_RANGES} ranges.")
    return tuple(line_range(part, limit) for part in parts)


def line_range(lines: str | int, limit: int = 0, most: int = MOST_LINES) -> LineRange:
    """`limit` is how many lines where only the first one is named, `most` how many at most. Raises
    InvalidField."""
    text = _bare(lines)
    if last := _LAST.fullmatch(text):
        return LineRange(None, min(max(int(last[1]), 1), most))
    match = _RANGE.fullmatch(text)
    if match is None:
        raise InvalidField(_HOW)
    first = max(int(match[1]), 1)
    if match[2] is None:
        return LineRange(first, limit or 1)
    if match[3] is None:
        return LineRange(first, limit or most)
    end = max(int(match[3]), 1)
    if end < first:
        raise InvalidField(f'`lines` runs from the lower number to the higher: lines = "{end}-{first}".')
    return LineRange(first, min(end - first + 1, most))


def _bare(lines: str | int) -> str:
    return str(lines).strip(" \t\n\"'`[]")
