"""The Python client against a running service, over TCP and a Unix socket, synchronous and not; and away
from it."""

import asyncio
import inspect
import json
import math
import shutil
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop
from hypothesis import given as property_of
from hypothesis import strategies

import spillgate
from domain.handles import is_name
from policies.outcomes.store import TOO_LARGE
from spillgate import AsyncSpillgate, Spillgate, governed, governed_tools, http1
from spillgate.exchange import safe_session_id
from tests import plain_http
from tests.faults.forking import run, start_process
from tests.faults.service_process import SERVE, Service
from tests.misbehaving_server import BAD_ANSWERS, answering

pytestmark = pytest.mark.anyio

LOG = "".join(f"line {n} ERROR disk {n} is full\n" if n == 4507 else f"line {n} ok\n" for n in range(6000))
Client = Spillgate | AsyncSpillgate
Make = Callable[..., Client]
FIELDS = strategies.sampled_from(
    (
        "outcome",
        "complete",
        "handle",
        "content",
        "budget",
        "exhausted",
        "code",
        "retryable",
        "detail",
        "text",
        "tools",
        "instructions",
        "name",
        "function",
        "type",
    )
)
MOST_JSON_BYTES = 2_000_000
BOTH = pytest.mark.parametrize("make", [Spillgate, AsyncSpillgate])


@pytest.fixture(scope="module")
async def services() -> AsyncIterator[dict[str, str]]:
    """The addresses of two services: one on TCP, and one on a Unix socket whose path is short enough."""
    folder = Path(tempfile.mkdtemp(prefix="spillgate"))
    tcp = Service(folder / "state", folder / "log", SERVE, {"max_json_bytes": str(MOST_JSON_BYTES)})
    given = {"SPILLGATE_UDS": str(folder / "private" / "s.sock"), "SPILLGATE_STORAGE_URL": "memory:"}
    unix = start_process(("-m", "beside.main", "serve"), given | {"HOME": str(folder)}, folder / "log2")
    try:
        await tcp.listening()
        while not (folder / "private" / "s.sock").exists():
            assert unix.is_alive(), (folder / "log2").read_text()
            await asyncio.sleep(0.01)
        host, port = tcp.address
        yield {"tcp": f"{host}:{port}", "unix": f"unix:{folder}/private/s.sock"}
    finally:
        tcp.kill()
        unix.kill()
        unix.join()
        shutil.rmtree(folder)


async def ask(result: Any) -> Any:
    """The result of either client's method."""
    return await result if inspect.isawaitable(result) else result


class Scripted:
    """Answers a status and a body, or nothing, in turn; keeps what it was asked. Time passes by sleeping."""

    def __init__(self, *script: tuple[int, dict[str, Any], str] | None) -> None:
        self.script = list(script)
        self.asked: list[httpx.Request] = []
        self.slept: list[float] = []
        self.transport = httpx.MockTransport(self)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.script.pop(0) if self.script else None
        if answer is None:
            raise httpx.ConnectError("refused")
        status, body, after = answer
        return httpx.Response(status, json=body, headers={"Retry-After": after} if after else {})

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def monotonic(self) -> float:
        return sum(self.slept)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Scripted]:
    def made(*script: tuple[int, dict[str, Any], str] | None) -> Scripted:
        served = Scripted(*script)

        async def sleep(seconds: float) -> None:
            served.sleep(seconds)

        monkeypatch.setattr("spillgate.client.time", served)
        monkeypatch.setattr("anyio.sleep", sleep)
        return served

    return made


