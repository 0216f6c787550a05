"""What the model reads instead of a result: one module for each outcome, named as its `OutcomeKind`."""

from importlib import import_module
from typing import Protocol, cast

from domain.outcomes import OutcomeKind
from domain.results import Measure
from policies.oversized import Ends, Oversized
from policies.policy import Policy


class Template(Protocol):
    """Writes the text that the model reads instead of a result. `CUTS`: the text shows a part of the result,
    and must be within every size cap."""

    CUTS: bool

    def ends(self, measure: Measure, policy: Policy) -> Ends:
        """How much of the result `text` needs."""
        ...

    def text(self, oversized: Oversized) -> str | None:
        """Returns the text; None if the outcome has nothing to leave out, or no room for its text. `store`
        never returns None."""
        ...


class OutcomeModule(Template, Protocol):
    """`MUST_SAVE`: the result passes if the text would not be clearly smaller. False for `reject`, which says
    what to do instead, and for `cap`, which is a ceiling."""

    MUST_SAVE: bool

    def tokens(self, measure: Measure, policy: Policy, message_tokens: int) -> int:
        """Estimates the tokens of the text from sizes alone. `message_tokens`: the tokens of a usual handle
        message."""
        ...


OUTCOMES: dict[OutcomeKind, OutcomeModule] = {
    kind: cast(OutcomeModule, import_module(f"{__name__}.{kind}"))
    for kind in OutcomeKind
    if kind is not OutcomeKind.PASS
}
