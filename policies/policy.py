"""The policy: the keys that an operator may set, with their types, bounds and defaults."""

import difflib
from dataclasses import field
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from content.text import Preview
from domain.outcomes import OutcomeKind
from domain.structs import frozen_struct


class PolicyMode(StrEnum):
    """`observe`: Spillgate decides and accounts, but passes every result."""

    ENFORCE = "enforce"
    OBSERVE = "observe"


OBSERVE = PolicyMode.OBSERVE


class Repeat(StrEnum):
    """What happens to a result that is byte-equal to an earlier one of its session."""

    PASS = "pass"
    NAME = "name"


NAME = Repeat.NAME


class StoredLog(StrEnum):
    """The level of the log line of a stored result."""

    INFO = "info"
    WARNING = "warning"


class Offer(StrEnum):
    """The tools that a policy offers the model: one for all questions, or one for each kind of question."""

    ONE = "one"
    ASK = "ask"
    GREP = "grep"
    LINES = "lines"
    QUERY = "query"


def one_of(*names: str) -> BeforeValidator:
    """Accepts one of `names`. The error lists them, and says which is the nearest."""

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
    model knows."""

    on_oversize: Oversize = OutcomeKind.STORE
    """What happens to a result that is too large."""
    max_bytes: Size = 12_288
    """Size cap in bytes; 0 = none."""
    max_chars: Size = 0
    """Size cap in characters; 0 = none."""
    max_tokens: Size = 0
    """Size cap in tokens; 0 = none."""
    head_chars: Annotated[int, whole(0, 250_000)] = 2000
    """`truncate`: how many characters are shown."""
    keep: Flag = True
    """Whether `truncate`, `cap`, `reject` and view caps store the whole result, too."""
    stored_log: Annotated[StoredLog, one_of(*StoredLog)] = StoredLog.INFO
    """The level of the log line that says that a result was stored: `info` or `warning`."""
    redact: Annotated[tuple[RedactName, ...], Field(max_length=32)] = ()
    """What is masked in all that a model is shown: `secrets`, and patterns of the policy file by name."""
    preview: Annotated[Preview, one_of(*Preview)] = Preview.NONE
    """What stands below the handle message: `none`, `sketch`, `head`, `head-tail` or `outline`."""
    preview_bytes: Annotated[int, whole(0, 65_536)] = 1024
    """The most bytes of the preview; of a sketch at most 700."""
    repeat: Annotated[Repeat, one_of(*Repeat)] = Repeat.PASS
    """`name`: a result that the session had before becomes one line that names it. `pass`: it is shown."""
    max_rows: Size = 0
    """View cap, applied before the size is judged: rows that are shown; 0 = all."""
    max_line_chars: Size = 0
    """View cap: characters that are shown of each line; 0 = all."""
    reject_rows: Size = 0
    """A result with more rows is rejected, whatever `on_oversize` says; 0 = any number is allowed."""
    suggestion: Annotated[str, Field(strict=True, max_length=1000)] = ""
    """`reject`: the second line of the error; empty = chosen by the kind of tool."""
    tool_names: dict[TextTool, Name] = field(default_factory=dict)
    """The names of tools in texts: `{ grep_content = "Grep", shell = "Bash" }`."""
    offset_base: Annotated[int, whole(0, 1)] = 1
    """Whether `offset` in the arguments of a tool counts lines from 1 or from 0."""
    bypass: Flag = False
    """Whether results always pass."""
    reveal: Flag = False
    """Whether this tool gets handed-on results without masks. Only the policy file may set it."""
    max_chunks: Annotated[int, whole(1, 10_000)] = 1
    """Extraction: a result of at most this many chunks is read whole, a larger one is searched."""
    overlap_percent: Annotated[int, whole(0, 50)] = 10
    """Extraction: the percentage of a chunk that repeats the end of the chunk before it."""
    avg_line_bytes: Annotated[int, whole(0, 1_000_000_000)] = 1000
    """Extraction: with lines of this many bytes or more on average, a result is read whole, not searched."""
    max_answer_bytes: Annotated[int, whole(300, 1_000_000)] = 2560
    """Bytes that passages, matches and rows of an answer seldom exceed; the size cap is the hard limit."""
    offer: Annotated[tuple[Annotated[Offer, one_of(*Offer)], ...], Field(max_length=8)] = (Offer.ONE,)
    """The model's tools: `one`, or any of `ask`, `grep`, `lines`, `query` as tools of their own."""
    extract_models: Annotated[tuple[Name, ...], Field(max_length=32)] = ()
    """Models that extraction asks, in this order; empty = `SPILLGATE_LLM_MODELS`."""
    max_llm_calls: Annotated[int, whole(0, 1_000_000_000)] = 0
    """Model calls that a session may make; 0 = no cap."""
    max_llm_tokens: Annotated[int, whole(0, 1_000_000_000_000)] = 0
    """Tokens of models that a session may spend; 0 = no cap."""
    max_llm_cost_usd: Dollars = 0.0
    """US dollars that a session may spend on models; 0 = no cap."""
    mode: Annotated[PolicyMode, one_of(*PolicyMode)] = PolicyMode.ENFORCE
    """`observe`: decide and account, but pass every result. The same for all tools."""


def may_reject(policy: Policy) -> bool:
    """True if a result may be answered with an error in its place."""
    return policy.on_oversize is OutcomeKind.REJECT or policy.reject_rows > 0
