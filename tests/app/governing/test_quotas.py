"""Quotas of tenants over HTTP: past one of its quotas a tenant is refused, and others are not."""

import asyncio
import errno
import logging
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest

from app.http.edge.rates import RequestRates
from app.models.spend_caps import DailySpend
from app.policy_reload import reload_policies
from domain.accounting import EntryFilter, GroupBy, Summary
from domain.errors import StoreUnavailable, TooManyRequests
from domain.quotas import TenantQuota
from storage.memory import MemoryStore
from storage.sqlite.ledger import MemoryLedger
from tests.conftest import Serve, StillClock
from tests.extraction.backend import Backend
from tests.keys import by, key_file
from tests.redis_server import RedisServer

pytestmark = pytest.mark.anyio

BIG = "word " * 4000
DAY = 86_400


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    lines = ("team-a:full", "team-b:free", "ops:ops:admin:", "ops:scrape:metrics:")
    return key_file(tmp_path / "keys", *lines)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return tmp_path / "policy.toml"


@pytest.fixture
def opened(serve: Serve, keys: Path, policy: Path) -> Callable[..., Any]:
    """Serves with these keys of [tenants.team-a]; keyword arguments are settings."""

    def open_it(quotas: str = "", **settings: Any) -> Any:
        policy.write_text(
            f"[tenants.team-a]\n{quotas}\n[models.m]\ninput_price = 1000.0\noutput_price = 1000.0\n"
        )
        return serve(api_keys_file=keys, policy_file=policy, **settings)

    return open_it


@pytest.fixture
async def backend() -> AsyncIterator[Backend]:
    async with Backend() as started:
        yield started


async def store(client: httpx.AsyncClient, name: str, session: str = "s", **fields: Any) -> httpx.Response:
    sent = {"tool_name": "t", "content": BIG, "session_id": session, **fields}
    return await client.post("/results", json=sent, headers=by(name))


def state_of(client: httpx.AsyncClient) -> Any:
    return client._transport.app.state  # type: ignore[attr-defined]


def check_refused(answer: httpx.Response, status: int, code: str, said: str) -> None:
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code)
    assert said in problem["detail"]
    assert "` under `[tenants.TENANT]` in the policy file" in problem["detail"]
    assert ("retry-after" in answer.headers) == (status == 429)


@pytest.mark.parametrize(
    ("quota", "status", "code", "figure"),
    [
        ("storage_max_bytes = 50000", 507, "tenant_full", "50,000"),
        ("max_sessions = 2", 429, "too_many_sessions", "2"),
    ],
)
async def test_past_a_quota_a_tenant_is_refused_and_another_is_not(
    opened: Callable[..., Any], policy: Path, quota: str, status: int, code: str, figure: str
) -> None:
    async with opened(quota) as client:
        kept = []
        while (refused := await store(client, "full", f"s-{len(kept)}")).status_code == 201:
            kept.append(refused.json()["handle"])
            assert len(kept) < 20
        assert len(kept) >= 2
        check_refused(refused, status, code, f"`{quota.split()[0]}` of {figure}")
        assert refused.json()["stored"] is False
        # Another tenant and the service have room; reads and deletes of this one go on.
        assert (await store(client, "free")).status_code == 201
        assert (await client.get("/readyz")).status_code == 200
        assert (await client.get(f"/results/{kept[0]}/content", headers=by("full"))).text == BIG
        assert (await client.delete("/sessions/s-0", headers=by("full"))).status_code == 204
        if status == 429 or "storage" in quota:
            assert (await store(client, "full", "new")).status_code == 201
        # A higher quota is in force with the next look at the policy file.
        while (await store(client, "full", f"more-{len(kept)}")).status_code == 201:
            kept.append("")
        policy.write_text(policy.read_text().replace(quota, f"{quota}0"))
        await reload_policies(state_of(client))
        assert (await store(client, "full", "again")).status_code == 201


