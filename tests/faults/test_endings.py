"""Ending a session deletes what it kept, and never what came after, however the requests interleave."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.governing.body import Body
from app.runtime import Runtime
from app.sweeper import sweep
from content.tokens import load_encoding
from domain.handles import SessionKey
from domain.ports import Charge, Receipt
from tests.conftest import served
from tests.counts import count
from tests.faults.calls import Call, text_of
from tests.faults.service_process import PATIENT, Services
from tests.redis_server import RedisServer
from tests.storage.explorer import walked

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("patient_redis")]

ROUNDS = count(4, 200)
FEWER_ROUNDS = count(2, 100)
POSTS = 10
DEFAULT = "default"


@pytest.fixture(params=["disk", "redis", "memory"])
def storage_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Redis without an append-only file: on a busy disk, it would answer too slowly."""
    if request.param == "redis":
        with RedisServer(tmp_path / "redis") as server:
            yield server.url
    elif request.param == "memory":
        yield "memory:"
    else:
        yield f"disk://{tmp_path}/state"


async def found(client: httpx.AsyncClient, handle: str) -> bool:
    answer = await client.get(f"/results/{handle}")
    assert answer.status_code in (200, 404, 410), answer.text
    return answer.status_code == 200


async def kept_once(client: httpx.AsyncClient, call: Call) -> tuple[str, int] | None:
    """Handle and charged tokens of what was acknowledged; None where the call met the end of its session."""
    answer = await call.send(client)
    assert answer.status_code in (201, 409, 410), answer.text
    if answer.status_code != 201:
        return None
    body = answer.json()
    return body["handle"], load_encoding("o200k_base").count(body["content"])


@pytest.mark.repeated
async def test_a_result_charged_after_the_default_session_was_emptied_is_never_lost(
    services: Services, tmp_path: Path, storage_url: str
) -> None:
    """The session's own count tells which results belong to its new life: exactly those must be found."""
    service = await services.start(tmp_path / "state", PATIENT, storage_url=storage_url)
    lost: list[str] = []
    async with service.client() as client:
        for number in range(ROUNDS):
            calls = [
                Call(DEFAULT, text_of(name := f"{number}-{max(one, 2)}", 13_000), name if one < 4 else None)
                for one in range(POSTS)
            ]
            posting = [asyncio.create_task(kept_once(client, call)) for call in calls]
            for _ in range(number % 12):
                await asyncio.sleep(0)
            assert (await client.delete(f"/sessions/{DEFAULT}")).status_code == 204
            kept = {one for one in await asyncio.gather(*posting) if one is not None}
            there = [one for one in kept if await found(client, one[0])]
            session = (await client.get(f"/sessions/{DEFAULT}")).json()
            reserved, held = session["budget"]["reserved_tokens"], session["stored_results"]
            if (reserved, held) != (sum(tokens for _, tokens in there), len(there)):
                lost.append(f"round {number}: {reserved} tokens, {held} held, {len(there)} found")
    assert lost == []
    assert await service.stop() == 0
    assert service.failures() == []


@pytest.mark.repeated
async def test_a_result_of_a_session_opened_again_twice_at_once_is_never_lost(
    services: Services, tmp_path: Path, storage_url: str
) -> None:
    service = await services.start(tmp_path / "state", PATIENT, storage_url=storage_url)
    path = "/sessions/again"

    async def post(client: httpx.AsyncClient, name: str) -> str:
        while (kept := await kept_once(client, Call("again", text_of(name, 13_000)))) is None:
            pass
        return kept[0]

    async with service.client() as client:
        assert (await client.put(path, json={})).status_code == 200
        for number in range(FEWER_ROUNDS):
            assert (await client.delete(path)).status_code == 204
            posting = [asyncio.create_task(post(client, f"{number}-{one}")) for one in range(4)]
            opened = await asyncio.gather(client.put(path, json={}), client.put(path, json={}))
            assert [answer.status_code for answer in opened] == [200, 200]
            kept = await asyncio.gather(*posting)
            assert [await found(client, handle) for handle in kept] == [True] * len(kept)
    assert await service.stop() == 0


