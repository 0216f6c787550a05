"""What a rule may look at, and the thresholds that it holds against it."""

from dataclasses import dataclass
from enum import StrEnum

from content.preview import Preview
from domain.budget import Budget
from domain.decisions import OutcomeKind
from domain.results import Measure


class PolicyMode(StrEnum):
    """`observe`: decide and account, but pass everything."""

    ENFORCE = "enforce"
    OBSERVE = "observe"


@dataclass(frozen=True, slots=True)
class Policy:
    """The thresholds in force for one tool. A cap of 0 is none of that kind."""

    mode: PolicyMode = PolicyMode.ENFORCE
    on_oversize: OutcomeKind = OutcomeKind.STORE
    max_bytes: int = 12_288
    max_chars: int = 0
    max_tokens: int = 0
    head_chars: int = 2000
    keep: bool = True
    preview: Preview = Preview.NONE
    preview_bytes: int = 1024
    max_rows: int = 0
    max_line_chars: int = 0
    bypass: bool = False
    max_chunks: int = 1
    overlap_percent: int = 10
    avg_line_bytes: int = 1000
    extract_models: tuple[str, ...] = ()
    max_llm_calls: int = 0
    max_llm_tokens: int = 0
    max_llm_cost_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Facts:
    """One result against its session. `measure` may still be growing: rules fire for good once they fire."""

    measure: Measure
    budget: Budget
