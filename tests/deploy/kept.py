"""Writes tests/deploy/kept/<version>: what this version keeps on disk, in SQLite and in Redis.

Later versions must read it. Run it for each release: `python -m tests.deploy.kept`. `0.1.0` is of the first
build of that version (schema 7 of the database), `0.1.0-last` of its last one, commit d1b2173 (schema 8)."""

import asyncio
import base64
import json
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from app import __version__
from tests.conftest import served
from tests.redis_server import RedisServer
from tests.redis_time import tell_scripts_the_time

PLACE = Path(__file__).with_name("kept")
NOW = 1_790_000_000_000
"""The time at which everything was kept (Unix ms)."""

SESSION = "kept"
SMALL = "".join(f"{number} of 1500 in stock\n" for number in range(1500))
LARGE = "".join(f"line {number % 100} of a page that compresses well\n" for number in range(60_000))
"""Several segments in Redis."""

CONTENTS = {"small": SMALL, "large": LARGE}

Given = dict[str, Any]


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """The service in this process, at the time NOW."""
    with pytest.MonkeyPatch.context() as patch:
        tell_scripts_the_time(patch, lambda: NOW)
        async with served(lambda: NOW, **settings) as (_, client):
            yield client


def call(call_id: str, content: str) -> Given:
    return {"session_id": SESSION, "tool_name": "execute_shell", "tool_call_id": call_id, "content": content}


async def keep(client: httpx.AsyncClient, *, has_large: bool) -> Given:
    """A session with a window, a result that passes, stored ones, a question. Returns what a client sees."""
    session = {"context_window": 100_000, "buffer_tokens": 5_000}
    assert (await client.put(f"/sessions/{SESSION}", json=session)).status_code == 200
    assert (await client.post("/results", json=call("passes", "short"))).status_code == 200
    handles = {}
    for name, content in CONTENTS.items() if has_large else [("small", SMALL)]:
        answer = await client.post("/results", json=call(name, content))
        assert answer.status_code == 201, answer.text
        handles[name] = answer.json()["handle"]
    asked = {"handle": handles["small"], "extract": "the line 1234", "mode": "retrieve"}
    assert (await client.post("/extract", json=asked)).status_code == 200
    return {"handles": handles, **await seen(client, handles)}


async def seen(client: httpx.AsyncClient, handles: dict[str, str]) -> Given:
    """What a client sees of all that is kept, but for the contents: reading them makes entries."""

    async def got(path: str, **params: str) -> Any:
        return (await client.get(path, params=params)).json()

    return {
        "results": {name: await got(f"/results/{handle}") for name, handle in handles.items()},
        "session": await got(f"/sessions/{SESSION}"),
        "entries": (await got("/accounting/entries"))["entries"],
        "summary": (await got("/accounting/summary", group_by="tool_name"))["total"],
    }


def text_of(value: bytes) -> str:
    return base64.b64encode(value).decode()


def bytes_of(text: str) -> bytes:
    return base64.b64decode(text)


def dumped(client: "redis.Redis[bytes]") -> list[list[Any]]:
    """Every key with its type and value, without its expiry, which is by the clock of the server."""
    keys = sorted(client.keys("*"))
    kinds = [client.type(key).decode() for key in keys]
    return [[text_of(key), kind, _value(client, key, kind)] for key, kind in zip(keys, kinds, strict=True)]


def _value(client: "redis.Redis[bytes]", key: bytes, kind: str) -> Any:
    if kind == "string":
        return text_of(client.get(key) or b"")
    if kind == "hash":
        return {text_of(name): text_of(value) for name, value in client.hgetall(key).items()}
    if kind == "set":
        return [text_of(member) for member in sorted(client.smembers(key))]
    if kind == "zset":
        return {text_of(member): score for member, score in client.zrange(key, 0, -1, withscores=True)}
    assert kind == "stream"
    return [
        [number.decode(), {text_of(name): text_of(value) for name, value in fields.items()}]
        for number, fields in client.xrange(key)
    ]


def restore(client: "redis.Redis[bytes]", dump: list[list[Any]]) -> None:
    for name, kind, value in dump:
        key = bytes_of(name)
        if kind == "string":
            client.set(key, bytes_of(value))
        elif kind == "set":
            client.sadd(key, *map(bytes_of, value))
        elif kind == "zset":
            client.zadd(key, {bytes_of(member): score for member, score in value.items()})
        elif kind == "hash":
            client.hset(key, mapping={bytes_of(field): bytes_of(kept) for field, kept in value.items()})
        else:
            for number, fields in value:
                given = {bytes_of(field): bytes_of(kept) for field, kept in fields.items()}
                client.xadd(key, given, id=number)  # type: ignore[arg-type]


def restore_disk(source: Path, state: Path) -> None:
    """Copies a directory. A repository keeps no times: gives info files the time of their last use."""
    shutil.copytree(source / "disk", state)
    for info in state.rglob(".file-*.json"):
        os.utime(info, ns=(NOW * 1_000_000, NOW * 1_000_000))
    with closing(sqlite3.connect(state / "ledger.db")) as connection, connection:
        connection.executescript((source / "ledger.sql").read_text())
    connection.close()


async def write(place: Path, scratch: Path) -> None:
    place.mkdir(parents=True)
    state = scratch / "state"
    async with serving(storage_url=f"disk://{state}") as client:
        on_disk = await keep(client, has_large=False)
    with closing(sqlite3.connect(state / "ledger.db")) as connection, connection:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        lines = [*connection.iterdump(), f"PRAGMA user_version = {version};"]
        (place / "ledger.sql").write_text("\n".join(lines) + "\n")
    connection.close()
    ignored = shutil.ignore_patterns("ledger.db*", "lock", "drafts")
    shutil.copytree(state, place / "disk", ignore=ignored)
    with RedisServer(scratch / "redis", aof="always") as server:
        async with serving(storage_url=server.url) as client:
            in_redis = await keep(client, has_large=True)
        with redis.Redis(port=server.port) as client_of_redis:
            kept = dumped(client_of_redis)
    for name, value in (("redis", kept), ("seen", {"disk": on_disk, "redis": in_redis})):
        (place / f"{name}.json").write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(write(PLACE / __version__, Path(scratch)))
    sys.exit(0)
