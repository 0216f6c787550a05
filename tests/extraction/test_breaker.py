"""When calls are kept away from a model, and when one is let through."""

from extraction.breaker import Breaker


def test_a_breaker_opens_after_five_failures_in_a_row() -> None:
    breaker = Breaker(lambda: 0.0)
    for _ in range(4):
        breaker.begin().failed()
    breaker.begin().succeeded()
    for _ in range(4):
        breaker.begin().failed()
    breaker.begin().dropped()
    assert breaker.admits
    breaker.begin().failed()
    assert not breaker.admits


def test_after_its_pause_a_breaker_admits_one_call() -> None:
    now = 0.0
    breaker = Breaker(lambda: now)
    for _ in range(5):
        breaker.begin().failed()
    for pause in (10, 20, 40, 60, 60):
        now += pause - 1
        assert not breaker.admits
        now += 1
        assert breaker.admits
        probe = breaker.begin()
        assert not breaker.admits
        probe.failed()
        assert not breaker.admits
    now += 60
    breaker.begin().succeeded()
    assert breaker.admits
    # And all is as at the beginning.
    for _ in range(5):
        breaker.begin().failed()
    now += 10
    assert breaker.admits


def test_a_probe_that_tells_nothing_lets_the_next_one_through() -> None:
    now = 0.0
    breaker = Breaker(lambda: now)
    earlier = breaker.begin()
    for _ in range(5):
        breaker.begin().failed()
    now = 10.0
    probe = breaker.begin()
    # Of a call that began before: neither ends the probe nor doubles the pause.
    earlier.failed()
    assert not breaker.admits
    probe.dropped()
    assert breaker.admits
    probe.failed()
    assert breaker.admits


def test_a_late_success_closes_an_open_breaker() -> None:
    breaker = Breaker(lambda: 0.0)
    slow = breaker.begin()
    for _ in range(5):
        breaker.begin().failed()
    slow.succeeded()
    assert breaker.admits
