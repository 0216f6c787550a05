"""A real redis-server of a test's own, on a free loopback port."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import pytest
from redis._parsers import AsyncCommandsParser

from storage.redis import connection, url

HOST = "127.0.0.1"
_FORM_SECONDS = 60.0


def redis_binary() -> str:
    """Skips the test where no redis-server is installed."""
    found = shutil.which("redis-server")
    if found is None:
        pytest.skip("redis-server is not installed: apt-get install redis-server, or brew install redis.")
    return found


def has_waitaof() -> bool:
    """Whether the server is Redis 7.2 or newer."""
    said = subprocess.run([redis_binary(), "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"v=(\d+)\.(\d+)", said)
    assert version is not None, said
    return (int(version[1]), int(version[2])) >= (7, 2)


def free_port() -> int:
    """Below the ports of outgoing connections, as is that of a cluster's bus, 10000 above; both are free."""
    for _ in range(100):
        port = 10_240 + int.from_bytes(os.urandom(2)) % 12_000
        with socket.socket() as probe, socket.socket() as bus:
            try:
                probe.bind((HOST, port))
                bus.bind((HOST, port + 10_000))
            except OSError:
                continue
        return port
    raise AssertionError


class RedisServer:
    """Keeps its port and its directory over `kill` and `start`. `options` are redis-server's own, as in
    `("--maxmemory", "20mb")`."""

    def __init__(
        self,
        directory: Path,
        *,
        aof: Literal["no", "everysec", "always"] = "no",
        options: Sequence[str] = (),
        config: Path | None = None,
    ) -> None:
        self.host = HOST
        self.port = free_port()
        self.url = f"redis://{HOST}:{self.port}/0"
        self._directory = directory
        self._log = directory / "log"
        self._config = [] if config is None else [str(config)]
        self._options = ["--appendonly", "no" if aof == "no" else "yes"]
        self._options += [] if aof == "no" else ["--appendfsync", aof]
        self._options += options
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when it answers, its AOF loaded. Raises AssertionError with its log if it ends."""
        self._directory.mkdir(parents=True, exist_ok=True)
        place = ["--bind", HOST, "--port", str(self.port), "--dir", str(self._directory), "--save", ""]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [redis_binary(), *self._config, *place, *self._options], stdout=log, stderr=log
            )
        while not self.answers():
            if (code := self._process.poll()) is not None:
                self._process = None
                raise AssertionError(f"redis-server ended with {code}: {self._log.read_text()[-2000:]}")
            time.sleep(0.01)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9: what it had not written is gone."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """From now on it accepts connections (the kernel does) and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def ask(self, *command: str) -> bytes:
        """One command on a connection of its own; answers the raw reply."""
        packed = f"*{len(command)}\r\n" + "".join(f"${len(part.encode())}\r\n{part}\r\n" for part in command)
        with socket.create_connection((self.host, self.port), timeout=_FORM_SECONDS) as connection:
            connection.sendall(packed.encode())
            reply = b""
            while not reply.endswith(b"\r\n"):
                received = connection.recv(1 << 16)
                if not received:
                    raise ConnectionResetError("redis-server closed the connection")
                reply += received
            return reply

    def answers(self) -> bool:
        try:
            return self.ask("PING") == b"+PONG\r\n"
        except OSError:
            return False

    def log(self) -> str:
        return self._log.read_text()

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        # A paused one would not see the other.
        self._process.send_signal(signal.SIGCONT)
        self._process.send_signal(how)
        self._process.wait()
        self._process = None


class RedisCluster:
    """Three nodes without replicas, a third of the slots each."""

    def __init__(self, directory: Path) -> None:
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "60000"]
        self.nodes = [RedisServer(directory / f"node-{n}", aof="always", options=options) for n in range(3)]
        self.url = f"redis+cluster://{','.join(f'{node.host}:{node.port}' for node in self.nodes)}"

    def __enter__(self) -> Self:
        try:
            self._form()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _form(self) -> None:
        for number, node in enumerate(self.nodes):
            node.start()
            first, last = number * 16384 // 3, (number + 1) * 16384 // 3 - 1
            assert node.ask("CLUSTER", "ADDSLOTSRANGE", str(first), str(last)) == b"+OK\r\n"
            # Nodes with equal epochs agree on others later, and until then on no slot that moves.
            assert node.ask("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1)) == b"+OK\r\n"
            node.ask("CLUSTER", "MEET", HOST, str(self.nodes[0].port))
        deadline = time.monotonic() + _FORM_SECONDS
        while not all(b"cluster_state:ok" in node.ask("CLUSTER", "INFO") for node in self.nodes):
            assert time.monotonic() < deadline, "the nodes do not form a cluster"
            time.sleep(0.05)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
            node.stop()

    def ask(self, *command: str) -> None:
        """The same of every node."""
        for node in self.nodes:
            assert not node.ask(*command).startswith(b"-")


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis"), aof="always") as server:
        yield server


@pytest.fixture
def patient_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine does not make Redis seem slow."""
    for name in ("CONNECT_SECONDS", "NODE_SECONDS"):
        monkeypatch.setattr(url, name, 60.0)
    for name in ("REQUEST_SECONDS", "BUSY_SECONDS", "AOF_SECONDS"):
        monkeypatch.setattr(connection, name, 60.0)


@pytest.fixture
def redis_url(redis_server: RedisServer, patient_redis: None) -> str:
    """The URL of the server that all tests share, emptied for this one."""
    assert redis_server.ask("FLUSHALL") == b"+OK\r\n"
    return redis_server.url


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    place = tmp_path_factory.mktemp("cluster")
    with RedisCluster(place) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setattr(AsyncCommandsParser, "initialize", _initialize_once())
        yield cluster


def _initialize_once() -> Callable[[AsyncCommandsParser, Any], Awaitable[None]]:
    """Each client of a cluster reads the table of all commands, which takes 15 ms: only the first asks."""
    ask, known = AsyncCommandsParser.initialize, dict[str, Any]()

    async def initialize(parser: AsyncCommandsParser, node: Any = None) -> None:
        if not known:
            await ask(parser, node)
            known.update(parser.commands)
        parser.node, parser.commands = node, known

    return initialize


@pytest.fixture
def redis_cluster_url(redis_cluster: RedisCluster, patient_redis: None) -> str:
    """The URL of a cluster, emptied for this test."""
    redis_cluster.ask("FLUSHALL")
    return redis_cluster.url
