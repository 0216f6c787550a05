"""Deciding: the order of triggers, precedence of layers, specificity of globs; the texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.budget import Budget, Window
from domain.errors import InvalidPolicy
from domain.handles import Handle
from domain.outcomes import Trigger
from domain.results import Measure
from policies.book import PolicyBook
from policies.decide import decide
from policies.documents import from_toml
from policies.facts import Facts
from policies.outcomes import store
from policies.policy import Offer, Policy

WINDOW = Window(1000, 0, 0)
NAME = Handle("s", "00000000-0000-4000-8000-000000000000")


def facts(size: int, tokens: int, used: int = 0, reserved: int = 0, enforced: bool = True) -> Facts:
    return Facts(Measure(size, 1, size, tokens, True), Budget(1000, used, reserved, enforced))


@pytest.mark.parametrize(
    ("seen", "policy", "trigger"),
    [
        (facts(12_288, 10), Policy(), None),
        (facts(12_289, 10), Policy(), Trigger.SIZE_CAP),
        (facts(12_289, 9999), Policy(), Trigger.SIZE_CAP),
        (facts(99_999, 10), Policy(max_bytes=0), None),
        (facts(10, 10), Policy(max_chars=9), Trigger.SIZE_CAP),
        (facts(10, 11), Policy(max_tokens=10), Trigger.SIZE_CAP),
        (facts(10, 1000), Policy(), None),
        (facts(10, 1001), Policy(), Trigger.TOKEN_BUDGET),
        (facts(10, 601, used=400), Policy(), Trigger.TOKEN_BUDGET),
        (facts(10, 600, used=400, reserved=999), Policy(), None),
        (facts(10, 1001, enforced=False), Policy(), None),
        (facts(99_999, 9999), Policy(bypass=True), None),
    ],
)
def test_the_first_trigger_that_fires_decides(seen: Facts, policy: Policy, trigger: Trigger | None) -> None:
    assert decide(seen, policy) is trigger


@given(st.integers(0, 2000), st.integers(0, 2000), st.integers(0, 2000))
def test_what_fits_and_what_remains_agree(used: int, reserved: int, tokens: int) -> None:
    budget = Budget(1000, used, reserved, True)
    if tokens:
        assert budget.fits(tokens) == (tokens <= budget.remaining_tokens)


def book(*layers: str, overrides: bool = True) -> PolicyBook:
    documents = [from_toml(text, "test") for text in layers]
    return PolicyBook(documents, WINDOW, required=False, overrides=overrides)


def test_request_goes_over_session_over_file() -> None:
    rules = book("[defaults]\nmax_bytes = 1\n", "[tools.t]\nmax_bytes = 2\n")
    assert rules.policy("t").max_bytes == 2
    assert rules.policy("t", '{"max_bytes": 3}').max_bytes == 3
    assert rules.policy("t", '{"max_bytes": 3}', '{"tools": {"t": {"max_bytes": 4}}}').max_bytes == 4


def test_the_operator_may_forbid_requests_their_own_policy() -> None:
    rules = book(overrides=False)
    assert rules.policy("t", '{"max_bytes": 3}').max_bytes == 3
    with pytest.raises(InvalidPolicy):
        rules.policy("t", None, '{"max_bytes": 3}')


def test_a_models_facts_come_from_the_highest_layer() -> None:
    rules = book("[models.m]\ncontext_window = 5\n", '[models.m]\nencoding = "cl100k_base"\n')
    assert rules.terms("m").window == Window(5, 0, 0)
    assert rules.terms("m").enforce is True
    assert rules.model_keys("m")["encoding"] == "cl100k_base"
    assert rules.terms("other").enforce is False


def test_the_handle_message_is_exact() -> None:
    assert store.handle_message(NAME, Measure(5, 4, 3, 2, True), Policy()) == (
        "Tool output is too large (5 bytes, 4 lines, 2 tokens). It is stored.\n"
        f'tool_output(handle = "{NAME}") reads it by query, pattern, lines or extract.'
    )


def test_the_handle_message_of_ai_agent_is_exact() -> None:
    assert store.handle_message(NAME, Measure(5, 4, 3, 2, True), Policy(offer=(Offer.ASK,))) == (
        "Tool output is too large (5 bytes, 4 lines, 2 tokens).\n"
        f'Call tool_output(handle = "{NAME}", extract = "what to extract").\n'
        "The handle is a relative path under the tool_output root.\n"
        "Provide precise and detailed instructions in `extract` about what you are looking for."
    )
