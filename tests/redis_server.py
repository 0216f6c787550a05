"""A real redis-server of a test's own, on a free loopback port."""

import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import pytest

from storage.base import bounded
from storage.redis import connection
from tests.moved_clock import MovedClock
from tests.redis_time import tell_scripts_the_time

HOST = "127.0.0.1"
PRIMARIES = 3
SLOTS = 16384
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


_PORTS_OF_A_WORKER = 1_250
_numbers = itertools.count(os.getpid())


def free_port() -> int:
    """Below the ports of outgoing connections, as is that of a cluster's bus, 10000 above; both are free.
    Each of up to eight workers has its own ports, in turn: a server may start later than its port is
    chosen."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    for _ in range(100):
        port = 10_240 + worker % 8 * _PORTS_OF_A_WORKER + next(_numbers) % _PORTS_OF_A_WORKER
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
        clock: MovedClock | None = None,
    ) -> None:
        self.host = HOST
        self.port = free_port()
        self.url = f"redis://{HOST}:{self.port}/0"
        self.directory = directory
        self._log = directory / "log"
        self._config = [] if config is None else [str(config)]
        self._options = ["--appendonly", "no" if aof == "no" else "yes"]
        self._options += [] if aof == "no" else ["--appendfsync", aof]
        self._options += options
        self._environment = {**os.environ, **({} if clock is None else clock.environment)}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when it answers, its AOF loaded. Raises AssertionError with its log if it ends."""
        self.directory.mkdir(parents=True, exist_ok=True)
        place = ["--bind", HOST, "--port", str(self.port), "--dir", str(self.directory), "--save", ""]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [redis_binary(), *self._config, *place, *self._options],
                stdout=log,
                stderr=log,
                env=self._environment,
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
    """Three primaries with a third of the slots each, and as many replicas as asked for. `options` are
    redis-server's own."""

    def __init__(
        self,
        directory: Path,
        *,
        replicas: int = 0,
        timeout_ms: int = 60_000,
        options: Sequence[str] = (),
        clock: MovedClock | None = None,
    ) -> None:
        """`clock`: that of the first node."""
        clustered = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(timeout_ms)]
        # A replica may take over however long it was away from its primary.
        clustered += ["--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"]
        self.nodes = [
            RedisServer(
                directory / f"node-{n}",
                aof="always",
                options=[*clustered, *options],
                clock=None if n else clock,
            )
            for n in range(PRIMARIES + replicas)
        ]
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
            # Nodes with equal epochs agree on others later, and until then on no slot that moves.
            assert node.ask("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1)) == b"+OK\r\n"
            node.ask("CLUSTER", "MEET", HOST, str(self.nodes[0].port))
        primaries = self.nodes[:PRIMARIES]
        for number, node in enumerate(primaries):
            first, last = number * SLOTS // PRIMARIES, (number + 1) * SLOTS // PRIMARIES - 1
            assert node.ask("CLUSTER", "ADDSLOTSRANGE", str(first), str(last)) == b"+OK\r\n"
        for number, node in enumerate(self.nodes[PRIMARIES:]):
            primary = text_of_reply(primaries[number].ask("CLUSTER", "MYID"))
            _until(lambda: node.ask("CLUSTER", "REPLICATE", primary) == b"+OK\r\n")  # noqa: B023
        self.until_well()

    def until_well(self) -> None:
        """Every node runs and agrees, and every replica follows its primary."""
        _until(lambda: all(_is_well(node) for node in self.nodes))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
            node.stop()

    def ask(self, *command: str) -> None:
        """The same of every node."""
        for node in self.nodes:
            assert not node.ask(*command).startswith(b"-")


def is_primary(node: RedisServer) -> bool:
    return b"$6\r\nmaster" in node.ask("ROLE")


def text_of_reply(reply: bytes) -> str:
    """The text of a bulk string or an integer."""
    lines = reply.decode().split("\r\n")
    return lines[1] if reply.startswith(b"$") else lines[0][1:]


def _is_well(node: RedisServer) -> bool:
    try:
        agrees = b"cluster_state:ok" in node.ask("CLUSTER", "INFO")
        return agrees and (is_primary(node) or b"master_link_status:up" in node.ask("INFO", "replication"))
    except OSError:
        return False


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _FORM_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "the nodes do not form a cluster"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis"), aof="always") as server:
        yield server


@pytest.fixture
def patient_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine does not make Redis seem slow."""
    for name in ("CONNECT_SECONDS", "REQUEST_SECONDS", "BUSY_SECONDS"):
        monkeypatch.setattr(bounded, name, 60.0)
    monkeypatch.setattr(connection, "AOF_SECONDS", 60.0)


@pytest.fixture
def redis_time(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a test has a clock of its own, the time of Redis is that of this clock."""
    if "clock" in request.fixturenames:
        tell_scripts_the_time(monkeypatch, request.getfixturevalue("clock"))


@pytest.fixture
def redis_url(redis_server: RedisServer, patient_redis: None, redis_time: None) -> str:
    """The URL of the server that all tests share, emptied for this one."""
    assert redis_server.ask("FLUSHALL") == b"+OK\r\n"
    return redis_server.url


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    with RedisCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def redis_cluster_url(redis_cluster: RedisCluster, patient_redis: None, redis_time: None) -> str:
    """The URL of a cluster, emptied for this test."""
    redis_cluster.ask("FLUSHALL")
    return redis_cluster.url
