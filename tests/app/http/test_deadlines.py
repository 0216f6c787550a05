"""Slow, greedy and broken clients over real sockets, with shortened deadlines."""

import asyncio
import contextlib
import json
import re
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from app.http.edge import server as serving
from app.http.edge.deadlines import Protocol
from app.operations.logs import JsonFormatter
from tests.app.http.edge_support import (
    Served,
    edge_app,
    head,
    problem_of,
    read_all,
    read_answer,
    served,
    settings_of,
    wait_for,
)

pytestmark = pytest.mark.anyio

CAP = 1 << 20
LARGE = 100_000


@pytest.fixture(scope="module")
def running() -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving, "SWEEP_SECONDS", 0.02)
        patch.setattr(Protocol, "HEAD_SECONDS", 0.4)
        patch.setattr(Protocol, "BODY_SECONDS", 0.5)
        patch.setattr(Protocol, "READER_SECONDS", 0.5)
        patch.setattr(Protocol, "LINGER_SECONDS", 0.3)
        settings = settings_of(max_body_bytes=CAP)
        with served(edge_app(settings), settings) as running:
            yield running


@pytest.fixture
def host(running: Served) -> Iterator[Served]:
    state = running.app.state
    state.events.clear()
    state.codes.clear()
    yield running
    wait_for(lambda: not running.server.server_state.tasks)
    assert state.gate.in_flight == 0


