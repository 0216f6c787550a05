"""Connections to where a key lives: one server, the primary that sentinels name, or a cluster's node."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import AbstractConnection, ConnectionPool, SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import AskError, MovedError, RedisError

from storage.redis_url import RedisUrl

CONNECT_SECONDS = 0.5
_NODE_SECONDS = 1.0
"""A silent node, asked for the cluster's slots: on to the next."""


class Topology(Protocol):
    """A slot is what shares one server; keys with the same hash tag share a slot."""

    is_cluster: bool

    def slot(self, key: str) -> int: ...

    async def slots(self) -> list[int]:
        """One of every server that takes writes."""
        ...

    def connection(
        self, slot: int, redirect: AskError | None
    ) -> AbstractAsyncContextManager[AbstractConnection]:
        """A connected one, alone. `redirect` is what the last one said of this slot (a MovedError, too)."""
        ...

    async def close(self) -> None: ...


def open_topology(url: RedisUrl) -> Topology:
    """Connects to nothing yet."""
    if url.kind == "cluster":
        return _Cluster(url)
    return _Pooled(_sentinel_pool(url) if url.kind == "sentinel" else _single_pool(url))


def _options(url: RedisUrl) -> dict[str, Any]:
    """RESP2 and no driver info: a new connection starts with AUTH and SELECT at most. Without a timeout of
    redis-py's: it would cost a task a command, and the client sets its own."""
    return {
        **url.credentials,
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_timeout": None,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "driver_info": None,
    }


def _single_pool(url: RedisUrl) -> ConnectionPool:
    host, port = url.hosts[0]
    secured = {} if url.tls is None else {"connection_class": SSLConnection, **url.tls}
    options = {"host": host, "port": port, "db": url.db, **secured, **_options(url)}
    return ConnectionPool(max_connections=url.max_connections, **options)


def _sentinel_pool(url: RedisUrl) -> ConnectionPool:
    secured = {} if url.tls is None else {"ssl": True, **url.tls}
    asking = {**_options(url), "username": None, "password": None, **url.sentinel_credentials, **secured}
    # A silent sentinel: on to the next.
    asking["socket_timeout"] = CONNECT_SECONDS
    sentinel = Sentinel(url.hosts, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
    options = {"db": url.db, **secured, **_options(url)}
    return SentinelConnectionPool(  # type: ignore[no-untyped-call]
        url.service, sentinel, max_connections=url.max_connections, **options
    )


class _Pooled:
    is_cluster = False

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    def slot(self, key: str) -> int:
        return 0

    async def slots(self) -> list[int]:
        return [0]

    @asynccontextmanager
    async def connection(self, slot: int, redirect: AskError | None) -> AsyncIterator[AbstractConnection]:
        connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
        try:
            yield connection
        finally:
            await self._pool.release(connection)

    async def close(self) -> None:
        await self._pool.aclose()
        if isinstance(self._pool, SentinelConnectionPool):
            await self._pool.sentinel_manager.aclose()


class _Cluster:
    is_cluster = True

    def __init__(self, url: RedisUrl) -> None:
        secured = {} if url.tls is None else {"ssl": True, **url.tls}
        nodes = [ClusterNode(host, port) for host, port in url.hosts]
        options = {"max_connections": url.max_connections, **secured, **_options(url)}
        options["socket_timeout"] = _NODE_SECONDS
        self._cluster = RedisCluster(startup_nodes=nodes, **options)
        self._nodes = self._cluster.nodes_manager
        self._is_known = False

    def slot(self, key: str) -> int:
        return self._cluster.keyslot(key)

    async def slots(self) -> list[int]:
        await self._know()
        first: dict[str, int] = {}
        for slot, nodes in self._nodes.slots_cache.items():
            first.setdefault(nodes[0].name, slot)
        return list(first.values())

    @asynccontextmanager
    async def connection(self, slot: int, redirect: AskError | None) -> AsyncIterator[AbstractConnection]:
        node = await self._node(slot, redirect)
        connection = node.acquire_connection()
        try:
            await _refresh(connection)
            yield connection
        except RedisError:
            # Whatever it was, the next one asks anew who serves what.
            self._is_known = False
            raise
        finally:
            node.release(connection)

    async def _node(self, slot: int, redirect: AskError | None) -> ClusterNode:
        await self._know()
        if isinstance(redirect, MovedError):
            await self._nodes.move_slot(redirect)
        elif redirect is not None:
            node = self._nodes.get_node(redirect.host, redirect.port)
            if node is not None:
                return node
        return self._nodes.get_node_from_slot(slot)

    async def _know(self) -> None:
        if not self._is_known:
            await self._nodes.initialize()
            self._is_known = True

    async def close(self) -> None:
        await self._nodes.aclose()
        await self._nodes.aclose("startup_nodes")


async def _refresh(connection: AbstractConnection) -> None:
    """Connected, and not one that the server closed meanwhile: a node's pool does not look."""
    if connection.is_connected and await connection.can_read():
        await connection.disconnect(nowait=True)
    await connection.connect()  # type: ignore[no-untyped-call]
