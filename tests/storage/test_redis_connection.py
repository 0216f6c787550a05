"""The connection to Redis: bounds of time, one retry, and what is known of a server."""

import asyncio
import contextvars
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis_proxy import Proxy

from domain.errors import ConfigError, StorageError, StoreUnavailable
from storage.base import bounded
from storage.base.bounded import BUSY_SECONDS, REQUEST_SECONDS
from storage.redis import connection
from storage.redis.connection import RedisConnection, open_redis
from storage.redis.facts import RedisFacts, worst_of
from storage.redis.url import parse_redis_url
from tests.listening import listening
from tests.redis_server import RedisServer, free_port, has_waitaof
from tests.stopwatch import Stopwatch

pytestmark = pytest.mark.anyio
Client = Callable[[str], RedisConnection]
NAMES = "spillgate:{t}:names"


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """Opens clients; closes them."""
    opened: list[RedisConnection] = []

    def open_it(url: str) -> RedisConnection:
        opened.append(open_redis(url))
        return opened[-1]

    yield open_it
    for one in opened:
        await one.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that a test may stop."""
    with RedisServer(tmp_path / "own", aof="always") as server:
        yield server


def counted(redis: RedisConnection, name: str) -> Awaitable[int]:
    """A change: replies how many names there are."""
    return redis.batch(("HSET", NAMES, name, b"x"), ("PEXPIRE", NAMES, 60_000), ("HLEN", NAMES))


def written(redis: RedisConnection) -> Awaitable[tuple[Any, str]]:
    return redis.durable("batch", (NAMES,), (4, "HSET", NAMES, "one", b"x"))


async def refused(act: Awaitable[Any]) -> tuple[str, float]:
    """What StoreUnavailable says, and after how long."""
    watch = Stopwatch()
    with pytest.raises(StoreUnavailable) as failure:
        await act
    return failure.value.detail, watch.seconds


def as_new_request(act: Coroutine[Any, Any, Any]) -> Awaitable[Any]:
    return asyncio.create_task(act, context=contextvars.Context())


async def recovery(client: RedisConnection) -> float:
    watch = Stopwatch()
    while True:
        try:
            await as_new_request(client.command("GET", "k"))
        except StoreUnavailable:
            await asyncio.sleep(0.01)
        else:
            return watch.seconds


async def test_commands_are_answered_in_their_order(client: Client, redis_url: str) -> None:
    redis = client(redis_url)
    assert await redis.command("SET", "k", b"\x00\xff")
    assert await redis.commands([("GET", "k"), ("GET", "none"), ("STRLEN", "k")]) == [b"\x00\xff", None, 2]
    assert await redis.commands([]) == []


async def test_scripts_that_a_server_has_forgotten_are_sent_again(
    client: Client, redis_server: RedisServer, redis_url: str
) -> None:
    redis = client(redis_url)
    for number, name in enumerate("abc", start=1):
        assert await counted(redis, name) == number
        redis_server.ask("SCRIPT", "FLUSH")


async def test_a_refused_command_fails_its_batch_and_the_connection_goes_on(
    client: Client, redis_url: str
) -> None:
    redis = client(f"{redis_url}?max_connections=1")
    with pytest.raises(StorageError, match=r"6\.2 or newer"):
        await redis.commands([("SET", "k", "text"), ("INCR", "k"), ("SET", "l", 1)])
    assert await redis.commands([("GET", "k"), ("GET", "l")]) == [b"text", b"1"]


async def test_a_lost_reply_is_asked_for_once_more(
    client: Client, redis_server: RedisServer, redis_url: str
) -> None:
    async with Proxy(redis_server.port) as proxy:
        redis = client(proxy.url)
        await counted(redis, "warm")
        proxy.lose(b"EVALSHA")
        assert await counted(redis, "one") == 2
        assert proxy.lost == 1
        proxy.lose(b"EVALSHA", 2)
        assert (await refused(counted(redis, "two")))[0].startswith("Redis cannot be reached")
        assert await recovery(redis) < 5
        assert await counted(redis, "two") == 3
        await redis.close()


async def test_a_server_that_did_not_answer_is_left_alone_for_a_moment(
    client: Client, own: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "AWAY_SECONDS", 60.0)
    redis = client(own.url)
    own.kill()
    why = (await refused(redis.command("GET", "k")))[0]
    assert why.startswith("Redis cannot be reached")
    own.start()
    for _ in range(20):
        assert (await refused(redis.command("GET", "k")))[0] == why


async def test_after_the_moment_one_caller_tries_and_the_others_are_refused(
    client: Client, own: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis = client(own.url)
    own.kill()
    await refused(redis.command("GET", "k"))
    own.start()
    monkeypatch.setattr(redis._place, "_try_at", 0.0)
    answers = await asyncio.gather(*[redis.command("GET", "k") for _ in range(5)], return_exceptions=True)
    assert [type(one) for one in answers] == [type(None), *[StoreUnavailable] * 4]
    assert await redis.command("GET", "k") is None


async def test_a_silent_server_is_waited_for_a_second_at_most(client: Client, own: RedisServer) -> None:
    redis = client(own.url)
    await redis.command("SET", "k", 1)
    own.pause()
    waits = await asyncio.gather(*[refused(redis.command("GET", "k")) for _ in range(100)])
    assert max(seconds for _, seconds in waits) < REQUEST_SECONDS + 1
    await refused(redis.check())
    own.resume()
    assert await recovery(redis) < 5


async def test_a_server_that_accepts_and_never_answers_is_bounded_too(client: Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        for url in (f"redis://user:secret@127.0.0.1:{port}", f"redis+cluster://127.0.0.1:{port}"):
            assert (await refused(client(url).command("GET", "k")))[1] < REQUEST_SECONDS + 1


@pytest.mark.usefixtures("patient_redis")
async def test_it_recovers_within_five_seconds_of_a_restart(client: Client, own: RedisServer) -> None:
    redis = client(own.url)
    await asyncio.gather(*[redis.command("SET", "k", 1) for _ in range(20)])
    own.kill()
    for _ in range(10):
        await refused(redis.command("GET", "k"))
    own.start()
    assert await recovery(redis) < 5
    assert await redis.command("GET", "k") == b"1"


@pytest.mark.usefixtures("patient_redis")
async def test_one_restart_between_two_commands_goes_unnoticed(client: Client, own: RedisServer) -> None:
    redis = client(own.url)
    await asyncio.gather(*[counted(redis, "one") for _ in range(20)])
    own.kill()
    own.start()
    assert await asyncio.gather(*[counted(redis, "one") for _ in range(20)]) == [1] * 20


async def test_a_request_waits_for_slow_answers_no_longer_in_all_than_for_one(client: Client) -> None:
    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeting = (await reader.read(1 << 16)).split(b"\r\n")[-2]
        writer.write(b"+%b\r\n" % greeting)
        while await reader.read(1 << 16):
            await asyncio.sleep(0.4)
            writer.write(b"+late\r\n")

    async with listening(late) as port:
        redis = client(f"redis://127.0.0.1:{port}")
        watch, reason = Stopwatch(), ""
        while not reason:
            try:
                await redis.command("ECHO", "k")
            except StoreUnavailable as error:
                reason = error.detail
        assert "too slowly" in reason
        assert watch.seconds < REQUEST_SECONDS + 1
        assert await as_new_request(redis.command("ECHO", "k")) == b"late"
        await redis.close()


async def test_when_every_connection_is_busy_a_caller_is_told_soon(client: Client, own: RedisServer) -> None:
    redis = client(f"{own.url}?max_connections=1")
    own.pause()
    slow = asyncio.create_task(refused(redis.command("GET", "k")))
    await asyncio.sleep(0.05)
    reason, seconds = await refused(redis.command("GET", "k"))
    assert "busy" in reason
    assert seconds < BUSY_SECONDS + 1
    await slow
    own.resume()
    assert await recovery(redis) < 5


async def test_a_cancelled_command_leaves_no_reply_to_the_next(client: Client, redis_url: str) -> None:
    redis = client(f"{redis_url}?max_connections=2")
    for number in range(50):
        tasks = [asyncio.create_task(redis.command("SET", f"k{n}", n)) for n in range(4)]
        await asyncio.sleep(number * 0.00002)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert await redis.command("ECHO", f"{number}") == f"{number}".encode()


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        (("REPLICAOF", "127.0.0.1", "1"), "read-only replica"),
        (("CONFIG", "SET", "min-replicas-to-write", "1"), "too few replicas"),
    ],
)
@pytest.mark.usefixtures("patient_redis")
async def test_a_server_that_takes_no_writes_is_unavailable(
    client: Client, own: RedisServer, setting: tuple[str, ...], reason: str
) -> None:
    redis = client(own.url)
    await counted(redis, "warm")
    own.ask(*setting)
    for act in (counted(redis, "one"), redis.command("SET", "k", 1), redis.check()):
        assert reason in (await refused(act))[0]


@pytest.mark.usefixtures("patient_redis")
async def test_a_wrong_password_is_unavailable_and_says_so(client: Client, tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        server.ask("ACL", "SETUSER", "spill", "on", ">s3cr#t", "~spillgate:*", "+@all")
        place = f"127.0.0.1:{server.port}"
        with pytest.raises(StoreUnavailable, match="rejected the credentials") as failure:
            await client(f"redis://spill:wrong@{place}").check()
        assert "wrong" not in failure.value.detail
        redis = client(f"redis://spill:s3cr%23t@{place}")
        await redis.check()
        with pytest.raises(StoreUnavailable, match="lacks a permission"):
            await redis.command("SET", "elsewhere", 1)


@pytest.mark.usefixtures("patient_redis")
async def test_a_policy_that_evicts_is_refused_or_warned_of(client: Client, tmp_path: Path) -> None:
    options = ["--maxmemory", "50mb", "--maxmemory-policy", "volatile-ttl"]
    with RedisServer(tmp_path, aof="always", options=options) as server:
        with pytest.raises(StoreUnavailable, match=r"volatile-ttl.*noeviction"):
            await client(server.url).check()
        tolerant = client(f"{server.url}?allow_eviction=true")
        await tolerant.check()
        assert "volatile-ttl" in tolerant.warnings[0]
        server.ask("CONFIG", "SET", "maxmemory", "0")
        redis = client(server.url)
        await redis.check()
        assert redis.warnings == ()


@pytest.mark.usefixtures("patient_redis")
async def test_where_the_policy_may_not_be_asked_for_it_is_unknown(client: Client, tmp_path: Path) -> None:
    with RedisServer(tmp_path, options=["--maxmemory", "50mb"]) as server:
        server.ask("ACL", "SETUSER", "spill", "on", ">secret", "~*", "+@all", "-info", "-config")
        redis = client(f"redis://spill:secret@127.0.0.1:{server.port}")
        await redis.check()
        assert "does not say" in redis.warnings[0]
        assert (await written(redis))[1] == "memory"


@pytest.mark.parametrize("missing", ["evalsha", "hset", "zadd", "xadd"])
@pytest.mark.usefixtures("patient_redis")
async def test_a_user_who_may_not_run_what_a_change_runs_is_not_ready(
    client: Client, tmp_path: Path, missing: str
) -> None:
    with RedisServer(tmp_path) as server:
        server.ask("ACL", "SETUSER", "spill", "on", ">secret", "~*", "+@all", f"-{missing}")
        redis = client(f"redis://spill:secret@127.0.0.1:{server.port}")
        told, _ = await refused(redis.check())
        assert "lacks a permission" in told


@pytest.mark.usefixtures("patient_redis")
async def test_where_only_config_is_forbidden_info_tells_the_policy(client: Client, tmp_path: Path) -> None:
    options = ["--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lfu"]
    with RedisServer(tmp_path, aof="always", options=options) as server:
        server.ask("ACL", "SETUSER", "spill", "on", ">secret", "~*", "+@all", "-config")
        redis = client(f"redis://spill:secret@127.0.0.1:{server.port}")
        with pytest.raises(StoreUnavailable, match="allkeys-lfu"):
            await redis.check()
        # It may be `always`, but the server does not say so: only WAITAOF tells what is on its disk.
        assert (await written(redis))[1] == ("aof" if has_waitaof() else "memory")


@pytest.mark.parametrize(("aof", "promise"), [("no", "memory"), ("everysec", "memory"), ("always", "aof")])
@pytest.mark.usefixtures("patient_redis")
async def test_without_waitaof_only_appendfsync_always_is_durable(
    client: Client, tmp_path: Path, aof: Any, promise: str
) -> None:
    with RedisServer(tmp_path, aof=aof) as server:
        redis = client(server.url)
        assert (await written(redis))[1] == ("aof" if has_waitaof() and aof != "no" else promise)


@pytest.mark.usefixtures("patient_redis")
async def test_a_server_that_is_set_up_otherwise_meanwhile_is_not_believed(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FACTS_SECONDS", 0.0)
    with RedisServer(tmp_path, aof="always") as server:
        redis = client(server.url)
        assert (await written(redis))[1] == "aof"
        server.ask("CONFIG", "SET", "appendfsync", "everysec")
        assert (await written(redis))[1] == ("aof" if has_waitaof() else "memory")


def test_a_cluster_promises_what_all_of_its_servers_do() -> None:
    older = RedisFacts(has_aof=True, fsync="always", policy="noeviction", maxmemory=0, can_wait=False)
    newer = RedisFacts(has_aof=True, fsync="everysec", policy="noeviction", maxmemory=0, can_wait=True)
    bare = RedisFacts(has_aof=False, fsync="always", policy="noeviction", maxmemory=0, can_wait=False)
    assert worst_of([older]).durability == worst_of([newer, newer]).durability == "aof"
    for found in ([older, newer], [newer, older], [older, bare], [bare, newer]):
        assert worst_of(found).durability == "memory"


class Newer:
    """A server that has WAITAOF, so far as the client looks."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.asked: list[list[bytes]] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said: list[bytes] = []
        self.asked.append(said)
        info = b"redis_version:7.2.4\r\naof_enabled:1\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"
        answers = {
            b"INFO": b"$%d\r\n%b\r\n" % (len(info), info),
            b"CONFIG": b"*2\r\n$11\r\nappendfsync\r\n$8\r\neverysec\r\n",
            b"WAITAOF": self._answer,
            b"EVALSHA": b":1\r\n",
        }
        while head := await reader.readline():
            parts = []
            for _ in range(int(head[1:])):
                size = int((await reader.readline())[1:])
                parts.append((await reader.readexactly(size + 2))[:-2])
            said.append(b" ".join(parts))
            answers[b"ECHO"] = b"+%b\r\n" % parts[-1]
            writer.write(answers.get(parts[0], b"+OK\r\n"))


