"""JMESPath over a value: the specified language and clear errors."""

import difflib
import json
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

from jmespath import exceptions, functions, parser, visitor

from content import MAX_EXPRESSION_CHARS
from content.text import listed
from domain.errors import BadQuery

_KEYS_CHARS = 4000
_KEY_CHARS = 60
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_SQL = "SELECT key, count(*) FROM data GROUP BY key"
_WORDS = re.compile(r"\s*[A-Za-z_]+\s+[\w*\"'(]")
"""Two adjacent words, which are not JMESPath and so are probably SQL."""
_NO_SQL = "SQL begins with SELECT or WITH. This expression does not, and is no JMESPath either:"
_HELP = "The language is explained at https://jmespath.org."


def _ordered(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Comparing a number with a string gives null."""

    def compared(left: Any, right: Any) -> Any:
        return compare(left, right) if isinstance(left, str) == isinstance(right, str) else None

    return compared


class _Interpreter(visitor.TreeInterpreter):
    COMPARATOR_FUNC = visitor.TreeInterpreter.COMPARATOR_FUNC | {
        "lt": _ordered(operator.lt),
        "gt": _ordered(operator.gt),
        "lte": _ordered(operator.le),
        "gte": _ordered(operator.ge),
    }


class _Tracer(_Interpreter):
    """Notes the keys of an expression that no visited object has."""

    def __init__(self, options: visitor.Options) -> None:
        super().__init__(options)
        self.present: set[str] = set()
        self.absent: dict[str, list[str]] = {}
        self.asked_of_lists: set[str] = set()
        self.asked_of_texts: set[str] = set()

    def visit_field(self, node: Any, value: Any) -> Any:
        name = node["value"]
        if isinstance(value, dict):
            if name in value:
                self.present.add(name)
            elif name not in self.absent:
                self.absent[name] = list(value)
        elif isinstance(value, list):
            self.asked_of_lists.add(name)
        elif isinstance(value, str) and value[:1] in ("{", "["):
            self.asked_of_texts.add(name)
        return super().visit_field(node, value)


class Expression:
    """A parsed expression. Its time and memory are bounded by its process: see extraction/query_child.py."""

    def __init__(self, expression: str) -> None:
        """Raises BadQuery, which gives the place of the error without repeating the expression."""
        if len(expression) > MAX_EXPRESSION_CHARS:
            raise BadQuery(f"The expression has more than {MAX_EXPRESSION_CHARS:,} characters.")
        try:
            self._tree = parser.Parser().parse(expression).parsed
        except exceptions.ParseError as error:
            raise BadQuery(f"{_place(error, expression)} {_HELP}") from None
        except exceptions.JMESPathError:
            raise BadQuery(f"The expression is empty. {_HELP}") from None
        except RecursionError:
            raise BadQuery("The expression is nested too deeply.") from None

    def evaluate(self, value: object) -> object:
        """Raises BadQuery if the value has a type that the expression cannot take."""
        options = visitor.Options()
        try:
            return _Interpreter(options).visit(self._tree, value)
        except exceptions.ArityError as error:
            raise BadQuery(
                f"{error.function_name}() takes {error.expected_arity} arguments, not {error.actual_arity}."
            ) from None
        except exceptions.JMESPathTypeError as error:
            raise BadQuery(_wrong_type(error)) from None
        except exceptions.UnknownFunctionError:
            names = ", ".join(sorted(functions.Functions.FUNCTION_TABLE))
            raise BadQuery(
                f"A function is not known. Known are: {names}. SQL counts, groups and sorts: {_SQL}."
            ) from None
        except RecursionError:
            raise BadQuery("The expression, or what it makes, is nested too deeply.") from None
        except (TypeError, ValueError, ArithmeticError):
            raise BadQuery(
                "A function or a slice cannot take a value that it gets here: numbers and strings cannot be "
                "ordered together, a slice's step cannot be 0."
            ) from None

    def why_empty(self, value: object) -> str:
        """Returns why a valid expression selects nothing: keys that no object has, or a list where an object
        is expected; else the keys that exist; "" without keys."""
        tracer = _Tracer(visitor.Options())
        tracer.visit(self._tree, value)
        for name, keys in tracer.absent.items():
            if name not in tracer.present:
                return _absent(name, keys)
        if names := sorted(tracer.asked_of_texts - tracer.present):
            return (
                f"{_shown(names[0])} is asked of a text that holds JSON: SQL reads it, as in "
                f"column->>'$.{_shown(names[0])}'."
            )
        if names := sorted(tracer.asked_of_lists - tracer.present):
            return f"{_shown(names[0])} is asked of a list: put [] or [*] before it."
        first = value[0] if isinstance(value, list) and value else value
        return _keys_of(first) if isinstance(first, dict) and first else ""


def _absent(name: str, keys: list[str]) -> str:
    near = difflib.get_close_matches(name, keys, n=1, cutoff=0.5)
    nearest = f" The nearest is {_shown(near[0])}." if near else ""
    return f"No object there has the key {_shown(name)}.{nearest} {_keys_of(keys)}"


def _keys_of(keys: Iterable[str]) -> str:
    return f"Keys: {listed(map(_shown, keys), _KEYS_CHARS)}."


def _shown(name: str) -> str:
    """Returns a key as it is written in an expression."""
    name = name[:_KEY_CHARS]
    return name if _PLAIN_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=not name.isprintable())


def _place(error: exceptions.ParseError, expression: str) -> str:
    language = _NO_SQL if _WORDS.match(expression) else "The expression is not JMESPath:"
    if isinstance(error, exceptions.IncompleteExpressionError):
        return f"{language} something is missing at its end."
    column = min(error.lex_position, len(expression)) + 1
    return f"{language} it cannot be read on from character {column}."


def _wrong_type(error: exceptions.JMESPathTypeError) -> str:
    expected = " or ".join(error.expected_types)
    actual = functions.TYPES_MAP.get(error.actual_type, error.actual_type)
    advice = ""
    if actual == "null":
        advice = " Leave such values out first: [?field != `null`]."
    return f"{error.function_name}() takes {expected}, and gets {actual} here.{advice}"