@BOTH
@pytest.mark.parametrize("where", ["tcp", "nowhere"])
async def test_lone_surrogates_are_repaired_as_the_service_does(
    services: dict[str, str], make: Make, where: str
) -> None:
    url = services.get(where, "http://127.0.0.1:1")
    client = make(base_url=url, session_id="surrogates", patience=0.0)
    cases: list[tuple[Any, Any, bool]] = [
        ("caf\ud83d", "caf\ufffd", False),
        ("\ude00\ud83d", "\ufffd\ufffd", False),
        ("a \ud83d\ude00 b", "a \U0001f600 b", True),
        ("é \U0001f600", "é \U0001f600", True),
        ([{"type": "text", "text": "\udc80", "n": 1}], [{"type": "text", "text": "\ufffd", "n": 1}], False),
    ]
    for number, (content, shown, is_whole) in enumerate(cases):
        told = await ask(
            client.govern("read\ud83d", f"{where}-{number}\ud83d", content, arguments={"a": "\udc80"})
        )
        assert (told.content, told.complete) == (shown, is_whole)
        assert json.dumps(told.content, ensure_ascii=False).encode()
    if where == "tcp":
        for size in (5_000, 130_000):
            told = await ask(client.govern("t", None, "\ud83d\ude00 \ud83d\n" * size))
            stored = plain_http.get(f"{http_url(url)}/results/{told.handle}/content")
            assert stored.text == "\U0001f600 \ufffd\n" * size
        checked = await ask(client.check("t\ud83d", tokens=10_000_000, bytes=40_000_000))
        assert not checked.allowed
    await ask(client.close() if isinstance(client, Spillgate) else client.aclose())


def http_url(address: str) -> str:
    return address if "://" in address else f"http://{address}"


@BOTH
@pytest.mark.parametrize("place", ["tcp", "unix"])
async def test_a_run_governs_offers_calls_reports_and_ends(
    make: Make, place: str, services: dict[str, str]
) -> None:
    client = make(base_url=services[place])
    assert (await ask(client.tools())).names == []
    run = client.session(f"run-{make.__name__}", context_window=100_000, model="gpt-4o")
    session: Any = await run.__aenter__() if isinstance(client, AsyncSpillgate) else run.__enter__()  # type: ignore[union-attr]
    small = await ask(session.govern("read_log", "call_1", "two\nlines", arguments={"path": "a"}))
    assert (small.content, small.outcome, small.complete, small.handle) == ("two\nlines", "pass", True, None)
    # An adapter that was made without a session belongs to the one around it.
    large = await ask(client.govern("read_log", "call_2", LOG.encode(), used_tokens=40_000, turn=1))
    again = await ask(session.govern("read_log", "call_2", LOG, used_tokens=40_000, turn=1))
    assert (large.outcome, large.complete, large.handle) == ("store", False, again.handle)
    assert large.text.startswith(f"{TOO_LARGE} (")
    for form in ("openai", "anthropic", "mcp"):
        offered = await ask(session.tools(form))
        assert offered.names == ["tool_output"]
        assert offered.instructions == ""
    found = await ask(
        session.call("tool_output", {"handle": large.handle, "pattern": "ERROR"}, used_tokens=41_000)
    )
    assert "4508: line 4507 ERROR disk 4507 is full" in found
    assert (await ask(session.govern("mcp__spillgate__tool_output", "call_3", found * 900))).outcome == "pass"
    blocks = [{"type": "text", "text": "a"}, {"type": "image", "data": "AA==", "mimeType": "image/png"}]
    assert (await ask(session.govern("shot", "call_4", blocks))).content == blocks
    budget = await ask(session.report(50_000, 7))
    assert (budget["used_tokens"], budget["enforced"]) == (50_000, True)
    wrong = await ask(session.call("tool_output_lines", '{"handle": "x"}'))
    assert "`lines` is missing" in wrong
    spent = await ask(session.govern("read_log", "call_5", "word " * 50, used_tokens=99_999, turn=8))
    assert spent.exhausted
    if isinstance(client, AsyncSpillgate):
        await run.__aexit__(None, None, None)  # type: ignore[union-attr]
    else:
        run.__exit__(None, None, None)  # type: ignore[union-attr]
    assert client.session_id == "default"
    ended = await ask(client.govern("read_log", "call_2", LOG, session_id=f"run-{make.__name__}"))
    assert (ended.outcome, ended.complete) == ("unreached", False), "the session was not ended"
    await ask(client.close() if isinstance(client, Spillgate) else client.aclose())


