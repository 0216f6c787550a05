"""The log of refusals: one line a minute for each tenant and reason, with how many were left out."""

from app.operations.refusals import MOST_REASONS, REPEAT_SECONDS, Repeats
from domain.errors import StoreUnavailable, TenantFull


def test_a_reason_is_logged_once_a_minute_for_each_tenant_and_code() -> None:
    now = 0.0
    repeats = Repeats(lambda: now)
    full, away = TenantFull("Full."), StoreUnavailable("Away.")
    assert repeats.note("a", full) == 0
    assert [repeats.note("a", full) for _ in range(260)] == [None] * 260
    assert (repeats.note("b", full), repeats.note("a", away)) == (0, 0)
    now = REPEAT_SECONDS
    assert repeats.note("a", full) == 260
    now = 2 * REPEAT_SECONDS
    assert repeats.note("a", full) == 0


def test_it_remembers_a_bounded_number() -> None:
    repeats = Repeats()
    for number in range(3 * MOST_REASONS):
        assert repeats.note(f"tenant-{number}", StoreUnavailable()) == 0
    assert len(repeats._logged) <= MOST_REASONS
