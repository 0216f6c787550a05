"""Two replicas over one Redis answer as one ledger in memory does, whatever each has last seen."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from samples import KEY, START, TENANT, WINDOW, FakeClock, entry, handle

from domain.accounting import (
    AccountingEntry,
    EntryDetails,
    EntryFilter,
    EntryStatus,
    EntryType,
    GroupBy,
    Summary,
)
from domain.budget import SessionChange
from domain.errors import SpillgateError
from domain.handles import DEFAULT_SESSION, SessionKey
from domain.outcomes import OutcomeKind, Trigger
from domain.ports import Call, Charge, Ledger
from domain.results import UsageReport
from storage import open_ledger
from storage.redis import connection
from tests.counts import count
from tests.redis_server import RedisCluster, RedisServer

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("patient_redis")]
RETENTIONS = {"session_retention_seconds": 60, "entry_retention_seconds": 600}
KEYS = [KEY, SessionKey(TENANT, "run-2"), SessionKey(TENANT, DEFAULT_SESSION), SessionKey("other", "run-1")]
# Most of what happens happens to one session: there it meets.
OFTEN = (KEY, KEY, KEY, KEY, KEYS[2], *KEYS)
HANDLES = [handle(key.session_id) for key in (KEY, *KEYS)]
Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True)
class Operation:
    """Made once for both ledgers; printed when they disagree."""

    name: str
    args: tuple[Any, ...]

    async def on(self, ledger: Ledger) -> object:
        try:
            return await getattr(ledger, self.name)(*self.args)
        except SpillgateError as error:
            return type(error)


def one_of(draw: Draw, *choices: Any) -> Any:
    return draw(st.sampled_from(choices))


def some_entry(draw: Draw, now: int) -> AccountingEntry:
    # Of what was lost a server knows the shard, which the reference does not have.
    types = [one for one in EntryType if one is not EntryType.LOST]
    key, type, saved = one_of(draw, *OFTEN), one_of(draw, *types), one_of(draw, 0, 1, -3)
    stored = one_of(draw, *[one for one in HANDLES if one.session_id == key.session_id])
    is_stored = saved > 0
    return entry(
        key,
        now - one_of(draw, 0, 0, 3000),
        type=type,
        tool_name=one_of(draw, "read_file", "grep"),
        tool_kind=one_of(draw, None, "shell"),
        strategy=one_of(draw, None, "retrieve"),
        status=one_of(draw, *EntryStatus),
        latency=one_of(draw, 0.0, 0.5, 12.25),
        cost_usd=one_of(draw, 0.0, 0.125),
        tokens_in=one_of(draw, 0, 7),
        tokens_saved=saved,
        model="m" if type is EntryType.LLM else None,
        outcome=OutcomeKind.STORE if is_stored else None,
        trigger=Trigger.SIZE_CAP if is_stored else None,
        details=EntryDetails(
            str(stored) if is_stored else None, bytes=abs(saved), observed_tokens_saved=2 * saved
        ),
    )


def some_charge(draw: Draw, now: int) -> Charge:
    one = some_entry(draw, now)
    return Charge(
        SessionKey(one.tenant, one.session_id),
        one_of(draw, 0, 0, 0, 1, 2),
        one_of(draw, 0, 1, 300, 300, 700, 1001),
        one,
        WINDOW,
        draw(st.booleans()),
        one_of(draw, None, "a", "b"),
        one_of(draw, "f", "f", "g"),
        one_of(draw, None, "stored ü"),
    )


def some_report(draw: Draw) -> UsageReport:
    return UsageReport(one_of(draw, 0, 500, 900), one_of(draw, None, 1, 1, 2, 3))


def some_change(draw: Draw) -> SessionChange:
    return SessionChange(
        draw(st.frozensets(st.sampled_from(["context_window", "buffer_tokens", "model", "policy"]))),
        context_window=one_of(draw, None, 700),
        buffer_tokens=one_of(draw, None, 0, 50),
        model=one_of(draw, None, "m"),
        policy=one_of(draw, None, '{"ü": 1}'),
    )


def some_filter(draw: Draw) -> EntryFilter:
    return EntryFilter(
        one_of(draw, TENANT, "other"),
        one_of(draw, None, None, "run-1"),
        one_of(draw, None, None, EntryType.TOOL),
        one_of(draw, None, None, "grep"),
        one_of(draw, None, None, Trigger.SIZE_CAP),
        one_of(draw, None, None, OutcomeKind.STORE),
        one_of(draw, None, None, EntryStatus.OK),
        one_of(draw, None, None, START + 9_000),
        one_of(draw, None, None, START + 30_000),
    )


def some_operation(draw: Draw, now: int) -> Operation:
    name = one_of(
        draw,
        *("reserve", "settle", "enter", "append", "put_session", "report", "end", "session"),
        *("keep_finding", "finding", "stored_at", "summary", "sessions"),
    )
    key, text, epoch = one_of(draw, *OFTEN), one_of(draw, "n", "m"), one_of(draw, 0, 1)
    if name in ("reserve", "settle"):
        return Operation(name, (some_charge(draw, now),))
    if name == "enter":
        report = some_report(draw) if draw(st.booleans()) else None
        return Operation(
            name, (Call(key, WINDOW, draw(st.booleans()), one_of(draw, None, "a", "b"), report),)
        )
    arguments: dict[str, Callable[[], tuple[Any, ...]]] = {
        "append": lambda: (some_entry(draw, now),),
        "put_session": lambda: (key, some_change(draw)),
        "report": lambda: (key, some_report(draw)),
        "keep_finding": lambda: (key, epoch, text, f"{text} {now}"),
        "finding": lambda: (key, epoch, text),
        "stored_at": lambda: (key.tenant, one_of(draw, *HANDLES)),
        "summary": lambda: (
            replace(some_filter(draw), tenant=one_of(draw, TENANT, "other", None)),
            *draw(st.lists(st.sampled_from(GroupBy), min_size=1, max_size=3, unique=True)),
        ),
        "sessions": lambda: (key.tenant, one_of(draw, 1, 2, 9), None),
    }
    return Operation(name, arguments.get(name, lambda: (key,))())


@dataclass(frozen=True)
class Scene:
    """What happens `after` so many seconds, at one of the replicas."""

    after: int
    sweeps: bool
    replica: int
    operation: Operation


@st.composite
def scenes(draw: Draw) -> list[Scene]:
    now, found = START, []
    for _ in range(draw(st.integers(20, 60))):
        after = one_of(draw, 0, 0, 0, 0, 1, 13, 47)
        now += after * 1000
        found.append(
            Scene(after, one_of(draw, *([False] * 9), True), one_of(draw, 0, 1), some_operation(draw, now))
        )
    return found


@st.composite
def filters(draw: Draw) -> EntryFilter:
    return some_filter(draw)


async def in_pages(ledger: Ledger, wanted: EntryFilter, size: int) -> list[AccountingEntry]:
    found, cursor = [], None
    while True:
        page = await ledger.entries(wanted, size, cursor)
        found += page.entries
        cursor = page.next_cursor
        if cursor is None:
            return found


def by_session(entries: list[AccountingEntry]) -> dict[str, list[AccountingEntry]]:
    """Between sessions the order of a shared ledger may differ a little; within one it must not."""
    return {name: [one for one in entries if one.session_id == name] for _, name in KEYS}


@pytest.fixture(scope="module", params=["redis_server", "redis_cluster"])
def place(request: pytest.FixtureRequest) -> RedisServer | RedisCluster:
    """A cluster refuses a script whose keys are of two slots."""
    found: RedisServer | RedisCluster = request.getfixturevalue(request.param)
    return found


@hypothesis_settings(max_examples=count(5, 200))
@given(scenes=scenes(), wanted=filters(), size=st.sampled_from([1, 3, 1000]))
async def test_they_answer_as_the_reference_does(
    place: RedisServer | RedisCluster,
    monkeypatch: pytest.MonkeyPatch,
    clock: FakeClock,
    scenes: list[Scene],
    wanted: EntryFilter,
    size: int,
) -> None:
    place.ask("FLUSHALL")
    clock.now = START
    monkeypatch.setattr(connection, "SHARDS_SECONDS", 0.0)
    reference = await open_ledger("memory:", clock=clock, **RETENTIONS)
    replicas = [await open_ledger(place.url, clock=clock, **RETENTIONS) for _ in range(2)]
    try:
        for scene in scenes:
            clock.advance(scene.after)
            shared = replicas[scene.replica]
            if scene.sweeps:
                assert set(await shared.sweep()) == set(await reference.sweep())
            operation = scene.operation
            answer, expected = await operation.on(shared), await operation.on(reference)
            if isinstance(answer, Summary) and isinstance(expected, Summary):
                # Redis knows by shard what it has deleted, and so names less that may be missing.
                assert answer.gaps.keys() <= expected.gaps.keys(), operation
                answer = replace(answer, gaps=expected.gaps)
            assert answer == expected, operation
        found = await in_pages(shared, wanted, size)
        assert by_session(found) == by_session(await in_pages(reference, wanted, size))
        for key in KEYS:
            assert await shared.session(key) == await reference.session(key)
    finally:
        for shared in replicas:
            await shared.close()
