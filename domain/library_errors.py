"""What pydantic and msgspec say of a value that breaks a rule, in the words of all error messages."""

import re
from collections.abc import Mapping

PYDANTIC_RULES = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a JSON object",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "is too large a number",
    "int_type": "must be a whole number",
    "missing": "is missing",
    "model_attributes_type": "must be a JSON object",
}
"""By the type of pydantic's error, where its message does not say what to send."""

_SUBJECT = re.compile(r"^\w+ should\b")
_TYPES_IN_WORDS = {
    "str": "a string", "int": "a whole number", "float": "a number", "bool": "true or false",
    "object": "an object", "array": "a list", "null": "null",
}  # fmt: skip
_TYPE = "|".join(_TYPES_IN_WORDS)
_TYPES = re.compile(rf"`((?:{_TYPE})(?: \| (?:{_TYPE}))*)`")
_PATTERN = re.compile(r" matching regex '.*'", re.DOTALL)


def pydantic_rule(kind: str, message: str, rules: Mapping[str, str] = PYDANTIC_RULES) -> str:
    """Returns the rule, to follow the name of the value that breaks it. `kind` and `message` are those of
    pydantic's error; `rules` are used before the common ones."""
    return rules.get(kind) or PYDANTIC_RULES.get(kind) or _SUBJECT.sub("must", message)


def msgspec_rule(message: str) -> tuple[str, str]:
    """Returns the path of the value that breaks a rule, "" for the whole value, and the rule as msgspec
    writes it."""
    rule, _, where = message.partition(" - at ")
    return where.strip("`").removeprefix("$").removeprefix("."), rule


def types_in_words(rule: str) -> str:
    """A rule as msgspec writes it, with its types in words. All patterns but that of a door are of labels."""
    rule = _PATTERN.sub(" without control characters", rule)
    rule = _TYPES.sub(lambda types: " or ".join(_TYPES_IN_WORDS[n] for n in types[1].split(" | ")), rule)
    return f"{rule[:1].lower()}{rule[1:]}"
