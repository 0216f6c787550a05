"""The value of a Python literal, such as a list of tuples that a database's client prints, read as JSON."""

import json
import re

from domain.errors import NotQueryable

# A string without an end reaches to the end of the text, so that no part of the text is scanned twice.
_STRING = r"""'(?>(?:[^'\\]|\\.)*)(?:'|\\?\Z)|"(?>(?:[^"\\]|\\.)*)(?:"|\\?\Z)"""
_INSIDE = rf"(?:{_STRING}|[^'\"()]|\((?>(?:{_STRING}|[^'\"()])*)\))*"
# A string, an object such as Decimal('1.5'), a name or a bracket; numbers stay as they are.
_TOKEN = re.compile(
    rf"[bBuU]?(?P<string>{_STRING})|(?P<object>[A-Za-z_][\w.]*)\((?P<inside>(?>{_INSIDE}))\)"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<comma>,\s*+(?=[)\]}]))|(?P<open>\()|(?P<close>\))",
    re.DOTALL,
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_NAMES = {"None": "null", "True": "true", "False": "false", "null": "null", "true": "true", "false": "false"}
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|(.))", re.DOTALL
)
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "\n": ""}


def value_of(text: str) -> object:
    """Tuples are arrays; an object such as `datetime.date(2024, 1, 2)` is its text, a Decimal its number.
    Raises NotQueryable."""
    try:
        return json.loads(literal_json(text))
    except RecursionError:
        raise _unreadable("is nested too deeply") from None
    except ValueError:
        raise _unreadable("is not well-formed, or is cut") from None


def literal_json(text: str) -> str:
    """Returns the literal as JSON, as far as it is complete: its end may be missing."""
    return _TOKEN.sub(_as_json, text)


def _unreadable(what: str) -> NotQueryable:
    return NotQueryable(f"The result looks like a Python literal, but {what}. Use `pattern` or `extract`.")


def _as_json(token: re.Match[str]) -> str:
    match token.lastgroup:
        case "string":
            return json.dumps(_unescaped(token["string"][1:-1]))
        case "inside":
            return _object(token["object"], token["inside"].strip()) or json.dumps(token[0])
        case "name":
            return _NAMES.get(token[0]) or json.dumps(token[0])
        case "comma":
            return ""
    return "[" if token.lastgroup == "open" else "]"


def _object(name: str, inside: str) -> str:
    """A number in an object such as Decimal('1.5'); a date or time as ISO 8601 writes it; else ""."""
    if number := _NUMBER.fullmatch(inside.strip("'\"")):
        return number[0]
    parts = inside.split(",")
    if not name.endswith(("date", "datetime")) or not all(map(str.isdecimal, map(str.strip, parts))):
        return ""
    year, *others = (int(part) for part in parts[:6])
    day = "-".join((f"{year:04}", *(f"{part:02}" for part in others[:2])))
    clock = ":".join(f"{part:02}" for part in others[2:])
    return json.dumps(f"{day}T{clock}" if clock else day)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    if code:
        return chr(min(int(code, 16), 0x10FFFF))
    if escape[4]:
        return chr(int(escape[4], 8))
    return _PLAIN.get(escape[5], escape[5])
