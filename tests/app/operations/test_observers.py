"""Several observers: each is told what it overrides, and parts are those of the one that has them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from domain.errors import SpillgateError, StoreFull
from domain.ports import Observer, Observers


class Listening(Observer):
    def __init__(self) -> None:
        self.heard = list[str]()

    def refused(self, error: SpillgateError, route: str, *, carries_result: bool) -> None:
        self.heard.append(f"{error.code} {route} {carries_result}")


class Deeper(Listening):
    def failed(self, reason: str) -> None:
        self.heard.append(reason)

    @contextmanager
    def part(
        self, name: str, tracing: Mapping[str, str] | None = None, method: str | None = None
    ) -> Iterator[None]:
        self.heard.append(f"{name} begins")
        yield
        self.heard.append(f"{name} ends")


def test_each_observer_is_told_what_it_overrides() -> None:
    one, other = Listening(), Deeper()
    observer = Observers(one, Observer(), other)
    with observer.part("reading"):
        observer.refused(StoreFull(), "POST /results", carries_result=True)
        observer.failed("why")
        observer.revealed()
    assert one.heard == ["store_full POST /results True"]
    assert other.heard == ["reading begins", *one.heard, "why", "reading ends"]


def test_without_an_observer_nothing_is_told() -> None:
    observer = Observers()
    with observer.part("reading"):
        observer.failed("why")
