"""What a rule may look at, and the thresholds that it holds against it."""

from dataclasses import dataclass

from content.preview import Preview
from domain.budget import Budget
from domain.decisions import OutcomeKind
from domain.results import Measure


@dataclass(frozen=True, slots=True)
class Policy:
    """The thresholds in force for one tool. A size cap of 0 is none of that kind."""

    on_oversize: OutcomeKind = OutcomeKind.STORE
    max_bytes: int = 12_288
    max_chars: int = 0
    max_tokens: int = 0
    preview: Preview = Preview.NONE
    preview_bytes: int = 1024
    bypass: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """One result against its session. `measure` may still be growing: rules fire for good once they fire."""

    measure: Measure
    budget: Budget