@pytest.mark.parametrize(
    ("answer", "became"),
    [
        (b"*2\r\n:1\r\n:0\r\n", "aof"),
        (b"*2\r\n:0\r\n:0\r\n", "memory"),
        (b"-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.\r\n", "memory"),
        (b"-ERR unknown command 'WAITAOF'\r\n", "memory"),
    ],
)
async def test_waitaof_decides_on_the_connection_that_wrote(
    client: Client, answer: bytes, became: str
) -> None:
    newer = Newer(answer)
    async with listening(newer) as port:
        redis = client(f"redis://127.0.0.1:{port}")
        assert await written(redis) == (1, became)
        await redis.close()
    said = newer.asked[-1]
    assert (said[-2].split()[0], said[-1]) == (b"EVALSHA", b"WAITAOF 1 0 900")


async def test_a_write_that_is_not_to_wait_promises_what_the_configuration_does(client: Client) -> None:
    newer = Newer(b"*2\r\n:1\r\n:0\r\n")
    async with listening(newer) as port:
        redis = client(f"redis://127.0.0.1:{port}?wait_aof=false")
        assert (await written(redis))[1] == "memory"
        await redis.close()
    assert newer.asked[-1][-1].startswith(b"EVALSHA")


@pytest.mark.usefixtures("patient_redis")
async def test_over_tls_a_certificate_is_checked(client: Client, tmp_path: Path) -> None:
    asked = (
        "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    files = ["-keyout", tmp_path / "key", "-out", tmp_path / "cert"]
    subprocess.run(["openssl", *asked.split(), *files], check=True, capture_output=True)
    port = free_port()
    options = ["--tls-port", str(port), "--tls-cert-file", str(tmp_path / "cert")]
    options += ["--tls-key-file", str(tmp_path / "key"), "--tls-auth-clients", "no"]
    with RedisServer(tmp_path, options=options):
        redis = client(f"rediss://localhost:{port}?ssl_ca_certs={tmp_path / 'cert'}")
        await redis.check()
        elsewhere = f"rediss://127.0.0.1:{port}?ssl_ca_certs={tmp_path / 'cert'}"
        for url in (f"rediss://localhost:{port}", elsewhere):
            with pytest.raises(StoreUnavailable, match="certificate of Redis is not accepted") as told:
                await client(url).check()
            # The number of the error is that of OpenSSL, and EPERM to the system.
            assert told.value.cause.startswith("CERTIFICATE_VERIFY_FAILED")
        await client(f"{elsewhere}&ssl_check_hostname=false").check()
        await client(f"rediss://127.0.0.1:{port}?ssl_cert_reqs=none").check()


def test_urls_name_what_they_mean() -> None:
    single = parse_redis_url("rediss://me:p%40ss@[::1]/3?ssl_ca_certs=/ca&max_connections=5")
    assert (single.kind, single.hosts, single.db) == ("single", (("::1", 6379),), 3)
    assert single.credentials == {"username": "me", "password": "p@ss"}
    assert (single.tls, single.max_connections) == ({"ssl_ca_certs": "/ca"}, 5)
    sentinel = parse_redis_url(
        "redis+sentinel://:pw@a:1,b/mymaster/2?sentinel_password=spw&tls=true&allow_eviction=yes"
    )
    assert (sentinel.hosts, sentinel.service, sentinel.db) == ((("a", 1), ("b", 26379)), "mymaster", 2)
    assert (sentinel.credentials, sentinel.sentinel_credentials) == ({"password": "pw"}, {"password": "spw"})
    assert (sentinel.tls, sentinel.allow_eviction) == ({}, True)
    cluster = parse_redis_url("redis+cluster://u@a:7000,b:7001")
    assert (cluster.kind, cluster.hosts, cluster.tls) == ("cluster", (("a", 7000), ("b", 7001)), None)
    assert cluster.credentials == {"username": "u"}


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://u:s3cret@/0", "needs a host"),
        ("redis://u:s3cret@h:port/0", "a port is a number"),
        ("redis://u:s3cret@h/zero", "is a number"),
        ("redis://u:s3cret@h/0?keepalive=5", "known are allow_eviction"),
        ("redis://u:x?s3cret@h/0", "In a password"),
        ("redis://u:s3cret@h/0?ssl_ca_certs=/x", "need TLS"),
        ("rediss://u:s3cret@h/0?ssl_cert_reqs=maybe", "required or none"),
        ("redis://u:s3cret@h/0?max_connections=0", "from 1"),
        ("redis://u:s3cret@h/0?allow_eviction=perhaps", "true or false"),
        ("redis+sentinel://u:s3cret@h:1", "service"),
        ("redis+cluster://u:s3cret@h:1/2", "database 0"),
        ("redis+unix://u:s3cret@h", "starts with one of"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_without_showing_it(url: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as failure:
        open_redis(url)
    assert "s3cret" not in str(failure.value)
    assert "s3cret" not in repr(parse_redis_url("redis://u:s3cret@h"))
