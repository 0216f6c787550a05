"""References: strings in a tool's arguments that stand for stored results. Light: hooks import it."""

import re
from collections.abc import Callable
from typing import Any

SCHEME = "spillgate://"

REFERENCE = re.compile(
    r"spillgate://(?P<session>[^\s/?#]{1,400})/(?P<file>[^\s/?#]{1,120})(?:(?P<rest>[?#][^\r\n]*))?"
)
"""Matches the whole string. A reference within a longer string is not a reference."""

NOT_RUN = "The tool did not run."
"""The end of the text that the model reads instead."""

TOO_DEEP = f"The arguments are nested too deeply. {NOT_RUN}"

UNRESOLVED = (
    "The stored result cannot be read now, so the tool did not run. Try again later, or go on without it."
)


def may_refer(json: str) -> bool:
    """False if the JSON holds no reference; else it has to be decoded."""
    # Some programs escape the slash with a backslash.
    return f'"{SCHEME}' in json or '"spillgate:\\/' in json


def is_reference(text: str) -> bool:
    return text.startswith(SCHEME) and REFERENCE.fullmatch(text) is not None


def references_in(value: Any) -> list[str]:
    """Returns the references among the values of JSON, at any depth. Names of members are not references.
    Raises RecursionError if a value with references is nested too deeply."""
    references: list[str] = []
    try:
        replaced(value, lambda text, path: references.append(text))
    except RecursionError:
        if _refers(value):
            raise
        return []
    return references


def _refers(value: Any) -> bool:
    """Returns whether a value holds a reference at any depth, even a value that contains itself."""
    waiting, seen = [value], set[int]()
    while waiting:
        one = waiting.pop()
        if isinstance(one, str) and is_reference(one):
            return True
        if isinstance(one, list | dict) and id(one) not in seen:
            seen.add(id(one))
            waiting += one.values() if isinstance(one, dict) else one
    return False


def is_of_relay(reference: str) -> bool:
    """True for a result that a relay stored, in a session of its own."""
    return reference.startswith(f"{SCHEME}session-mcp-")


def replaced(value: Any, text_for: Callable[[str, str], Any], path: str = "") -> Any:
    """A copy of a value of JSON in which `text_for(reference, path)` stands for each reference. `path` is a
    JSON Pointer. Raises RecursionError."""
    if isinstance(value, str):
        return text_for(value, path) if is_reference(value) else value
    if isinstance(value, list):
        return [replaced(one, text_for, f"{path}/{at}") for at, one in enumerate(value)]
    if isinstance(value, dict):
        return {
            name: replaced(one, text_for, f"{path}/{name.replace('~', '~0').replace('/', '~1')}")
            for name, one in value.items()
        }
    return value