@BOTH
async def test_what_was_lost_is_sent_again_until_patience_is_over(
    make: Make, scripted: Callable[..., Scripted], caplog: pytest.LogCaptureFixture
) -> None:
    busy = {"code": "overloaded", "retryable": True, "detail": "Later.", "stored": False}
    passed = {"outcome": "pass", "complete": True, "handle": None, "budget": {"exhausted": False}}
    served = scripted(None, (503, busy, "1"), (200, passed, ""))
    client = make(base_url="http://spillgate", transport=served.transport)
    assert (await ask(client.govern("t", None, "small"))).outcome == "pass"
    assert served.slept == [0.5, 1.0]
    assert len({request.content for request in served.asked}) == 1, "a retry is not the same call"
    assert json.loads(served.asked[0].content)["tool_call_id"].startswith("call-")
    served = scripted(*[(200, passed, "")] * 3)
    client = make(base_url="http://spillgate", transport=served.transport)
    short, *long = ("é" * 256, "a" + "x" * 256, "b" + "x" * 256)
    for call_id in (short, *long):
        await ask(client.govern("t", call_id, "small"))
    sent = [json.loads(request.content)["tool_call_id"] for request in served.asked]
    assert sent == [short, *(sha256(call_id.encode()).hexdigest() for call_id in long)]

    served = scripted()
    client = make(base_url="http://spillgate", transport=served.transport, cut_chars=100)
    cut = await ask(client.govern("t", "c", "x" * 250))
    assert (
        cut.content == f"{'x' * 100}\n[150 characters not shown: the result was too large, and is not stored]"
    )
    assert (cut.outcome, cut.complete, served.slept) == ("unreached", False, [0.5, 1.0, 2.0])
    blocks = [{"type": "text", "text": "a"}]
    assert (await ask(client.govern("t", "d", blocks))).content == blocks
    assert (await ask(client.tools())).names == []
    assert await ask(client.report(1)) is None
    assert (await ask(client.call("tool_output", {}))).startswith("Stored outputs cannot be reached now.")
    assert len(served.asked) == 8, "while the service is away, each call is tried once"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    served.script = [(200, passed, ""), None, (200, passed, "")]
    for _ in range(2):
        assert (await ask(client.govern("t", "e", "y" * 250))).outcome == "pass"
    assert served.slept == [0.5, 1.0, 2.0, 0.5], "once it is back, it is waited for again"

    served = scripted((503, busy, "30"))
    client = make(base_url="http://spillgate", transport=served.transport)
    assert (await ask(client.govern("t", "c", "small"))).content == "small"
    assert caplog.records[-1].message == "Later. Results are passed or cut here."
    assert served.slept == [], "the service asked for more time than there was patience"

    slow = {"code": "too_many_requests", "retryable": True, "detail": "Slow down.", "stored": False}
    served = scripted((429, slow, "30"), (429, slow, "30"), (429, slow, "1"), (200, passed, ""))
    client = make(base_url="http://spillgate", transport=served.transport, cut_chars=100)
    assert (await ask(client.govern("t", "c", "y" * 250))).outcome == "unreached"
    assert caplog.records[-1].message == "Spillgate refused: Slow down."
    assert await ask(client.call("tool_output", {"handle": "h"})) == "Slow down."
    assert (await ask(client.govern("t", "c", "y" * 250))).outcome == "pass"
    assert served.slept == [1.0], "a service that answers is not away"

    refused = {"code": "unauthorized", "retryable": False, "detail": "Send a key.", "stored": False}
    served = scripted((401, refused, ""), (200, {"text": "found", "is_error": False}, ""))
    client = make(base_url="http://spillgate", api_key="wrong", transport=served.transport)
    assert (await ask(client.govern("t", "c", "small"))).outcome == "unreached"
    assert (served.slept, caplog.records[-1].message) == ([], "Spillgate refused: Send a key.")
    assert await ask(client.call("tool_output", {"handle": "h"})) == "found"


