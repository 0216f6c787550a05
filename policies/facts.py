"""The facts about a result, and the policy keys with their types, bounds and defaults."""

import difflib
from dataclasses import field
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from content.text import Preview
from domain.budget import Budget
from domain.decisions import OutcomeKind
from domain.results import Measure
from domain.structs import frozen_struct


class PolicyMode(StrEnum):
    """`observe`: decides and accounts, but passes every result."""

    ENFORCE = "enforce"
    OBSERVE = "observe"


OBSERVE = PolicyMode.OBSERVE


class Repeat(StrEnum):
    """What becomes of a result that is byte-equal to an earlier one of its session."""

    PASS = "pass"
    NAME = "name"


NAME = Repeat.NAME


class Offer(StrEnum):
    """The model's tools, as a policy offers them: one for all questions, or one for each kind."""

    ONE = "one"
    ASK = "ask"
    GREP = "grep"
    LINES = "lines"
    QUERY = "query"


def one_of(*names: str) -> BeforeValidator:
    """Accepts one of `names`; the error lists them and the nearest."""

    def check(value: object) -> object:
        if isinstance(value, str) and value in names:
            return value
        near = difflib.get_close_matches(value, names, n=1) if isinstance(value, str) else []
        nearest = f"; the nearest is {near[0]}" if near else ""
        raise PydanticCustomError(
            "one_of", "must be one of {names}{nearest}", {"names": ", ".join(names), "nearest": nearest}
        )

    return BeforeValidator(check)


def whole(least: int, most: int) -> object:
    """Accepts integers from `least` to `most`. Refuses true and false."""
    return Field(strict=True, ge=least, le=most)


Size = Annotated[int, whole(0, 1_000_000)]
Flag = Annotated[bool, Field(strict=True)]
Dollars = Annotated[float, Field(strict=True, ge=0, le=1_000_000, allow_inf_nan=False)]
Name = Annotated[str, Field(strict=True, min_length=1, max_length=256)]
RedactName = Annotated[str, Field(strict=True, pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
TextTool = Annotated[
    str,
    one_of(
        *("read_file", "grep_content", "glob_files", "shell", "web_search", "web_fetch"),
        *("tool_output", "tool_output_grep", "tool_output_lines", "tool_output_query"),
    ),
]
"""Names of tools in the texts of outcomes."""
Oversize = Annotated[OutcomeKind, one_of(*(kind for kind in OutcomeKind if kind is not OutcomeKind.PASS))]


@frozen_struct
class Policy:
    """The thresholds in force for one tool. Each field is a key of policy documents, and its type says what
    they may set. A cap of 0 means no cap. `tool_names` maps names of tools in the texts to the names that the
    model knows. `redact`: what is masked in all that a model is shown, "secrets" and names of patterns of the
    policy file."""

    on_oversize: Oversize = OutcomeKind.STORE
    max_bytes: Size = 12_288
    max_chars: Size = 0
    max_tokens: Size = 0
    head_chars: Annotated[int, whole(0, 250_000)] = 2000
    keep: Flag = True
    redact: Annotated[tuple[RedactName, ...], Field(max_length=32)] = ()
    preview: Annotated[Preview, one_of(*Preview)] = Preview.NONE
    preview_bytes: Annotated[int, whole(0, 65_536)] = 1024
    repeat: Annotated[Repeat, one_of(*Repeat)] = Repeat.PASS
    max_rows: Size = 0
    max_line_chars: Size = 0
    reject_rows: Size = 0
    suggestion: Annotated[str, Field(strict=True, max_length=1000)] = ""
    tool_names: dict[TextTool, Name] = field(default_factory=dict)
    offset_base: Annotated[int, whole(0, 1)] = 1
    bypass: Flag = False
    max_chunks: Annotated[int, whole(1, 10_000)] = 1
    overlap_percent: Annotated[int, whole(0, 50)] = 10
    avg_line_bytes: Annotated[int, whole(0, 1_000_000_000)] = 1000
    max_answer_bytes: Annotated[int, whole(300, 1_000_000)] = 2560
    offer: Annotated[tuple[Annotated[Offer, one_of(*Offer)], ...], Field(max_length=8)] = (Offer.ONE,)
    extract_models: Annotated[tuple[Name, ...], Field(max_length=32)] = ()
    max_llm_calls: Annotated[int, whole(0, 1_000_000_000)] = 0
    max_llm_tokens: Annotated[int, whole(0, 1_000_000_000_000)] = 0
    max_llm_cost_usd: Dollars = 0.0
    mode: Annotated[PolicyMode, one_of(*PolicyMode)] = PolicyMode.ENFORCE


@frozen_struct
class Facts:
    """One result and its session's budget. `measure` may still grow: a rule that fired stays fired. `rows`
    are the lines of the whole result, without an empty last line. `is_page`: the call asked for a page, which
    no rule about size rejects."""

    measure: Measure
    budget: Budget
    rows: int = 0
    is_page: bool = False


def has_too_many_rows(facts: Facts, policy: Policy) -> bool:
    """True if the result is rejected for its rows, whatever outcome the policy names."""
    return 0 < policy.reject_rows < facts.rows


def may_reject(policy: Policy) -> bool:
    return policy.on_oversize is OutcomeKind.REJECT or policy.reject_rows > 0