@pytest.fixture
def tick(host: Served, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """From the first call on time passes for the deadlines by calls alone: a busy machine does not make a
    client slow. The first call waits until a request has begun."""
    check, state = Protocol.check, host.server.server_state
    now: list[float] = []
    checked = set[float]()

    def check_then(protocol: Protocol, real: float) -> None:
        at = now[0] if now else real
        check(protocol, at)
        checked.add(at)

    def tick(seconds: float) -> None:
        if not now:
            wait_for(lambda: state.tasks)
            now.append(time.monotonic())
        now[0] += seconds
        wait_for(lambda: now[0] in checked or not state.connections)

    monkeypatch.setattr(Protocol, "check", check_then)
    return tick


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


CHUNKED = "Transfer-Encoding: chunked"


def test_headers_that_stop_arriving_get_408(host: Served) -> None:
    began = time.monotonic()
    found = problem_of(host.talk(b"GET /hello HTTP/1.1\r\nHost: loc"))
    assert (found["status"], found["code"], found["retryable"]) == (408, "header_timeout", True)
    assert time.monotonic() - began > 0.3


def test_headers_that_drip_get_408_all_the_same(host: Served) -> None:
    with host.connect() as sock:
        sock.sendall(b"GET /hello HTTP/1.1\r\nHost: localhost\r\nX: ")
        # A letter that comes after the end of the connection fails: this ends however busy the machine is.
        with contextlib.suppress(OSError):
            while not select.select([sock], [], [], 0.01)[0]:
                sock.sendall(b"y")
        answer = read_all(sock)
    assert not answer or problem_of(answer)["status"] == 408


def test_empty_lines_without_end_are_a_slow_head_too(host: Served) -> None:
    with host.connect() as sock:
        sock.sendall(head())
        assert b"200" in read_answer(sock)
        with contextlib.suppress(OSError):
            while not select.select([sock], [], [], 0.02)[0]:
                sock.sendall(b"\r\n")
        answer = read_all(sock)
    assert not answer or problem_of(answer)["status"] == 408


def test_a_connection_that_asks_nothing_is_closed_without_a_word(host: Served) -> None:
    assert host.talk() == b""


def test_large_headers_get_431(host: Served) -> None:
    for pieces in [
        [head("GET", "/hello", "X: " + "y" * (16 << 10))],
        [head("GET", "/hello", *[f"X{n}: y" for n in range(3000)])],
        [head("GET", "/" + "p" * (8 << 10))],
        [head("GET", "/hello?" + "q" * (8 << 10))],
        [b"GET /hello HTTP/1.1\r\nX: ", b"y" * (17 << 10)],
        [b"\r\n" * (9 << 10)],
    ]:
        found = problem_of(host.talk(*pieces))
        assert (found["status"], found["code"]) == (431, "headers_too_large")


def test_endless_headers_get_431_long_before_they_are_held(host: Served) -> None:
    with host.connect() as sock, contextlib.suppress(OSError):
        sock.sendall(b"GET /hello HTTP/1.1\r\nX: ")
        for _ in range(300):
            sock.sendall(b"y" * 65536)
        assert problem_of(read_all(sock))["status"] == 431
    host.hello()


def test_headers_just_below_the_bounds_pass(host: Served) -> None:
    line = head("GET", "/hello?" + "q" * 8100, "Connection: close", "X: " + "y" * 8000)
    assert host.talk(line).startswith(b"HTTP/1.1 200")


def test_what_is_not_http_1_1_gets_400(host: Served) -> None:
    for request_ in [
        b"NONSENSE\r\n\r\n",
        b"GET /hello HTTP/1.1\nHost: localhost\n\n",
        b"GET /hello HTTP/1.1\r\nHost: localhost\n\r\n",
        head("POST", "/results", "Content-Length: 3", CHUNKED) + b"abc",
        head("POST", "/results", CHUNKED, "Content-Length: 3") + b"0\r\n\r\n",
        head("POST", "/results", "Content-Length: 3", "Content-Length: 3") + b"abc",
        head("POST", "/results", "Content-Length: 3", "Content-Length: 4") + b"abcd",
        head("POST", "/results", "Content-Length: -1"),
        head("POST", "/results", "Content-Length : 3") + b"abc",
        head("POST", "/results", CHUNKED) + b"zz\r\nabc",
        head("CONNECT", "evil.test:80"),
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ]:
        found = problem_of(host.talk(request_))
        assert (found["status"], found["code"]) == (400, "malformed")


def test_a_body_that_stops_moving_gets_408(host: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.setFormatter(JsonFormatter())
    for logger in ("app.operations.logs", "spillgate.access"):
        caplog.set_level("DEBUG", logger)
    began = time.monotonic()
    answer = host.talk(head("POST", "/results", "Content-Length: 9999", "X-Request-ID: a-1") + b"some")
    found = problem_of(answer)
    assert (found["status"], found["code"], found["stored"]) == (408, "body_timeout", False)
    assert b"x-request-id: a-1\r\n" in answer
    assert time.monotonic() - began > 0.4
    wait_for(lambda: host.app.state.events == ["ClientDisconnected"])
    wait_for(lambda: len(caplog.records) == 2)
    lines = [json.loads(line) for line in caplog.text.splitlines()]
    named = {"request_id": "a-1", "tenant": "default"}
    assert [line | named for line in lines] == lines


def test_a_dripping_body_gets_408(host: Served) -> None:
    with host.connect() as sock:
        sock.sendall(head("POST", "/results", "Content-Length: 9999"))
        with contextlib.suppress(OSError):
            for _ in range(3000):
                if select.select([sock], [], [], 0.02)[0]:
                    break
                sock.sendall(b"x")
            else:
                pytest.fail("A minute of single bytes was accepted.")
        answer = read_all(sock)
    assert not answer or problem_of(answer)["status"] == 408


def test_a_slow_body_that_moves_is_read_to_its_end(host: Served, tick: Callable[[float], None]) -> None:
    with host.connect() as sock:
        sock.sendall(head("POST", "/results", "Content-Length: 12288", "Connection: close"))
        for _ in range(6):
            tick(0.12)
            sock.sendall(b"x" * 2048)
        assert read_all(sock).endswith(b"12288")


@pytest.mark.parametrize(("path", "is_read"), [("/results", False), ("/let_go", True)])
def test_a_large_body_has_to_hurry_only_while_it_holds_what_others_need(
    host: Served, tick: Callable[[float], None], path: str, is_read: bool
) -> None:
    size = LARGE + 12 * 2048
    with host.connect() as sock:
        sock.sendall(head("POST", path, f"Content-Length: {size}", "Connection: close") + b"x" * LARGE)
        with contextlib.suppress(OSError):
            for _ in range(12):
                tick(0.12)
                sock.sendall(b"x" * 2048)
        answer = read_all(sock)
    assert answer.endswith(str(size).encode()) == is_read
    assert (b" 408 " in answer) != is_read


def test_a_client_that_goes_away_within_its_body_ends_quietly(host: Served) -> None:
    with host.connect() as sock:
        sock.sendall(head("POST", "/results", "Content-Length: 9999") + b"half")
        wait_for(lambda: host.server.server_state.tasks)
    wait_for(lambda: host.app.state.events == ["ClientDisconnected"])
    assert host.app.state.codes == []


def test_a_reader_that_stops_reading_is_cut_off(host: Served) -> None:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect((host.host, host.port))
        sock.sendall(head("GET", "/big"))
        wait_for(lambda: host.server.server_state.tasks)
        wait_for(lambda: not host.server.server_state.connections)
    host.hello()


def test_a_reader_that_is_only_slow_gets_all(host: Served, tick: Callable[[float], None]) -> None:
    with host.connect() as sock:
        sock.sendall(head("GET", "/big", "Connection: close"))
        size = 0
        # Many looks within the deadline: the kernel does not tell of each read.
        for _ in range(40):
            size += len(sock.recv(65536))
            tick(0.02)
        assert size + len(read_all(sock)) > 1000 * 65536


def test_the_work_for_a_client_that_is_gone_is_cancelled(host: Served) -> None:
    for is_reset in [False, True]:
        host.app.state.events.clear()
        with host.connect() as sock:
            sock.sendall(head("GET", "/costly"))
            wait_for(lambda: host.app.state.events == ["work began"])
            if is_reset:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_for(lambda: host.app.state.events == ["work began", "work cancelled"])


def test_an_idle_connection_is_closed_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "KEEP_ALIVE_SECONDS", 0.2)
    settings = settings_of()
    with served(edge_app(settings), settings) as host, host.connect() as sock:
        sock.sendall(head())
        assert b"200" in read_answer(sock)
        assert sock.recv(1) == b""


def test_head_is_answered_without_a_body(host: Served) -> None:
    answer = host.talk(head("HEAD", "/hello", "Connection: close"))
    assert answer.startswith(b"HTTP/1.1 ")
    assert answer.endswith(b"\r\n\r\n")


def test_pipelined_requests_are_answered_in_order(host: Served) -> None:
    posts = b"".join(head("POST", "/results", f"Content-Length: {n}") + b"x" * n for n in range(1, 30))
    answer = host.talk(head("GET", "/slow?seconds=0.1") + posts + head("GET", "/hello", "Connection: close"))
    bodies = re.findall(rb"\r\n\r\n(\d+)HTTP", answer)
    assert [int(body) for body in bodies] == list(range(1, 30))
    assert answer.endswith(b"default")


def test_a_client_that_is_gone_before_its_pipelined_answers_is_no_fault(
    host: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with host.connect() as client:
        client.sendall(head("GET", "/big") + head() * 20)
        wait_for(lambda: host.server.server_state.tasks)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_for(lambda: not host.server.server_state.tasks)
    assert not caplog.records


@pytest.mark.parametrize("good", [1, 3])
def test_a_bad_request_behind_good_ones_does_not_spoil_their_answers(host: Served, good: int) -> None:
    answer = host.talk(head("GET", "/slow?seconds=0.2") * good + b"NONSENSE\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200") == answer.count(b"HTTP/1.1") == good
    assert answer.count(b"connection: close") == 1
    assert answer.endswith(b"slow but whole")


def test_chunks_past_the_cap_get_413_and_the_answer_arrives(host: Served) -> None:
    body = chunk(b"x" * 65536) * 40
    found = problem_of(host.talk(head("POST", "/results", CHUNKED) + body))
    assert (found["status"], found["code"], found["stored"]) == (413, "body_too_large", False)


def test_a_length_past_the_cap_is_answered_before_the_body(host: Served) -> None:
    with host.connect() as sock:
        sock.sendall(head("POST", "/results", f"Content-Length: {CAP + 1}", "Expect: 100-continue"))
        answer = read_answer(sock)
    assert problem_of(answer)["status"] == 413
    assert b"100 Continue" not in answer
    assert host.app.state.events == []


def test_a_client_that_sends_it_all_first_still_reads_its_413(host: Served) -> None:
    answer = httpx.post(f"{host.url}/results", content=b"x" * (20 * CAP), trust_env=False)
    assert answer.status_code == 413
    with host.connect() as sock:
        sock.sendall(head("POST", "/results", f"Content-Length: {20 * CAP}"))
        sock.sendall(b"x" * (20 * CAP))
        assert problem_of(read_all(sock))["status"] == 413


def test_an_early_answer_to_an_unread_body_closes(host: Served) -> None:
    answer = host.talk(head("POST", "/early", "Content-Length: 9"), b"some")
    assert b"connection: close" in answer
    assert answer.endswith(b"early")


def test_a_body_is_asked_for_where_the_client_waits_for_that(host: Served) -> None:
    with host.connect() as sock:
        sock.sendall(
            head("POST", "/results", "Content-Length: 3", "Expect: 100-continue", "Connection: close")
        )
        assert sock.recv(100).startswith(b"HTTP/1.1 100 Continue")
        sock.sendall(b"abc")
        assert read_all(sock).endswith(b"\r\n\r\n3")
    # HTTP/1.0 has no such answer.
    old = head("POST", "/results", "Content-Length: 3", "Expect: 100-continue").replace(b"/1.1", b"/1.0", 1)
    assert host.talk(old, b"abc").startswith(b"HTTP/1.1 200 OK")


def test_a_body_that_was_to_be_asked_for_and_is_malformed_gets_400_and_is_no_fault_of_the_app(
    host: Served, caplog: pytest.LogCaptureFixture
) -> None:
    asking = head("POST", "/results", CHUNKED, "Expect: 100-continue")
    for sent in (asking + b"zz\r\nabc", asking + b"1\r\nx\r\nzz\r\n"):
        found = problem_of(host.talk(sent))
        assert (found["status"], found["code"], found["stored"]) == (400, "malformed", False)
    wait_for(lambda: not host.server.server_state.tasks)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("body", [("Content-Length: 5", b"Hello"), (CHUNKED, b"5\r\nHello\r\n0\r\n\r\n")])
@pytest.mark.parametrize("split", [False, True])
def test_an_upgrade_that_is_declined_does_not_lose_the_body(
    host: Served, body: tuple[str, bytes], split: bool
) -> None:
    """Java's client asks for h2c with every first request."""
    first = head("POST", "/results", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", body[0])
    last = head("GET", "/hello", "Connection: close")
    with host.connect() as sock:
        if split:
            sock.sendall(first)
            time.sleep(0.1)
            sock.sendall(body[1])
        else:
            sock.sendall(first + body[1])
        assert read_answer(sock).endswith(b"\r\n\r\n5")
        sock.sendall(last)
        assert read_all(sock).endswith(b"default")


def test_an_upgrade_without_a_body_is_answered_as_if_it_did_not_ask(host: Served) -> None:
    upgrade = head("GET", "/hello", "Connection: Upgrade", "Upgrade: websocket")
    assert host.talk(upgrade + upgrade + head("GET", "/hello", "Connection: close")).count(b"default") == 3


def test_a_trailer_does_not_become_a_header(host: Served) -> None:
    sent = head("POST", "/results", CHUNKED, "Connection: close") + b"1\r\nx\r\n0\r\nHost: evil.test\r\n\r\n"
    assert host.talk(sent).endswith(b"\r\n\r\n1")


def test_trailers_without_end_are_refused(host: Served) -> None:
    with host.connect() as sock:
        sock.sendall(head("POST", "/results", CHUNKED) + b"1\r\nx\r\n0\r\n")
        time.sleep(0.1)
        sock.sendall(b"T: " + b"t" * 30000)
        assert problem_of(read_all(sock))["status"] == 400


def test_one_connection_too_many_gets_503(host: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Protocol.connection_made

    def crowded(self: Protocol, transport: asyncio.Transport) -> None:
        self.max_connections = 2
        made(self, transport)

    monkeypatch.setattr(Protocol, "connection_made", crowded)
    with host.connect(), host.connect():
        assert problem_of(host.talk())["code"] == "overloaded"