@pytest.mark.repeated
async def test_a_result_of_a_session_opened_again_while_it_is_swept_is_never_lost(storage_url: str) -> None:
    async with served(storage_url=storage_url) as (runtime, client):

        async def sweep_on() -> None:
            while True:
                await sweep(runtime, left_behind=True)
                # A store in memory never waits.
                await asyncio.sleep(0)

        sweeping = asyncio.create_task(sweep_on())
        await client.put("/sessions/swept", json={})
        for number in range(FEWER_ROUNDS):
            await client.delete("/sessions/swept")
            await client.put("/sessions/swept", json={})
            calls = [Call("swept", text_of(f"{number}-{one}", 13_000)) for one in range(3)]
            kept = await asyncio.gather(*[kept_once(client, call) for call in calls])
            assert [one is not None and await found(client, one[0]) for one in kept] == [True] * 3
        assert not sweeping.done()
        sweeping.cancel()


Act = Callable[[httpx.AsyncClient, Runtime], Awaitable[None]]


async def empty_default(client: httpx.AsyncClient, runtime: Runtime) -> None:
    assert (await client.delete(f"/sessions/{DEFAULT}")).status_code == 204


async def open_again(client: httpx.AsyncClient, runtime: Runtime) -> None:
    assert (await client.put("/sessions/run", json={})).status_code == 200


async def sweep_ended(client: httpx.AsyncClient, runtime: Runtime) -> None:
    await sweep(runtime, left_behind=True)


