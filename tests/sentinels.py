"""A primary, its replicas and three sentinels, all real."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.redis_server import HOST, RedisServer, is_primary

SERVICE = "mymaster"
OFTEN = ("INFO-PERIOD", "500", "PUBLISH-PERIOD", "500")
"""A sentinel looks for replicas and says that it is there every half second, not every ten and two. After
four such seconds it tells an old primary to follow the new one."""


@dataclass
class Watched:
    """`nodes`: the first was the primary at the start."""

    nodes: list[RedisServer]
    sentinels: list[RedisServer]

    @property
    def url(self) -> str:
        hosts = ",".join(f"{HOST}:{one.port}" for one in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}"

    @property
    def primary(self) -> RedisServer:
        """As the first sentinel names it."""
        named = self.sentinels[0].ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return next(one for one in self.nodes if str(one.port).encode() in named.split())

    def fail_over(self) -> None:
        assert self.sentinels[0].ask("SENTINEL", "FAILOVER", SERVICE) == b"+OK\r\n"

    async def until_well(self) -> None:
        """The sentinels know each other and all replicas, and these follow the primary."""
        while not (
            all(self._knows_all(one) for one in self.sentinels)
            and all(_follows(one) for one in self.nodes if one is not self.primary)
        ):
            await asyncio.sleep(0.05)

    def _knows_all(self, sentinel: RedisServer) -> bool:
        said = sentinel.ask("SENTINEL", "MASTER", SERVICE)
        others, replicas = len(self.sentinels) - 1, len(self.nodes) - 1
        return all(
            f"{name}\r\n$1\r\n{count}\r\n".encode() in said
            for name, count in (("num-other-sentinels", others), ("num-slaves", replicas))
        )


def _follows(node: RedisServer) -> bool:
    return not is_primary(node) and b"master_link_status:up" in node.ask("INFO", "replication")


@contextmanager
def watched(place: Path, *, replicas: int = 1, options: tuple[str, ...] = ()) -> Iterator[Watched]:
    given = ["--repl-diskless-sync-delay", "0", "--replica-announce-ip", HOST, *options]
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(RedisServer(place / f"node-{n}", aof="always", options=given))
            for n in range(1 + replicas)
        ]
        for node in nodes[1:]:
            node.ask("REPLICAOF", HOST, str(nodes[0].port))
        while not all(_follows(node) for node in nodes[1:]):
            time.sleep(0.01)
        sentinels = []
        for n in range(3):
            config = place / f"sentinel-{n}.conf"
            config.write_text(
                f"sentinel monitor {SERVICE} {HOST} {nodes[0].port} 2\n"
                f"sentinel down-after-milliseconds {SERVICE} 1000\n"
                f"sentinel failover-timeout {SERVICE} 5000\n"
            )
            server = RedisServer(place / f"sentinel-{n}", config=config, options=["--sentinel"])
            sentinels.append(stack.enter_context(server))
            # Before Redis 7.0 it is not a command, and all takes longer.
            server.ask("SENTINEL", "DEBUG", *OFTEN)
        yield Watched(nodes, sentinels)