@BOTH
async def test_options_come_from_the_environment_and_headers_go_along(
    make: Make, scripted: Callable[..., Scripted], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in (("URL", "sidecar:1234/"), ("KEY", "sk-1"), ("SESSION", "run-9")):
        monkeypatch.setenv(f"SPILLGATE_{name}", value)
    served = scripted()
    (tmp_path / "key").write_text("sk-2\n")
    traces = iter(["00-1", "00-2"])
    client = make(transport=served.transport, headers=lambda: {"traceparent": next(traces)})
    await ask(client.tools())
    await ask(client.tools("mcp", session_id="a=b"))
    first, second = served.asked
    assert str(first.url) == "http://sidecar:1234/tools?session_id=run-9&format=openai"
    assert str(second.url) == "http://sidecar:1234/tools?session_id=a%3Db&format=mcp"
    assert (first.headers["authorization"], first.headers["host"]) == ("Bearer sk-1", "sidecar:1234")
    assert [one.headers["traceparent"] for one in served.asked] == ["00-1", "00-2"]
    monkeypatch.delenv("SPILLGATE_KEY")
    monkeypatch.setenv("SPILLGATE_KEY_FILE", str(tmp_path / "key"))
    await ask(make(transport=served.transport).tools())
    assert served.asked[-1].headers["authorization"] == "Bearer sk-2"
    names = ("thread/7 ü", "+49 30", "_x", "/" * 200, "7" * 200)
    safe = [safe_session_id(name) for name in names]
    assert safe == ["thread-7--", "_+49-30", "_x", "_" + "-" * 127, "7" * 128]
    assert all(map(is_name, safe))
    with pytest.raises(httpx.InvalidURL):
        make(base_url="http://sidecar:port")


async def test_plain_functions_are_governed(services: dict[str, str]) -> None:
    client, waiting = Spillgate(base_url=services["tcp"]), AsyncSpillgate(base_url=services["tcp"])

    @governed(client=client, tool_name="read")
    def read_log(path: str, lines: int = 6000) -> str:
        """Reads a log."""
        return "".join(LOG.splitlines(keepends=True)[:lines])

    async def rows(count: int) -> list[dict[str, int]]:
        return [{"row": number} for number in range(count)]

    assert (read_log.__name__, read_log.__doc__) == ("read_log", "Reads a log.")
    assert read_log("a.log", lines=2) == "line 0 ok\nline 1 ok\n"
    with client.session("functions"):
        assert read_log("a.log").startswith(f"{TOO_LARGE} (")
        tools = governed_tools({"rows": rows}, client=waiting)
        assert await tools["rows"](2) == [{"row": 0}, {"row": 1}]
        message = await tools["rows"](count=5000)
        assert message.startswith(f"{TOO_LARGE} (")
        handle = message.split('handle = "')[1].split('"')[0]
        answer = await tools["tool_output_query"](handle=handle, expression="[-1].row")
        assert answer.startswith("4999")
        stored = plain_http.get(f"http://{services['tcp']}/results/{handle}").json()
    assert (stored["tool_name"], json.loads(stored["tool_arguments"])) == ("rows", {"count": 5000})
    with pytest.raises(TypeError, match="`rows`: an asynchronous function takes an AsyncSpillgate"):
        governed_tools({"rows": rows}, client=client)
    await waiting.aclose()
    assert client.content(handle) is None
    with client.session("functions-kept", keep_results=True) as run:
        kept = run.govern("read", None, LOG).handle
    assert kept is not None
    assert client.content(kept) == LOG.encode()
    client.close()


@BOTH
async def test_a_result_is_governed_whatever_it_and_its_arguments_are(
    make: Make, services: dict[str, str]
) -> None:
    client = make(base_url=services["tcp"], session_id="odd")
    loop: dict[str, Any] = {}
    loop["self"] = loop
    for arguments in ({"n": math.nan}, {(1, 2): 3}, loop, {"text": "x" * 3_000_000}, [1]):
        shown = await ask(client.govern("t", None, LOG, arguments=arguments))
        assert shown.outcome == "store", "the arguments are no reason to lose the result"
    texts: list[tuple[Any, Any]] = [
        ({(1, 2): 3}, "{(1, 2): 3}"),
        (loop, "{'self': {...}}"),
        (memoryview(b"caf\xc3\xa9"), "café"),
    ]
    for given, text in texts:
        assert (await ask(client.govern("t", None, given))).content == text
    refused = await ask(client.govern("t", None, [{"type": "text", "text": None}]))
    assert (refused.outcome, refused.text) == ("unreached", '{"type": "text", "text": null}')
    await ask(client.close() if isinstance(client, Spillgate) else client.aclose())


FORKS = """
import os
from spillgate import Spillgate

client = Spillgate()
client.govern("t", None, "small")
if os.fork() == 0:
    client.govern("t", None, "small")
    os._exit(0)
os.wait()
client.govern("t", None, "small")
"""


@BOTH
async def test_a_large_result_is_sent_as_text_and_kept_whole(services: dict[str, str], make: Make) -> None:
    """More than the service takes as JSON."""
    client = make(base_url=services["tcp"], session_id="large", timeout=100.0)
    text = "a line of é 🌷\n" * 130_000
    assert len(text.encode()) > MOST_JSON_BYTES
    blocks = [{"type": "text", "text": text}, {"type": "image", "data": "AA=="}]
    fields: Any = {"is_error": True, "used_tokens": 10, "turn": 1, "policy": {"max_bytes": 100}}
    for sent in (text, blocks):
        call_id = f"{make.__name__}-{type(sent).__name__}"
        found = await ask(client.govern("read_log", call_id, sent, arguments={"path": "a b&c"}, **fields))
        assert found.outcome == "store"
        info = plain_http.get(f"http://{services['tcp']}/results/{found.handle}").json()
        assert (info["is_error"], info["tool_arguments"]) == (True, '{"path": "a b&c"}')
        kept = await ask(client.content(found.handle))
        assert kept.decode() == (text if sent is text else text + '\n{"type": "image", "data": "AA=="}')
    passing: Any = {"arguments": "x" * 20_000, "policy": {"max_bytes": 0}, "session_id": "unbounded"}
    found = await ask(client.govern("read_log", None, "\ud800" + text[:600_000], **passing))
    assert (found.outcome, len(found.content)) == ("pass", 600_001)
    await ask(client.aclose() if isinstance(client, AsyncSpillgate) else client.close())


@BOTH
async def test_of_large_blocks_only_what_was_searched_for_secrets_passes(
    services: dict[str, str], make: Make
) -> None:
    client = make(base_url=services["tcp"], session_id="redacts", timeout=100.0)
    picture = {"type": "image", "data": "AA=="}
    fields: Any = {"policy": {"max_bytes": 0, "redact": ["secrets"]}}
    for lines, is_whole in ((10, True), (200_000, False)):
        text = {"type": "text", "text": "a line\n" * lines, "_meta": {"trace": "x"}}
        found = await ask(client.govern("t", f"{make.__name__}-{lines}", [text, picture], **fields))
        assert (found.outcome, found.complete) == ("pass", is_whole)
        shown = text if is_whole else {"type": "text", "text": text["text"]}
        assert found.content == [shown, picture]
    await ask(client.aclose() if isinstance(client, AsyncSpillgate) else client.close())


def test_a_forked_process_has_connections_of_its_own() -> None:
    """On a shared one, each process would read the answers of the other."""
    asked: list[int] = []

    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            asked.append(self.client_address[1])
            self.wfile.write(WHOLE)

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever).start()
        ended = run(("-c", FORKS), {"SPILLGATE_URL": f"http://127.0.0.1:{server.server_port}"}, b"")
        server.shutdown()
    assert (ended.returncode, ended.stdout) == (0, b""), ended.stdout
    first, child, again = asked
    assert first == again != child


