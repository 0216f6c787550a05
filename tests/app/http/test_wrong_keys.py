"""Wrong keys are answered slowly, right ones at once; pages behind a key."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.http.edge import access, wrong_keys
from app.http.edge.wrong_keys import FREE, MOST_ADDRESSES, WrongKeys
from app.settings import load_settings
from domain.errors import ConfigError
from tests.conftest import Serve
from tests.keys import by, key_file

pytestmark = pytest.mark.anyio

PAGES = (
    "/ui",
    "/ui/main.js",
    "/docs",
    "/docs/errors",
    "/openapi.json",
    "/healthz",
    "/",
    "/swagger/swagger-ui.css",
)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return key_file(tmp_path / "keys", "red:agent", "ops:admin:admin")


class Waits:
    """Stands in for the clock: each wait is noted, and lasts until `over`."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.over = asyncio.Event()
        self.now = 0.0

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await self.over.wait()


async def test_a_wrong_key_waits_and_a_right_key_of_the_same_address_does_not(
    serve: Serve, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits()
    monkeypatch.setattr(access, "WrongKeys", lambda: WrongKeys(waits.sleep))
    async with serve(storage_url="memory:", api_keys_file=keys) as client:
        for _ in range(FREE):
            assert (await client.get("/sessions", headers=by("wrong"))).status_code == 401
        assert waits.seconds == []
        slow = [asyncio.create_task(client.get("/sessions", headers=by("wrong"))) for _ in range(8)]
        async with asyncio.timeout(30):
            while len(waits.seconds) < len(slow):
                await asyncio.sleep(0.01)
        assert (await client.get("/sessions", headers=by("agent"))).status_code == 200
        assert (await client.get("/sessions")).status_code == 401
        assert not any(task.done() for task in slow)
        waits.over.set()
        assert {(await task).status_code for task in slow} == {401}
    assert waits.seconds == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]


async def test_the_waits_are_by_address_are_forgotten_and_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = Waits()
    waits.over.set()
    wrong = WrongKeys(waits.sleep, lambda: waits.now)
    for _ in range(FREE + 1):
        await wrong.delay("203.0.113.7")
    await wrong.delay("203.0.113.8")
    assert waits.seconds == [0.1]
    waits.now = 61.0
    await wrong.delay("203.0.113.7")
    assert waits.seconds == [0.1]
    for number in range(MOST_ADDRESSES + 10):
        await wrong.delay(f"address-{number}")
    assert len(wrong._counts) == MOST_ADDRESSES
    monkeypatch.setattr(wrong_keys, "FREE", 0)
    monkeypatch.setattr(wrong_keys, "MOST_WAITING", 2)
    waits.over.clear()
    waiting = [asyncio.create_task(wrong.delay("a")) for _ in range(2)]
    await asyncio.sleep(0)
    await wrong.delay("a")
    waits.over.set()
    await asyncio.gather(*waiting)


async def described(client: httpx.AsyncClient, path: str = "/healthz") -> dict[str, Any]:
    """What the document says of a GET, read with a key."""
    paths = (await client.get("/openapi.json", headers=by("agent"))).json()["paths"]
    of_path: dict[str, Any] = paths[path]["get"]
    return of_path


async def test_pages_need_a_key_where_that_is_asked_for(serve: Serve, keys: Path) -> None:
    async with serve(storage_url="memory:", api_keys_file=keys) as client:
        for path in PAGES:
            assert (await client.get(path)).status_code in (200, 307)
        assert {} in (await described(client))["security"]
    async with serve(storage_url="memory:", api_keys_file=keys, key_for_pages=True) as client:
        for path in PAGES:
            assert (await client.head(path)).status_code == 401
            refused = await client.get(path)
            assert (refused.status_code, refused.headers["www-authenticate"][:5]) == (401, "Basic")
            assert (await client.get(path, auth=("", "wrong"))).status_code == 401
            assert (await client.get(path, headers={"Authorization": "Basic %%%"})).status_code == 401
            for key in ("agent", "admin"):
                assert (await client.get(path, headers=by(key))).status_code in (200, 307)
                assert (await client.get(path, auth=("me", key))).status_code in (200, 307)
        for path in ("/livez", "/readyz"):
            assert (await client.get(path)).status_code == 200
            assert (await described(client, path))["security"] == []
        healthz = await described(client)
        assert (healthz["security"], "401" in healthz["responses"]) == ([{"bearer": []}, {"basic": []}], True)
        # A login that a browser adds by itself opens no other route.
        api = await client.get("/sessions", auth=("", "agent"))
        assert (api.status_code, api.headers["www-authenticate"]) == (401, "Bearer")


def test_pages_behind_a_key_need_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPILLGATE_KEY_FOR_PAGES", "true")
    with pytest.raises(ConfigError, match="KEY_FOR_PAGES needs"):
        load_settings()
