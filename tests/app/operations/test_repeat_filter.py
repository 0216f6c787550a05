"""The log of what repeats itself: one line a minute for each reason, with how often it came in between."""

import pytest

from app.operations.logs import RequestLog, within_request
from app.operations.repeat_filter import MOST_REASONS, REPEAT_SECONDS, RepeatFilter
from domain.errors import StoreFull, StoreUnavailable


def test_a_reason_is_logged_once_a_minute_with_how_often_it_came_in_between() -> None:
    now = 0.0
    logged = RepeatFilter(lambda: now)
    assert logged.note("full") == 0
    assert [logged.note("full") for _ in range(260)] == [None] * 260
    assert logged.note("full", 40) is None
    assert logged.note("away") == 0
    now = REPEAT_SECONDS
    assert logged.note("full") == 300
    now = 2 * REPEAT_SECONDS
    assert logged.note("full") == 0


def test_it_remembers_a_bounded_number() -> None:
    logged = RepeatFilter()
    for number in range(3 * MOST_REASONS):
        assert logged.note(number) == 0
    assert len(logged._logged) <= MOST_REASONS


def test_a_refusal_is_logged_once_a_minute_for_each_tenant_and_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    observer = RequestLog()
    full, away = StoreFull("Full."), StoreUnavailable("Away.")
    for tenant, error in [("a", full), ("a", full), ("b", full), ("a", away), ("b", full)]:
        with within_request({"tenant": tenant}):
            observer.refused(error, "POST /results", carries_result=True)
    assert [record.__dict__["fields"]["code"] for record in caplog.records] == [
        "store_full",
        "store_full",
        "store_unavailable",
    ]
