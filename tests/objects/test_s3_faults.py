"""With any fault of the network to S3 each route answers in time, and what was acknowledged is there."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import obstore
import pytest
from obstore.store import S3Store

from tests.conftest import Serve
from tests.faults.calls import Call, Kept, read_back, text_of
from tests.faults.network import Fault, Network, lose, reset, silence
from tests.stopwatch import Stopwatch

pytestmark = pytest.mark.anyio

ANSWER_SECONDS = 2.5
SMALL, LARGE = 20_000, 6_000_000
METHODS = (b"GET ", b"PUT ", b"POST ", b"DELETE ", b"HEAD ")


async def fail(reply: bytes, writer: asyncio.StreamWriter, healed: asyncio.Event) -> bool:
    """A status of 500."""
    writer.write(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    return False


async def cut(reply: bytes, writer: asyncio.StreamWriter, healed: asyncio.Event) -> bool:
    """All but the end of the first piece: a body lacks its last bytes."""
    writer.write(reply[:-10])
    return False


LENGTH = re.compile(rb"(?i)(content-length: )(\d+)")
FLIPS = itertools.cycle((1, 2))


def of_whole_replies(fault: Fault) -> Fault:
    """A reply may come in pieces: its head alone, then its body. The fault gets it in one."""
    begun: dict[asyncio.StreamWriter, bytes] = {}

    async def of_pieces(piece: bytes, writer: asyncio.StreamWriter, healed: asyncio.Event) -> bool:
        reply = begun.pop(writer, b"") + piece
        head, end, body = reply.partition(b"\r\n\r\n")
        length = match[2] if (match := LENGTH.search(head)) else b"0"
        if not end or len(body) < int(length):
            begun[writer] = reply
            return True
        return await fault(reply, writer, healed)

    return of_pieces


@of_whole_replies
async def shorten(reply: bytes, writer: asyncio.StreamWriter, healed: asyncio.Event) -> bool:
    """A body without its last ten bytes, and a header that says so."""
    head, _, body = reply.partition(b"\r\n\r\n")
    length = b"%s%d" % (match[1], len(body) - 10) if (match := LENGTH.search(head)) else b""
    writer.write(LENGTH.sub(length, head) + b"\r\n\r\n" + body[:-10])
    return True


@of_whole_replies
async def flip(reply: bytes, writer: asyncio.StreamWriter, healed: asyncio.Event) -> bool:
    """Another last byte at each reply."""
    writer.write(reply[:-1] + bytes([(reply[-1] + next(FLIPS)) % 256]))
    return True


FAULTS: dict[str, Fault | None] = {
    "away": None,
    "silent": silence,
    "status 500": fail,
    "reset": reset,
    "cut": cut,
    "reply lost": lose,
}


@pytest.fixture
async def network(s3_port: int) -> AsyncIterator[Network]:
    async with Network(s3_port, begins=METHODS) as network:
        yield network


@pytest.fixture
async def client(
    serve: Serve, network: Network, url: Callable[[int], str], tmp_path: Path
) -> AsyncIterator[httpx.AsyncClient]:
    async with serve(storage_url=url(network.port), ledger_url=f"sqlite://{tmp_path}/ledger.db") as client:
        yield client
        await network.heal()


@pytest.mark.parametrize("fault", FAULTS)
async def test_each_route_answers_503_in_time_and_all_is_well_afterwards(
    client: httpx.AsyncClient, network: Network, fault: str
) -> None:
    kept = [
        Kept.of(call, await call.send(client))
        for call in (Call("run-1", text_of("one", SMALL)), Call("run-1", text_of("two", LARGE)))
    ]
    handle = f"/results/{kept[1].handle}"
    named = [Call("run-1", text_of(name, size), name) for name, size in (("a", SMALL), ("b", LARGE))]
    asked = {"handle": kept[1].handle, "extract": "naïve", "mode": "retrieve"}
    routes = [
        lambda: named[0].send(client),
        lambda: named[1].send(client),
        lambda: client.get(handle),
        lambda: client.get(f"{handle}/content"),
        lambda: client.get(f"{handle}/lines?offset=100"),
        lambda: client.get(f"{handle}/grep?pattern=naïve"),
        lambda: client.post("/extract", json=asked),
        lambda: client.get("/sessions"),
        lambda: client.get("/readyz"),
    ]
    found = FAULTS[fault]
    if found is None:
        await network.refuse()
    else:
        network.spoil(found, spared=0)
    for number, route in enumerate(routes):
        watch = Stopwatch()
        answer = await route()
        assert watch.seconds < ANSWER_SECONDS, (number, watch.seconds)
        assert answer.status_code == 503, (number, answer.text)
        assert "object store" in answer.text
        assert "127.0.0.1" not in answer.text
    await network.heal()
    assert (await client.get("/readyz")).status_code == 200
    kept += [Kept.of(call, await call.send(client)) for call in named]
    assert [await read_back(client, one) for one in kept] == [[]] * 4
    assert (await client.delete("/sessions/run-1")).status_code == 204
    assert [(await client.get(f"/results/{one.handle}")).status_code for one in kept] == [410] * 4


@pytest.mark.parametrize("fault", ["silent", "status 500", "reply lost"])
async def test_a_store_that_fails_within_a_publication_keeps_all_or_nothing(
    client: httpx.AsyncClient, network: Network, fault: str
) -> None:
    requests = [
        rb"^POST .*uploads",
        rb"^PUT .*partNumber=1",
        rb"^PUT .*partNumber=2",
        rb"^POST .*uploadId=",
        rb"^PUT .*\.json ",
    ]
    calls = [Call("run-1", text_of(str(number), LARGE), str(number)) for number in range(len(requests))]
    found = FAULTS[fault]
    assert found is not None
    for call, request in zip(calls, requests, strict=True):
        network.spoil(found, 0, request)
        watch = Stopwatch()
        answer = await call.send(client)
        assert network.spoilt
        assert watch.seconds < ANSWER_SECONDS + 1, "the time of what was sent before counts, too"
        assert answer.status_code == 503
        await network.heal()
    kept = [Kept.of(call, await call.send(client)) for call in calls]
    assert [await read_back(client, one) for one in kept] == [[]] * len(calls)


async def test_a_retry_stores_a_body_again_that_the_bucket_lost(
    client: httpx.AsyncClient, bucket: S3Store
) -> None:
    calls = [Call("run-1", text_of(name, size), name) for name, size in (("a", SMALL), ("b", LARGE))]
    for call in calls:
        kept = Kept.of(call, await call.send(client))
        listed = [one["path"] for one in obstore.list(bucket, "tool_output").collect()]
        obstore.delete(bucket, [path for path in listed if not path.endswith(".json")])
        end = {"Range": "bytes=-10"}
        assert (await client.get(f"/results/{kept.handle}/content", headers=end)).status_code == 410
        again = Kept.of(call, await call.send(client))
        assert (again.handle, await read_back(client, again)) == (kept.handle, [])


async def test_a_reply_that_is_lost_once_is_no_conflict(client: httpx.AsyncClient, network: Network) -> None:
    async def once(reply: bytes, writer: asyncio.StreamWriter, healed: asyncio.Event) -> bool:
        await network.heal()
        return False

    for number, request in enumerate((rb"^PUT .*\.[0-9a-f]{32} ", rb"^PUT .*\.json ")):
        network.spoil(once, 0, request)
        call = Call("run-1", text_of(f"once-{number}", SMALL))
        assert await read_back(client, Kept.of(call, await call.send(client))) == []
        assert network.spoilt == 1
    assert (await client.get("/sessions")).json()["sessions"][0]["stored_results"] == 2


@pytest.mark.parametrize(
    ("fault", "request_line", "first"),
    [
        (shorten, rb"^GET .*\.[0-9a-f]{32} ", 503),
        (shorten, rb"^GET .*\.json ", 200),
        (flip, rb"^GET .*\.json ", 200),
    ],
    ids=["body cut", "info cut", "info changed"],
)
async def test_a_read_that_is_damaged_on_the_way_is_retryable_and_an_info_is_read_again(
    client: httpx.AsyncClient,
    network: Network,
    caplog: pytest.LogCaptureFixture,
    fault: Fault,
    request_line: bytes,
    first: int,
) -> None:
    async def once(reply: bytes, writer: asyncio.StreamWriter, healed: asyncio.Event) -> bool:
        await network.heal()
        return await fault(reply, writer, healed)

    kept = Kept.of(call := Call("run-1", text_of("a", SMALL)), await call.send(client))
    path = f"/results/{kept.handle}/content"
    network.spoil(once, 0, request_line)
    assert (await client.get(path)).status_code == first
    assert network.spoilt >= 1
    network.spoil(fault, 0, request_line)
    refused = await client.get(path)
    assert (refused.status_code, refused.json()["retryable"]) == (503, True)
    await network.heal()
    assert await read_back(client, kept) == []
    assert not [one for one in caplog.records if "is damaged" in one.getMessage()]