@pytest.mark.parametrize(
    ("session_id", "act"), [(DEFAULT, empty_default), ("run", open_again), ("run", sweep_ended)]
)
async def test_what_is_kept_between_the_end_of_a_session_and_its_deleting_stays(
    storage_url: str, session_id: str, act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(storage_url=storage_url) as (runtime, client):
        earlier = await kept_once(client, Call(session_id, text_of("earlier", 20_000)))
        assert earlier is not None
        if act is not empty_default:
            await runtime.ledger.end(SessionKey("default", session_id))
        deleting = runtime.store.delete_session
        later: list[str] = []
        is_kept = asyncio.Event()

        async def delete_late(key: SessionKey, epoch: int) -> int:
            if not later:
                later.append("")
                assert (await client.put(f"/sessions/{session_id}", json={})).status_code == 200
                kept = await kept_once(client, Call(session_id, text_of("later", 20_000), "call"))
                assert kept is not None
                later[0] = kept[0]
                is_kept.set()
            return await deleting(key, epoch)

        monkeypatch.setattr(runtime.store, "delete_session", delete_late)
        await act(client, runtime)
        # The service's own sweep may have been the first to delete.
        await is_kept.wait()
        assert await found(client, later[0])
        assert not await found(client, earlier[0])
        assert (await client.get(f"/sessions/{session_id}")).json()["stored_results"] == 1


@pytest.mark.parametrize("session_id", [DEFAULT, "run"])
@pytest.mark.parametrize("call_id", [None, "call"])
async def test_a_call_whose_session_ended_after_its_body_was_kept_leaves_nothing(
    storage_url: str, session_id: str, call_id: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(storage_url=storage_url) as (runtime, client):
        await client.put(f"/sessions/{session_id}", json={})
        reserving = runtime.ledger.reserve

        async def reserve_late(charge: Charge) -> Receipt | None:
            assert (await client.delete(f"/sessions/{session_id}")).status_code == 204
            return await reserving(charge)

        monkeypatch.setattr(runtime.ledger, "reserve", reserve_late)
        call = Call(session_id, text_of("late", 20_000), call_id)
        assert (await call.send(client)).status_code == (409 if session_id == DEFAULT else 410)
        assert await runtime.store.stored_bytes() == 0
        monkeypatch.undo()
        await client.put(f"/sessions/{session_id}", json={})
        again = await kept_once(client, call)
        assert again is not None
        assert await found(client, again[0])


async def test_a_twin_that_is_answered_from_a_life_that_is_over_keeps_nothing_in_it(
    storage_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both send one named call; the first is answered, and the session emptied, before the other is
    charged."""
    async with served(storage_url=storage_url) as (runtime, client):
        call = Call(DEFAULT, text_of("twin", 20_000), "call")
        reserving = runtime.ledger.reserve

        async def reserve_late(charge: Charge) -> Receipt | None:
            monkeypatch.setattr(runtime.ledger, "reserve", reserving)
            assert await kept_once(client, call) is not None
            assert (await client.delete(f"/sessions/{DEFAULT}")).status_code == 204
            return await reserving(charge)

        monkeypatch.setattr(runtime.ledger, "reserve", reserve_late)
        assert (await call.send(client)).status_code == 409
        assert await runtime.store.stored_bytes() == 0


@pytest.mark.parametrize("path", [f"/sessions/{DEFAULT}", "/tenants/default"])
async def test_a_retry_whose_session_ended_meanwhile_keeps_nothing_in_the_ended_life(
    storage_url: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(storage_url=storage_url) as (runtime, client):
        call = Call(DEFAULT, text_of("retried", 20_000), "call")
        first = await kept_once(client, call)
        assert first is not None
        finding = runtime.store.find

        async def find_late(tenant: str, handle: object) -> None:
            monkeypatch.setattr(runtime.store, "find", finding)
            assert (await client.delete(path)).is_success

        monkeypatch.setattr(runtime.store, "find", find_late)
        assert (await call.send(client)).status_code == 409
        assert await runtime.store.stored_bytes() == 0
        again = await kept_once(client, call)
        assert again is not None
        # A ledger that has forgotten the tenant counts lives from the first one.
        assert (again[0] == first[0]) == (path == "/tenants/default")
        assert await found(client, again[0])


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("session_id", [DEFAULT, "run"])
async def test_in_any_order_of_steps_what_is_found_is_what_the_session_is_charged_for(
    storage_url: str, session_id: str, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sends of a named call and one of an unnamed one beside the end and the opening of their session.
    Each stops before each call of a port, and one at a time goes on."""
    waiting: list[asyncio.Future[None]] = []

    def stepped(act: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def wait_for_turn(*args: Any) -> Any:
            waiting.append(asyncio.get_running_loop().create_future())
            await waiting[-1]
            return await act(*args)

        return wait_for_turn

    async with served(storage_url=storage_url) as (runtime, client):
        path, name = f"/sessions/{session_id}", text_of("named", 13_000)
        for number, orders in enumerate(walked(seed=1)):
            await client.put(path, json={})
            named = Call(session_id, name, f"call-{number}")
            calls = [named, named, Call(session_id, text_of(f"unnamed-{number}", 13_000))]
            if is_known:
                handle = await kept_once(client, named)
                assert handle is not None
                assert (await client.delete(f"/results/{handle[0]}")).status_code == 204
            with monkeypatch.context() as patched:
                for owner, names in (
                    (runtime.ledger, "enter reserve settle session end put_session"),
                    (runtime.store, "find delete delete_session"),
                    (Body, "publish"),
                ):
                    for one in names.split():
                        patched.setattr(owner, one, stepped(getattr(owner, one)))
                posting = [asyncio.create_task(kept_once(client, call)) for call in calls]
                ending = [
                    asyncio.create_task(client.delete(path)),
                    asyncio.create_task(client.put(path, json={})),
                ]
                while left := [task for task in (*posting, *ending) if not task.done()]:
                    # The sweep at the start may wait among them.
                    if len(waiting) >= len(left):
                        waiting.pop(orders.choose(len(waiting))).set_result(None)
                    await asyncio.sleep(0)
            kept = {one for one in await asyncio.gather(*posting) if one is not None}
            there = [tokens for handle, tokens in kept if await found(client, handle)]
            session = await client.get(path)
            shown = session.json() if session.status_code == 200 else {"budget": {"reserved_tokens": 0}}
            assert shown["budget"]["reserved_tokens"] == sum(there)
            (held,) = await runtime.store.count_results([SessionKey("default", session_id)])
            assert held == len(there)
