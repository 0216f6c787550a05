"""Where a key lives: a cluster whose slots move, and a primary that sentinels replace."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from domain.errors import StoreUnavailable
from storage.base.bounded import REQUEST_SECONDS
from storage.redis.connection import RedisConnection, open_redis
from tests.redis_server import HOST, RedisCluster, RedisServer, text_of_reply
from tests.stopwatch import Stopwatch

pytestmark = pytest.mark.anyio
NAMES = "spillgate:{t}:names"
OK = b"+OK\r\n"


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[RedisConnection]:
    client = open_redis(url)
    try:
        yield client
    finally:
        await client.close()


async def until_answered(client: RedisConnection) -> bytes:
    """Returns the value of `k`."""
    while True:
        try:
            return bytes(await client.command("GET", "k"))
        except StoreUnavailable:
            await asyncio.sleep(0.02)


def counted(client: RedisConnection, name: str) -> Awaitable[int]:
    """A change: replies how many names there are."""
    return client.batch(("HSET", NAMES, name, b"x"), ("HLEN", NAMES))


async def test_commands_over_many_slots_are_answered_in_their_order(redis_cluster_url: str) -> None:
    async with opened(redis_cluster_url) as client:
        await client.check()
        await client.commands([("SET", f"k{number}", number) for number in range(30)])
        found = await client.commands([("GET", f"k{number}") for number in range(30)])
        assert found == [str(number).encode() for number in range(30)]
        assert [await counted(client, name) for name in "abc"] == [1, 2, 3]


async def test_a_slot_that_moves_is_followed(redis_cluster: RedisCluster, redis_cluster_url: str) -> None:
    nodes = redis_cluster.nodes
    ids = [text_of_reply(node.ask("CLUSTER", "MYID")) for node in nodes]
    slot = text_of_reply(nodes[0].ask("CLUSTER", "KEYSLOT", "{t}"))
    async with opened(redis_cluster_url) as client:
        assert await counted(client, "a") == 1
        source = next(n for n in range(3) if not nodes[n].ask("TYPE", NAMES).startswith(b"-"))
        target = (source + 1) % 3
        assert nodes[target].ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source]) == OK
        assert nodes[source].ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target]) == OK
        # Not there yet: the node says where to ask, on the connection that is to be used.
        assert await client.command("SET", "{t}:new", 1)
        await asyncio.gather(*[client.command("INCR", "{t}:new") for _ in range(20)])
        assert await client.command("INCR", "{t}:new") == 22
        port = str(nodes[target].port)
        assert nodes[source].ask("MIGRATE", HOST, port, "", "0", "60000", "KEYS", NAMES) == OK
        assert await counted(client, "a") == 1
        for number in (target, source, 3 - source - target):
            assert nodes[number].ask("CLUSTER", "SETSLOT", slot, "NODE", ids[target]) == OK
        assert await counted(client, "a") == 1
        assert await client.command("GET", "{t}:new") == b"22"


async def test_a_node_that_was_away_is_used_again(tmp_path: Path) -> None:
    with RedisCluster(tmp_path) as cluster:
        async with opened(cluster.url) as client:
            await client.command("SET", "k", "v")
            for node in cluster.nodes:
                node.kill()
            watch = Stopwatch()
            with pytest.raises(StoreUnavailable):
                await client.command("GET", "k")
            assert watch.seconds < REQUEST_SECONDS + 3
            for node in cluster.nodes:
                node.start()
            while any(b"cluster_state:ok" not in node.ask("CLUSTER", "INFO") for node in cluster.nodes):
                await asyncio.sleep(0.05)
            assert await until_answered(client) == b"v"


async def test_the_primary_that_sentinels_name_is_written_to(tmp_path: Path) -> None:
    replica_of = ["--replica-announce-ip", HOST]
    at_once = ["--repl-diskless-sync-delay", "0"]
    with (
        RedisServer(tmp_path / "a", options=at_once) as primary,
        RedisServer(tmp_path / "b", options=replica_of) as replica,
    ):
        replica.ask("REPLICAOF", HOST, str(primary.port))
        conf = tmp_path / "sentinel.conf"
        conf.write_text(
            f"sentinel monitor mymaster {HOST} {primary.port} 1\n"
            "sentinel down-after-milliseconds mymaster 300\n"
            "sentinel failover-timeout mymaster 2000\n"
        )
        with RedisServer(tmp_path / "s", config=conf, options=["--sentinel"]) as sentinel:
            absent = f"{HOST}:1"
            async with opened(f"redis+sentinel://{HOST}:{sentinel.port}/another") as client:
                with pytest.raises(StoreUnavailable):
                    await client.check()
            async with opened(
                f"redis+sentinel://{absent},{HOST}:{sentinel.port}/mymaster?wait_replicas=0"
            ) as client:
                await client.check()
                await client.command("SET", "k", "v")
                assert primary.ask("GET", "k") == b"$1\r\nv\r\n"
                while replica.ask("GET", "k") != b"$1\r\nv\r\n":
                    await asyncio.sleep(0.05)
                while b"num-slaves\r\n$1\r\n1" not in sentinel.ask("SENTINEL", "MASTER", "mymaster"):
                    await asyncio.sleep(0.05)
                primary.kill()
                assert await until_answered(client) == b"v"
                assert await client.command("SET", "k", "w")
                assert replica.ask("GET", "k") == b"$1\r\nw\r\n"