class Peer:
    """Answers over bare sockets: to each connection the answers of one script, each in pieces, and then the
    end. An empty piece waits for `answered`. `connections` counts those that brought a request."""

    def __init__(self, *scripts: list[list[bytes]]) -> None:
        self._scripts = list(scripts)
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.answered, self.closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        for script in self._scripts:
            connection, _ = self._listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection, connection.makefile("rb") as received:
                for number, pieces in enumerate(script):
                    head = b"".join(iter(received.readline, b"\r\n"))
                    received.read(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
                    self.connections += not number
                    for piece in pieces:
                        connection.sendall(piece)
                        assert piece or self.answered.wait(60)
            self.closed.set()

    def stop(self) -> None:
        self._thread.join()
        self._listener.close()


PASSED = b'{"outcome":"pass","complete":true,"handle":null,"budget":{"exhausted":false}}'
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(PASSED) + PASSED
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTRANSFER-ENCODING: chunked\r\n\r\n"
    + b"".join(b"%x;a=b\r\n%b\r\n" % (1, bytes([byte])) for byte in PASSED)
    + b"0\r\nTrailer: x\r\n\r\n"
)


def singly(data: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in data]


SPOKEN: dict[str, tuple[str, list[list[list[bytes]]]]] = {
    "in pieces": ("pass", [[singly(WHOLE)]]),
    "in chunks": ("pass", [[singly(CHUNKED)]]),
    "an interim response": ("pass", [[[b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", WHOLE]]]),
    "until the end": ("pass", [[[b"HTTP/1.0 200 OK\r\n\r\n", PASSED]]]),
    "no HTTP": ("unreached", [[[b"hello\r\n\r\n"]]]),
    "no end of the head": ("unreached", [[[b"HTTP/1.1 200 OK\r\n", b"a" * 70_000]]]),
    "no length": ("unreached", [[[WHOLE.replace(b"Length: ", b"Length: -")]]]),
    "a bad chunk": ("unreached", [[[CHUNKED.replace(b"1;a=b", b"x")]]]),
    "cut": ("unreached", [[[WHOLE[:-1]]]]),
    "cut in a chunk": ("unreached", [[[CHUNKED[:200]]]]),
    "too few fields": ("unreached", [[[WHOLE.replace(b"handle", b"candle")]]]),
    "nothing": ("unreached", [[[]]]),
}


@BOTH
@pytest.mark.parametrize("name", SPOKEN)
async def test_whatever_a_service_answers_a_call_returns(
    make: Make, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillgate.exchange.WAITS_SECONDS", ())
    outcome, scripts = SPOKEN[name]
    peer = Peer(*scripts)
    client = make(base_url=f"{peer.url}/prefix")
    assert (await ask(client.govern("t", "c", "small"))).outcome == outcome
    await asyncio.to_thread(peer.stop)
    await ask(client.close() if isinstance(client, Spillgate) else client.aclose())


@BOTH
@pytest.mark.parametrize(
    ("scripts", "outcomes", "connections"),
    [
        ([[[WHOLE]] * 3], ["pass"] * 3, 1),
        # Closed while it was idle: the next request is sent again on another.
        ([[[WHOLE]], [[WHOLE]]], ["pass"] * 2, 2),
        # Ended after the request came, before any answer; and on a new connection, too.
        ([[[WHOLE], []], [[WHOLE]]], ["pass"] * 2, 2),
        ([[[WHOLE], []], [[]]], ["pass", "unreached"], 2),
        # After the first byte of the answer, it is not sent again.
        ([[[WHOLE], [WHOLE[:1]]]], ["pass", "unreached"], 1),
        # An answer that was not asked for is the answer to no request.
        ([[[WHOLE, b"", WHOLE.replace(b"pass", b"fail")]], [[WHOLE]]], ["pass"] * 2, 2),
        ([[[WHOLE.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)]], [[WHOLE]]], ["pass"] * 2, 2),
    ],
)
async def test_connections_are_kept_and_a_lost_request_is_sent_again(
    make: Make,
    scripts: list[list[list[bytes]]],
    outcomes: list[str],
    connections: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spillgate.exchange.WAITS_SECONDS", ())
    peer = Peer(*scripts)
    client = make(base_url=peer.url)
    found = []
    for _ in outcomes:
        found.append((await ask(client.govern("t", "c", "small"))).outcome)
        peer.answered.set()
        if len(scripts[0]) == 1:
            await asyncio.to_thread(peer.closed.wait)
    assert (found, peer.connections) == (outcomes, connections)
    await asyncio.to_thread(peer.stop)
    await ask(client.close() if isinstance(client, Spillgate) else client.aclose())


@pytest.mark.parametrize("place", ["tcp", "unix"])
async def test_it_runs_on_uvloop(services: dict[str, str], place: str) -> None:
    async def twice() -> list[str]:
        async with AsyncSpillgate(base_url=services[place], session_id="uvloop") as client:
            return [(await client.govern("ls", None, f"text {number}")).content for number in range(2)]

    assert await asyncio.to_thread(uvloop.run, twice()) == ["text 0", "text 1"]


@BOTH
async def test_what_never_answers_is_waited_for_as_long_as_told(make: Make) -> None:
    with answering(None) as url:
        client = make(base_url=url, timeout=0.05, patience=0.0)
        assert (await ask(client.govern("t", "c", "small"))).outcome == "unreached"
    assert (await ask(client.govern("t", "c", "small"))).outcome == "unreached"
    client = make(base_url=url, headers={"X": "a\r\n\r\nPOST /"}, patience=0.0)
    assert (await ask(client.govern("t", "c", "small"))).outcome == "unreached"


@BOTH
async def test_a_body_that_is_too_large_is_not_read(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = {"outcome": "pass", "complete": True, "handle": None, "budget": {"exhausted": False}}
    body = json.dumps(judged | {"content": "judged"}).encode()
    with answering(b"HTTP/1.1 200 OK\r\n\r\n%b" % body.ljust(4 << 20)) as url:
        client = make(base_url=url, patience=0.0)
        assert (await ask(client.govern("t", "c", "small"))).content == "judged"
        monkeypatch.setattr(http1, "MOST_BYTES", 1 << 20)
        assert (await ask(client.govern("t", "c", "small"))).outcome == "unreached"


@BOTH
@pytest.mark.parametrize("name", [name for name in BAD_ANSWERS if "length" in name or "chunk" in name])
async def test_no_length_that_a_service_names_raises(make: Make, name: str) -> None:
    with answering(BAD_ANSWERS[name]) as url:
        client = make(base_url=url, patience=0.0)
        assert (await ask(client.govern("t", "c", "small"))).outcome == "unreached"


async def test_event_loops_share_a_client(services: dict[str, str]) -> None:
    client = AsyncSpillgate(base_url=services["tcp"])

    async def govern() -> str:
        return (await client.govern("t", None, "text")).outcome

    def in_two_loops() -> list[str]:
        with asyncio.Runner() as first, asyncio.Runner() as second:
            outcomes = [runner.run(govern()) for runner in (first, second, first)]
            for runner in (first, second):
                runner.run(client.aclose())
        return outcomes

    # The loop of this test serves the fixtures; the two others run in a thread.
    assert await asyncio.to_thread(in_two_loops) == ["pass"] * 3


async def test_a_call_that_is_cancelled_ends_its_connection_and_its_thread() -> None:
    asked, ended = asyncio.Event(), asyncio.Event()

    async def never_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"small")
        asked.set()
        await reader.read()
        ended.set()
        writer.close()

    async with await asyncio.start_server(never_answers, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with AsyncSpillgate(base_url=url, timeout=60) as client:
            call = asyncio.create_task(client.govern("t", "c", "small"))
            await asked.wait()
            call.cancel()
            await asyncio.wait((call,))
            assert call.cancelled()
            await asyncio.wait_for(ended.wait(), 10)
            client._connections._threads.shutdown(wait=True)


async def test_hundreds_of_calls_at_once_are_governed(
    services: dict[str, str],
) -> None:
    async with AsyncSpillgate(base_url=services["tcp"], session_id="many") as client:
        calls = [client.govern("t", None, f"text {number}") for number in range(300)]
        assert {one.outcome for one in await asyncio.gather(*calls)} == {"pass"}


def test_the_package_exports_what_it_documents() -> None:
    assert set(spillgate.__all__) <= set(dir(spillgate))
    assert all(inspect.getdoc(getattr(spillgate, name)) for name in spillgate.__all__)


ANSWERS = json.loads(Path(__file__).with_name("answers.json").read_text())
"""What may come back, and the outcome of a result then. The client in JavaScript reads them, too."""

JSON = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.integers()
    | strategies.floats()
    | strategies.text(),
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(FIELDS, inner, max_size=6),
    max_leaves=12,
)


async def ask_everything(make: Make, served: Callable[[httpx.Request], httpx.Response]) -> str:
    """Calls each method. Returns the outcome of a result. Types are those that a caller is promised."""
    client = make(transport=httpx.MockTransport(served), base_url="http://spillgate")
    governed = await ask(client.govern("t", "c", "small"))
    assert isinstance(governed.text, str)
    assert isinstance(governed.exhausted, bool)
    tools = await ask(client.tools())
    assert all(isinstance(name, str) for name in tools.names)
    assert isinstance(tools.instructions, str)
    assert isinstance(await ask(client.call("tool_output", {}, used_tokens=1)), str)
    budget = await ask(client.report(1))
    assert budget is None or isinstance(budget["exhausted"], bool)
    assert isinstance(await ask(client.content("session-a/file-b")), bytes | None)
    if isinstance(client, AsyncSpillgate):
        async with client.session():
            pass
    else:
        with client.session():
            pass
    return str(governed.outcome)


@BOTH
@pytest.mark.parametrize("case", ANSWERS, ids=[case["name"] for case in ANSWERS])
async def test_no_answer_makes_a_method_raise(
    make: Make, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillgate.exchange.WAITS_SECONDS", ())
    body = (case["body"] * case.get("times", 1)).encode()
    # As on the wire: httpx decodes and encodes headers in Latin-1.
    headers = {"Retry-After": case.get("retry_after", "").encode("latin-1")}
    served = lambda request: httpx.Response(case["status"], content=body, headers=headers)  # noqa: E731
    assert await ask_everything(make, served) == case["outcome"]


@BOTH
@property_of(
    status=strategies.integers(200, 599),
    body=strategies.dictionaries(FIELDS, JSON) | JSON | strategies.binary(max_size=50),
    after=strategies.text(strategies.characters(max_codepoint=255, categories=["L", "N", "P"]), max_size=6),
)
def test_whatever_json_comes_back_no_method_raises(make: Make, status: int, body: Any, after: str) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    def served(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, content=content, headers={"Retry-After": after.encode("latin-1")})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spillgate.exchange.WAITS_SECONDS", ())
        asyncio.run(ask_everything(make, served))


@BOTH
async def test_a_second_result_under_one_id_is_sent_again_under_an_id_of_the_clients_own(
    make: Make, services: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    client = make(base_url=services["tcp"])
    session = f"reused-{make.__name__}"
    texts = [LOG, LOG + "!", LOG + "?", LOG + "!"]
    governed = [await ask(client.govern("t", "call_0", text, session_id=session)) for text in texts]
    assert [one.outcome for one in governed] == ["store"] * 4
    assert governed[1].handle == governed[3].handle
    assert [await ask(client.content(one.handle)) for one in governed] == [text.encode() for text in texts]
    assert len({one.handle for one in governed}) == 3
    assert "refused" not in caplog.text
    await ask(client.close() if isinstance(client, Spillgate) else client.aclose())


@BOTH
async def test_an_option_that_no_method_knows_is_a_type_error(services: dict[str, str], make: Make) -> None:
    with pytest.raises(TypeError, match=r"no option 'session'.*session_id"):
        make(base_url=services["tcp"], session="s")
    client = make(base_url=services["tcp"])
    for call in (
        lambda: client.govern("t", None, "x", session="s"),  # type: ignore[call-arg]
        lambda: client.check("t", byte=1),  # type: ignore[call-arg]
        lambda: client.call("tool_output", {}, used=1),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match=r"Spillgate has no option '(session|byte|used)'. Known are "):
            await ask(call())


@BOTH
async def test_a_size_is_checked_before_the_tool_is_called(services: dict[str, str], make: Make) -> None:
    client = make(base_url=services["tcp"])
    assert await ask(client.check("read_file", bytes=100)) == spillgate.Check(allowed=True)
    refused = await ask(client.check("read_file", bytes=481_213))
    assert (refused.allowed, refused.trigger) == (False, "size_cap")
    assert refused.content.startswith("Error: File content (~481213 bytes)")
    assert (await ask(client.check("read_file", bytes=481_213, limit=50))).allowed
    await ask(client.close() if isinstance(client, Spillgate) else client.aclose())
    away = make(base_url="http://127.0.0.1:1", patience=0.0)
    assert await ask(away.check("read_file", bytes=481_213)) == spillgate.Check(allowed=True)
