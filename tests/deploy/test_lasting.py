"""The settings of the shared shape and of Compose last: the load that the docs promise, in simulated days."""

import hashlib
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from app.runtime import Runtime
from app.sweeper import sweep
from domain.accounting import EntryFilter, GroupBy
from tests.conftest import StillClock, served
from tests.counts import count
from tests.deploy.manifests import Node, environment, option, pod, redis_server, replica, services, size
from tests.deploy.rendered import render_shared
from tests.redis_server import RedisServer
from tests.redis_time import tell_scripts_the_time

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("patient_redis")]

SENT_A_DAY = 1500
"""Load, caps and Redis' memory are smaller by the same factor, so that a day has so many results."""
RESULTS_OF_A_RUN = 50
DAYS = 8
"""A day more than the ledger keeps entries."""
TEAMS = 40
TEXTS = {"passes": 1_000, "is stored": 40_000}
DAY_SECONDS = 86_400

CAPS = (
    "SPILLGATE_STORAGE_MAX_BYTES",
    "SPILLGATE_TENANT_STORAGE_MAX_BYTES",
    "SPILLGATE_LEDGER_TOTAL_MAX_BYTES",
    "SPILLGATE_LEDGER_MAX_BYTES",
    "SPILLGATE_MAX_SESSIONS",
)
OF_THE_PLACE = ("_URL", "_FILE", "_HOST", "_EXPORT")


class Shape(NamedTuple):
    """`results`: how many a day the docs promise. `memory`: `maxmemory` of Redis, in bytes."""

    settings: Mapping[str, str]
    memory: int
    results: int

    @property
    def scale(self) -> int:
        return self.results // SENT_A_DAY


SHARED = Shape(environment(replica), size(option(redis_server["args"], "--maxmemory")), 1_000_000)
_compose = services["redis"]["command"]
COMPOSE = Shape(services["spillgate"]["environment"], size(option(_compose, "--maxmemory")), 300_000)


def a_text(length: int) -> str:
    """Packs to a fifth of its length, as recorded results do on average."""
    chance = random.Random(length)
    return "".join(f"INFO request {chance.randrange(10**6)} of a client ok\n" for _ in range(length))[:length]


def team_of_each_run() -> Iterator[str]:
    """The second team sends half as much as the first, the third a third, and so on."""
    share = {rank: 1 / rank / sum(1 / other for other in range(1, TEAMS + 1)) for rank in range(1, TEAMS + 1)}
    sent = Counter[int]()
    while True:
        behind = {rank: share[rank] * (sent.total() + 1) - sent[rank] for rank in share}
        team = max(behind, key=behind.__getitem__)
        sent[team] += 1
        yield f"team-{team}"


class Simulation:
    """The service as it is shipped, over a real Redis. `shares`: the most of each bound that was used."""

    def __init__(self, shape: Shape, server: RedisServer) -> None:
        self._server, self.clock = server, StillClock()
        self._empty, self._memory = self._used_memory(), shape.memory // shape.scale
        self._teams, self._sent = team_of_each_run(), 0
        self._texts = {name: a_text(length) for name, length in TEXTS.items()}
        self.statuses, self.shares = Counter[int](), defaultdict[str, float](float)
        server.ask("CONFIG", "SET", "maxmemory", str(self._empty + self._memory))

    async def pass_days(self, days: int, keys: Path) -> None:
        async with served(self.clock, storage_url=self._server.url, api_keys_file=keys) as (
            rt,
            self._client,
        ):
            runs = SENT_A_DAY // RESULTS_OF_A_RUN
            for number in range(days * runs):
                await self._run(next(self._teams))
                self.clock.pass_seconds(DAY_SECONDS / runs)
                await sweep(rt, left_behind=False)
                self._forget_what_is_brief()
                if (number + 1) % runs == 0:
                    await self._look(rt)

    async def flood(self, teams: Iterator[str], runs: int, keys: Path) -> dict[str, int]:
        """A run every ten minutes, of small results, faster than entries go by age. Returns what the sums of
        each team say, all of which are complete."""
        self._texts["is stored"] = self._texts["passes"]
        async with served(self.clock, storage_url=self._server.url, api_keys_file=keys) as (
            rt,
            self._client,
        ):
            for number in range(runs):
                await self._run(next(teams))
                self.clock.pass_seconds(600)
                self._forget_what_is_brief()
                if number % 10 == 0:
                    await sweep(rt, left_behind=False)
                    await self._look(rt)
            found = await rt.ledger.summary(EntryFilter(None), GroupBy.TENANT)
        assert found.gaps == {}
        return {str(row.group): row.entries for row in found.rows}

    def _forget_what_is_brief(self) -> None:
        """Redis deletes replies after a minute of its own time. Scripts that are told another time are other
        scripts."""
        once = "return redis.call('UNLINK', 'none', unpack(redis.call('KEYS', '*:once:*')))"
        self._server.ask("EVAL", once, "0")
        self._server.ask("SCRIPT", "FLUSH")

    async def _look(self, rt: Runtime) -> None:
        for share in (one for use in await rt.readiness.tenant_uses() for one in use.shares()):
            self._note(share.quota, share.used, share.cap)
        ledgers = sum(use.bytes for use in (await rt.ledger.usage()).values())
        self._note("ledgers", ledgers, rt.settings.ledger_total_max_bytes)
        self._note("store", await rt.store.stored_bytes(), rt.settings.storage_max_bytes)
        self._note("memory of Redis", self._used_memory() - self._empty, self._memory)

    async def _run(self, team: str) -> None:
        """A run of an agent, which does not end its session. Every twentieth result is stored."""
        run = f"run-{self._sent}"
        for _ in range(RESULTS_OF_A_RUN):
            self._sent += 1
            text = self._texts["passes" if self._sent % 20 else "is stored"]
            call = {
                "session_id": run,
                "tool_call_id": f"call_{self._sent:024d}",
                "tool_name": "execute_shell",
            }
            headers = {"Authorization": f"Bearer {team}"}
            answer = await self._client.post("/results", json=call | {"content": text}, headers=headers)
            self.statuses[answer.status_code] += 1

    def _note(self, bound: str, used: float, cap: float) -> None:
        if cap:
            self.shares[bound] = max(used / cap, self.shares[bound])

    def _used_memory(self) -> int:
        lines = self._server.ask("INFO", "memory").decode().splitlines()
        return int(next(line.partition(":")[2] for line in lines if line.startswith("used_memory:")))