async def test_requests_a_second_are_bounded_for_each_tenant(opened: Callable[..., Any]) -> None:
    # One request at once, and the next after a quarter of an hour.
    async with opened("requests_per_second = 0.001", tenant_requests_per_second=1000.0) as client:
        assert (await client.get("/sessions", headers=by("full"))).status_code == 200
        refused = await store(client, "full")
        check_refused(refused, 429, "too_many_requests", "`requests_per_second` of 0.001")
        assert 900 < int(refused.headers["retry-after"]) <= 1000
        assert refused.json()["stored"] is False
        assert (await store(client, "free")).status_code == 201
        # Operators are not counted, nor are routes without a key; hooks and guardrails let the result pass.
        assert (await client.get("/tenants", headers=by("ops"))).status_code == 200
        assert (await client.get("/readyz", headers=by("full"))).status_code == 200
        payload = {
            "hook_event_name": "PostToolUse",
            "tool_name": "Bash",
            "tool_response": BIG,
            "session_id": "s",
        }
        hook = await client.post("/hooks/codex", json=payload, headers=by("full"))
        assert (hook.status_code, hook.json()) == (200, {})
        guarded = await client.post("/beta/litellm_basic_guardrail_api", json={}, headers=by("full"))
        assert (guarded.status_code, guarded.json()["action"]) == (200, "NONE")
        metrics = (await client.get("/metrics", headers=by("scrape"))).text
        assert 'spillgate_tenant_requests_total{tenant="team-a"} 4.0\n' in metrics
        assert 'spillgate_errors_total{code="too_many_requests"} 3.0' in metrics


def test_a_bucket_fills_at_the_rate_of_its_tenant() -> None:
    now = 0.0
    quotas = {"a": TenantQuota(requests_per_second=4.0), "b": TenantQuota(requests_per_second=0.5)}
    rates = RequestRates(lambda tenant: quotas.get(tenant, TenantQuota()), lambda: now)

    def taken(tenant: str) -> int:
        for number in range(100):
            try:
                rates.take(tenant)
            except TooManyRequests as error:
                waits[tenant] = error.retry_after
                details[tenant] = error.detail
                return number
        return 100

    waits: dict[str, int | None] = {}
    details: dict[str, str] = {}
    assert [taken(tenant) for tenant in ("a", "b", "c")] == [4, 1, 100]
    assert waits == {"a": 1, "b": 2}
    assert "`requests_per_second` of 4. " in details["a"]
    assert "`requests_per_second` of 0.5. " in details["b"]
    now = 0.5
    assert [taken(tenant) for tenant in ("a", "b", "c")] == [2, 0, 100]
    now = 60.0
    assert [taken(tenant) for tenant in ("a", "b", "c")] == [4, 1, 100]


async def test_model_spend_is_bounded_for_a_day_and_a_restart_does_not_forget_it(
    opened: Callable[..., Any], clock: StillClock, backend: Backend
) -> None:
    models = {"llm_base_url": backend.base_url, "llm_models": ("m",), "retention_seconds": 3 * DAY}
    handles = {}

    async def ask(name: str, **fields: Any) -> httpx.Response:
        sent = {"handle": handles[name], "extract": "word", "mode": "full-chunked", **fields}
        return await client.post("/extract", json=sent, headers=by(name))

    async with opened("llm_usd_per_day = 0.01", **models) as client:
        for name in ("full", "free"):
            handles[name] = (await store(client, name)).json()["handle"]
            assert (await ask(name)).json()["status"] == "complete"
        refused = await ask("full")
        check_refused(refused, 429, "spend_reached", "`llm_usd_per_day` of 0.01")
        assert int(refused.headers["retry-after"]) == DAY - clock.now // 1000 % DAY
        assert (await ask("free")).status_code == 200
        # What needs no model is answered, and a model's own tool gets the fallback.
        assert (await ask("full", mode="retrieve")).json()["strategy"] == "retrieve"
        sent = {
            "session_id": "s",
            "name": "tool_output",
            "arguments": {"handle": handles["full"], "extract": "another"},
        }
        told = (await client.post("/tools/call", json=sent, headers=by("full"))).json()["text"]
        assert "the tenant's quota of model spend a day is reached)" in told
        asked = {"type": "extract", "status": "failed"}
        entries = (await client.get("/accounting/entries", params=asked, headers=by("full"))).json()[
            "entries"
        ]
        assert [entry["error"] for entry in entries] == ["spend_reached"]
    async with opened("llm_usd_per_day = 0.01", **models) as client:
        check_refused(await ask("full"), 429, "spend_reached", "`llm_usd_per_day` of 0.01")
        metrics = (await client.get("/metrics", headers=by("scrape"))).text
        assert 'spillgate_tenant_llm_usd_today_cap{tenant="team-a"} 0.01\n' in metrics
        clock.pass_seconds(DAY)
        assert (await ask("full", extract="tomorrow")).json()["status"] == "complete"
        check_refused(await ask("full"), 429, "spend_reached", "`llm_usd_per_day` of 0.01")


