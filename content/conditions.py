"""Conditions in words over records: `status is failed and price > 10`. What is not plain is not read."""

import json
import re
from dataclasses import dataclass

from content.record_keys import RecordKeys, quoted

MOST = 5

_OPERATORS = {
    "==": r"==|=|is equal to|is exactly|equals|is",
    "!=": r"!=|<>|is not equal to|does not equal|is not",
    ">=": r">=|(?:is )?at least|is greater than or equal to",
    "<=": r"<=|(?:is )?at most|is less than or equal to",
    ">": r">|(?:is )?(?:greater|more|higher|larger|bigger) than|(?:is )?(?:above|over)",
    "<": r"<|(?:is )?(?:less|lower|smaller|fewer) than|(?:is )?(?:below|under)",
    "contains": r"contains|containing",
    "starts_with": r"starts with|starting with|begins with",
    "ends_with": r"ends with|ending with",
}
# The longest first: "is not" begins with "is".
_WORDS = sorted(
    ((words, name) for name, pattern in _OPERATORS.items() for words in re.split(r"\|(?![^(]*\))", pattern)),
    key=lambda pair: -len(pair[0]),
)
_EDGE = r"(?:\b|(?<=\W))"
_CONDITION = re.compile(
    r"(?:(?:the|its|their|an?) )?(?P<key>[\w][\w .-]{0,60}?|\"[^\"]{1,80}\"|`[^`]{1,80}`)\s*"
    rf"{_EDGE}(?P<operator>{'|'.join(words for words, _ in _WORDS)}){_EDGE}\s*"
    r"(?P<value>\"[^\"]*\"|'[^']*'|`[^`]*`|[^\s\"'`,;?]+)",
    re.IGNORECASE,
)
_AND = re.compile(r"\s+(?:and|&&)\s+(?:(?:where|whose|with) )?", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")
_NUMBERS_ONLY = (">", "<", ">=", "<=")
_TEXT_ONLY = ("contains", "starts_with", "ends_with")
# Said of a value rather than being one.
_VAGUE = re.compile(
    r"an?|any|available|blank|(?:un)?defined|different|duplicated?|(?:non)?empty|equal|high|(?:in)?valid"
    r"|(?:un)?known|like|low|missing|more|most|none|not?|one|present|same|similar|some|that|the|unique"
    r"|(?:un)?set|what|within",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Condition:
    """Key and value as they were said."""

    key: str
    operator: str
    value: str

    def expression(self, keys: RecordKeys) -> str | None:
        """None where the key is not one of the records', or what it holds does not go with the value."""
        path = keys.find(self.key.strip("\"'`"))
        if path is None:
            return None
        literal = self._literal(keys.types[path])
        if literal is None:
            return None
        if self.operator in _TEXT_ONLY:
            return f"{quoted(path)} != `null` && {self.operator}({quoted(path)}, {literal})"
        return f"{quoted(path)} {self.operator} {literal}"

    def _literal(self, kind: str) -> str | None:
        """As JMESPath writes it."""
        word, is_quoted = self.value.strip("\"'`"), self.value[0] in "\"'`"
        if not is_quoted and word.lower() == "null" and self.operator in ("==", "!="):
            return "`null`"
        if kind == "number" and self.operator not in _TEXT_ONLY:
            return f"`{word}`" if _NUMBER.fullmatch(word) else None
        if self.operator in _NUMBERS_ONLY:
            return None
        if kind == "boolean":
            return f"`{word.lower()}`" if word.lower() in ("true", "false") else None
        if kind != "string" or (not is_quoted and _VAGUE.fullmatch(word)):
            return None
        return "`" + json.dumps(word, ensure_ascii=False).replace("`", "\\`") + "`"


def read_conditions(text: str) -> tuple[Condition, ...] | None:
    """None where any part of the text is no condition."""
    text, at = text.strip(), 0
    found: list[Condition] = []
    while len(found) < MOST and (match := _CONDITION.match(text, at)) is not None:
        found.append(Condition(match["key"], _operator(match["operator"]), match["value"]))
        if match.end() == len(text):
            return tuple(found)
        joint = _AND.match(text, match.end())
        if joint is None:
            return None
        at = joint.end()
    return None


def _operator(words: str) -> str:
    return next(name for pattern, name in _WORDS if re.fullmatch(pattern, words, re.IGNORECASE))