@contextmanager
def set_up(shape: Shape, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Simulation, Path]]:
    names = [f"team-{number}" for number in range(1, TEAMS + 1)]
    keys = folder / "keys"
    keys.write_text("".join(f"{name}:{hashlib.sha256(name.encode()).hexdigest()}:agent\n" for name in names))
    for name, value in shape.settings.items():
        if not name.endswith(OF_THE_PLACE):
            monkeypatch.setenv(name, str(int(value) // shape.scale) if name in CAPS else value)
    with RedisServer(folder / "redis") as server:
        simulation = Simulation(shape, server)
        tell_scripts_the_time(monkeypatch, simulation.clock)
        yield simulation, keys


@pytest.mark.repeated
@pytest.mark.parametrize("shape", [SHARED, COMPOSE][: count(1, 2)], ids=["shared", "compose"][: count(1, 2)])
async def test_the_load_of_the_docs_meets_no_bound_when_the_ledger_has_all_its_days(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: Shape
) -> None:
    with set_up(shape, tmp_path, monkeypatch) as (simulation, keys):
        await simulation.pass_days(DAYS, keys)
    print({name: round(share, 2) for name, share in simulation.shares.items()})
    assert simulation.statuses == {200: DAYS * SENT_A_DAY * 19 // 20, 201: DAYS * SENT_A_DAY // 20}
    assert max(simulation.shares.values()) < 0.9, "from here on alerts fire"
    assert set(CAPS) <= shape.settings.keys()


async def test_twelve_tenants_that_send_too_much_do_not_fill_redis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is below its own cap. All of their entries are in sums."""
    teams = itertools.cycle([f"team-{number}" for number in range(1, 13)])
    with set_up(SHARED, tmp_path, monkeypatch) as (simulation, keys):
        sent = await simulation.flood(teams, runs=300, keys=keys)
    shares = dict(simulation.shares)
    assert shares.pop("memory of Redis") < 0.9
    assert shares.pop("ledgers") < 1.05
    assert shares["ledger_max_bytes"] < 0.6
    assert set(sent.values()) == {25 * RESULTS_OF_A_RUN}


async def test_caps_for_a_smaller_redis_refuse_the_same_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small: Node = next(one for one in render_shared("redis.maxMemory=1Gi") if one["kind"] == "Deployment")
    shape = SHARED._replace(settings=environment(pod(small)["containers"][0]))
    with set_up(shape, tmp_path, monkeypatch) as (simulation, keys):
        await simulation.pass_days(1, keys)
    assert simulation.statuses[507] > 0


def test_the_docs_promise_what_is_simulated() -> None:
    for page, shape in (("operations.md", SHARED), ("deploy.md", COMPOSE)):
        text = (Path(__file__).parents[2] / "docs" / page).read_text()
        assert f"{shape.results:,} results a day" in text