class _Read(MemoryLedger):
    """Counts the summaries. Calls `during_read` before it returns one."""

    reads = 0

    async def summary(self, wanted: EntryFilter, *group_by: GroupBy) -> Summary:
        self.reads += 1
        found = await super().summary(wanted, *group_by)
        await anyio.lowlevel.checkpoint()
        self.during_read()
        return found

    def during_read(self) -> None:
        pass


async def test_spend_that_is_added_while_the_ledger_is_read_counts_and_a_failed_read_is_repeated(
    clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = _Read(clock=clock, session_retention_seconds=DAY, entry_retention_seconds=DAY)
    spend = DailySpend(ledger, lambda tenant: TenantQuota(llm_usd_per_day=9), clock, lambda: 0.0)

    def away() -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(ledger, "during_read", away)
    for reads in (1, 2):
        await spend.learn_of(["a"])
        assert (ledger.reads, spend.known()) == (reads, {"a": 0.0})
    monkeypatch.setattr(ledger, "during_read", lambda: spend.add("a", 2.0))
    await asyncio.gather(spend.learn_of(["a"]), spend.learn("a"))
    assert (ledger.reads, spend.known()) == (4, {"a": 4.0})
    await spend.learn_of(["a"])
    assert ledger.reads == 4
    clock.pass_seconds(DAY)
    assert spend.known() == {"a": 0.0}
    await spend.learn_of(["a"])
    assert (ledger.reads, spend.known()) == (5, {"a": 2.0})


async def test_who_is_nearly_full_is_named_to_operators_and_to_the_tenant_itself(
    opened: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "spillgate.readiness")
    place = "`[tenants.team-a]` in the policy file"
    text = f"Tenant team-a uses over 90 % of its quota `max_sessions` of 20 ({place})."

    async def warnings(name: str, path: str = "/readyz") -> list[str]:
        state_of(client).runtime.readiness._checked_at = float("-inf")
        headers = {"x-api-key": name} if path == "/healthz" else by(name)
        answer = await client.get(path, headers=headers if name else {})
        found: list[str] = answer.json()["warnings"]
        return found

    async with opened("max_sessions = 20") as client:
        for number in range(17):
            await client.put(f"/sessions/s-{number}", json={}, headers=by("full"))
        assert await warnings("ops") == []
        await client.put("/sessions/s-17", json={}, headers=by("full"))
        for name in ("ops", "scrape", "full"):
            for path in ("/readyz", "/healthz"):
                (warning,) = await warnings(name, path)
                assert warning.startswith(text)
        for name in ("free", "unknown", ""):
            (warning,) = await warnings(name)
            assert warning == "Tenants over 90 % of a quota: 1. The log and /metrics name them."
        await client.delete("/sessions/s-17", headers=by("full"))
        assert len(await warnings("ops")) == 1
        await client.delete("/sessions/s-16", headers=by("full"))
        assert await warnings("ops") == []
    said = [record.getMessage() for record in caplog.records if text in record.getMessage()]
    assert [one.startswith("This warning has ended: ") for one in said] == [False, True]


async def test_operators_see_what_each_tenant_uses(opened: Callable[..., Any]) -> None:
    async with opened("storage_max_bytes = 100000\nrequests_per_second = 50.0", max_sessions=7) as client:
        for name in ("full", "free"):
            assert (await store(client, name)).status_code == 201
        for name, status in (("full", 403), ("scrape", 403), ("ops", 200)):
            assert (await client.get("/tenants", headers=by(name))).status_code == status
            if status == 403:
                assert (await client.delete("/tenants/team-b", headers=by(name))).status_code == status
        one, two = (await client.get("/tenants", headers=by("ops"))).json()["tenants"]
        assert (one["tenant"], two["tenant"]) == ("team-a", "team-b")
        assert one["storage_max_bytes"] == {"used": len(BIG), "cap": 100_000}
        assert two["storage_max_bytes"] == {"used": len(BIG), "cap": 0}
        assert one["max_sessions"] == two["max_sessions"] == {"used": 1, "cap": 7}
        assert (one["requests_per_second"], two["requests_per_second"]) == (50, 0)
        metrics = (await client.get("/metrics", headers=by("scrape"))).text
        for line in (
            f'stored_bytes{{tenant="team-a"}} {len(BIG)}.0',
            'stored_bytes_cap{tenant="team-a"} 100000.0',
            'stored_bytes_cap{tenant="team-b"} 0.0',
            'sessions{tenant="team-b"} 1.0',
            'sessions_cap{tenant="team-b"} 7.0',
        ):
            assert f"spillgate_tenant_{line}\n" in metrics
        # They are the operator's alone.
        policy = {"tenants": {"team-b": {"max_sessions": 5}}}
        refused = await store(client, "full", policy=policy)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_policy")
        # An agent learns the quotas of its own tenant.
        config = (await client.get("/config", headers=by("full"))).json()
        assert config["quotas"]["storage_max_bytes"] == 100_000
        assert config["set_by"]["quotas"]["storage_max_bytes"] == "policy.toml, [tenants.team-a], line 2"
        assert config["set_by"]["quotas"]["max_sessions"] == "SPILLGATE_MAX_SESSIONS"
        config = (await client.get("/config", headers=by("free"))).json()
        assert config["quotas"]["storage_max_bytes"] == 0
        assert "team-a" not in str(config)


@pytest.fixture(params=["disk", "memory", "redis"])
async def places(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patient_redis: None
) -> AsyncIterator[tuple[dict[str, Any], RedisServer | None]]:
    """Settings of a place to store in, and the Redis in it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    if request.param in ("disk", "memory"):
        yield ({"storage_url": "memory:"} if request.param == "memory" else {}), None
        return
    with RedisServer(tmp_path / "redis", aof="always") as redis:
        yield {"storage_url": redis.url}, redis


async def test_a_deleted_tenant_leaves_nothing_and_others_stay(
    opened: Callable[..., Any], tmp_path: Path, places: tuple[dict[str, Any], RedisServer | None]
) -> None:
    settings, redis = places
    async with opened("max_sessions = 3\nrequests_per_second = 1000", **settings) as client:
        kept = {
            name: (await store(client, name, tool_call_id="c")).json()["handle"] for name in ("full", "free")
        }
        large = (await store(client, "full", "other", content=BIG * 70)).json()["handle"]
        handles = [kept["full"], large]
        if redis is not None:
            redis.kill()
            refused = await client.delete("/tenants/team-a", headers=by("ops"))
            assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
            redis.start()
            async with asyncio.timeout(30):
                while (await client.get("/readyz")).status_code != 200:
                    await asyncio.sleep(0.05)
        assert (await client.delete("/tenants/..%5C", headers=by("ops"))).status_code in (404, 422)
        deleted = await client.delete("/tenants/team-a", headers=by("ops"))
        expected = {"results": len(handles), "sessions": len(handles), "entries": len(handles)}
        assert (deleted.status_code, deleted.json()) == (
            200,
            {"tenant": "team-a", **expected, "complete": True},
        )
        nothing = {"results": 0, "sessions": 0, "entries": 0}
        again = await client.delete("/tenants/team-a", headers=by("ops"))
        assert (again.status_code, again.json()) == (200, {"tenant": "team-a", **nothing, "complete": True})
        assert "team-a" not in (await client.get("/metrics", headers=by("scrape"))).text

        for handle in handles:
            for path in ("", "/content", "/lines"):
                assert (await client.get(f"/results/{handle}{path}", headers=by("full"))).status_code == 404
        assert (await client.get("/sessions", headers=by("full"))).json()["sessions"] == []
        assert (await client.get("/accounting/entries", headers=by("full"))).json()["entries"] == []
        assert (await client.get("/accounting/summary", headers=by("full"))).json()["rows"] == []
        tenants = (await client.get("/tenants", headers=by("ops"))).json()["tenants"]
        assert [one["tenant"] for one in tenants] == ["team-b"]
        if redis is not None:
            names = redis.ask("KEYS", "*team-a*")
            # Replies and counts of entries expire soon.
            brief = re.compile(rb":(?:once|wrote):")
            assert [one for one in names.split() if b"team-a" in one and not brief.search(one)] == []
        assert not list(tmp_path.glob("**/tool_output/team-a"))

        # The other tenant has all of its own; this one may come back, and its calls are new ones.
        assert (await client.get(f"/results/{kept['free']}/content", headers=by("free"))).text == BIG
        assert (await store(client, "full", tool_call_id="c")).status_code == 201
        for name in ("full", "free"):
            asked = {"type": "tool"}
            entries = (await client.get("/accounting/entries", params=asked, headers=by(name))).json()[
                "entries"
            ]
            assert len(entries) == 1


async def test_a_misspelt_tenant_is_not_deleted_and_one_without_a_key_is(
    opened: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = tmp_path / "ledger.db"
    settings = {"ledger_url": f"sqlite://{ledger}"}
    async with opened(**settings) as client:
        assert (await store(client, "full")).status_code == 201
        refused = await client.delete("/tenants/team-aa", headers=by("ops"))
        assert (refused.status_code, refused.json()["code"]) == (404, "tenant_not_found")
        assert "GET /tenants lists" in refused.json()["detail"]
        assert "Deletion of a tenant." not in caplog.text
    # As damage may leave it: counted for no tenant.
    with closing(sqlite3.connect(ledger)) as connection, connection:
        connection.execute("UPDATE entries SET tenant = 'gone'")
    async with opened(**settings) as client:
        deleted = await client.delete("/tenants/gone", headers=by("ops"))
        assert (deleted.status_code, deleted.json()["entries"]) == (200, 1)
        assert (await client.delete("/tenants/gone", headers=by("ops"))).status_code == 404


async def test_a_store_that_fails_does_not_keep_the_sessions_of_a_deleted_tenant(
    opened: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with opened() as client:
        assert (await store(client, "full")).status_code == 201
        with monkeypatch.context() as patched:
            patched.setattr("storage.disk.published.remove", _refused)
            refused = await client.delete("/tenants/team-a", headers=by("ops"))
            assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
        assert (await client.get("/sessions", headers=by("full"))).json()["sessions"] == []
        assert (await client.delete("/tenants/team-a", headers=by("ops"))).json()["results"] == 1


def _refused(name: str, parent: int) -> bool:
    raise PermissionError(errno.EPERM, "Operation not permitted")


async def test_other_requests_run_between_the_steps_of_a_deletion_in_memory(
    opened: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    delete = MemoryStore.delete_tenant

    async def step(kept: MemoryStore, tenant: str) -> int:
        order.append("step")
        asyncio.get_running_loop().call_soon(order.append, "other")
        return await delete(kept, tenant)

    monkeypatch.setattr(MemoryStore, "delete_tenant", step)
    async with opened(storage_url="memory:") as client:
        assert (await store(client, "full")).status_code == 201
        assert (await client.delete("/tenants/team-a", headers=by("ops"))).status_code == 200
    assert order == ["step", "other"] * (len(order) // 2)
