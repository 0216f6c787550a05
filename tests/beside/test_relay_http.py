"""`spillgate mcp --url URL`: a relay on stdio before scripted servers over streamable HTTP."""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from policies.outcomes.store import TOO_LARGE
from tests.beside.relay_client import STATELESS, RelayClient
from tests.misbehaving_server import answering

LARGE = {"content": [{"type": "text", "text": "line é of text\n" * 5000}], "structuredContent": {"a": 1}}
SESSION = "session-4711"


class Scripted(ThreadingHTTPServer):
    """Answers a POST by the function that `answers` has for its method, and keeps what was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answers: dict[str, Callable[[Handler, Any], None]] = {}
        self.stream: list[bytes] | None = None
        self.gone = threading.Event()

    @property
    def url(self) -> str:
        return "http://{}:{}/mcp?team=a".format(*self.server_address[:2])

    def headers_of(self, method: str) -> dict[str, str]:
        """Those of the last request with that JSON-RPC method."""
        return next(heads for _, _, heads, body in reversed(self.asked) if f'"{method}"'.encode() in body)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Scripted

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._note(b"")
        if self.server.stream is None:
            self.answer(405, b"")
            return
        self.begin_events()
        while self.server.stream:
            self.event(self.server.stream.pop(0))
        self.server.gone.wait()

    def do_DELETE(self) -> None:
        self._note(b"")
        self.answer(200, b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._note(body)
        message = json.loads(body)
        first = message[0] if isinstance(message, list) else message
        self.server.answers.get(first.get("method", ""), Handler.accept)(self, message)

    def _note(self, body: bytes) -> None:
        heads = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.command, self.path, heads, body))

    def accept(self, message: Any) -> None:
        self.answer(202, b"")

    def answer(self, status: int, body: bytes, kind: str = "application/json", **heads: str) -> None:
        self.send_response(status)
        for name, value in heads.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def result(self, message: Any, result: Any, **heads: str) -> None:
        self.answer(
            200,
            json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}, indent=2).encode(),
            **heads,
        )

    def begin_events(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def event(self, lines: bytes) -> None:
        whole = lines + b"\r\n\r\n"
        for half in (whole[:10], whole[10:]):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(half), half))
            self.wfile.flush()

    def end_events(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def break_off(self) -> None:
        self.close_connection = True
        self.connection.close()


def as_event(message: Any, event_id: str = "") -> bytes:
    head = b"id: " + event_id.encode() + b"\n" if event_id else b""
    return head + b"event: message\ndata: " + json.dumps(message).encode()


def initialize(handler: Handler, message: Any) -> None:
    result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "web"}}
    handler.result(message, result, Mcp_Session_Id=SESSION)


@pytest.fixture
def server() -> Iterator[Scripted]:
    with Scripted() as server:
        server.answers["initialize"] = initialize
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.gone.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def relay(server: Scripted, url: str, tmp_path: Path) -> Iterator[RelayClient]:
    headers = ("--header", "Authorization: Bearer k", "--header", "X-Team:a")
    with RelayClient("--url", server.url, *headers, state=tmp_path / "state", url=url) as client:
        yield client


def text_of(result: Any) -> str:
    said: str = result["content"][0]["text"]
    return said


def test_json_and_events_in_the_era_of_sessions(relay: RelayClient, server: Scripted) -> None:
    progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1}}

    def streamed(handler: Handler, message: Any) -> None:
        handler.begin_events()
        handler.event(b": a comment\nevent: ping\ndata: x")
        handler.event(as_event(progress))
        lines = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": LARGE}, indent=1).split("\n")
        handler.event("\n".join(f"data:{line}" for line in lines).encode())
        handler.end_events()

    server.stream = [as_event({"jsonrpc": "2.0", "id": 0, "method": "sampling/createMessage"})]
    server.answers |= {
        "tools/call": streamed,
        "tools/list": lambda handler, message: handler.result(message, {"tools": []}),
    }
    assert relay.ask("initialize")["serverInfo"] == {"name": "web"}
    relay.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    assert relay.read() == {"jsonrpc": "2.0", "id": 0, "method": "sampling/createMessage"}
    relay.write(b'{"jsonrpc":"2.0","id":0,"result":{"role":"assistant"}}\n')
    assert [tool["name"] for tool in relay.ask("tools/list")["tools"]] == ["tool_output"]
    request = relay.send("tools/call", {"name": "big", "arguments": {}})
    assert relay.read() == progress
    answer = relay.read()
    assert answer["id"] == request
    assert text_of(answer["result"]).startswith(f"{TOO_LARGE} (80000 bytes")
    assert "structuredContent" not in answer["result"]
    handle = text_of(answer["result"]).partition('handle = "')[2].partition('"')[0]
    assert "line é of text" in text_of(relay.tool("tool_output_lines", handle=handle, offset=1, limit=1))
    assert relay.end() == 0
    methods = [(method, path) for method, path, _, _ in server.asked]
    assert set(methods) == {(method, "/mcp?team=a") for method in ("POST", "GET", "DELETE")}
    assert methods[-1][0] == "DELETE"
    heads = server.headers_of("tools/call")
    assert heads["accept"] == "application/json, text/event-stream"
    assert (heads["authorization"], heads["x-team"]) == ("Bearer k", "a")
    assert (heads["mcp-session-id"], heads["mcp-protocol-version"]) == (SESSION, "2025-06-18")
    assert "mcp-session-id" not in server.headers_of("initialize")
    bodies = [body for method, _, _, body in server.asked if method == "POST"]
    assert b'{"jsonrpc":"2.0","id":0,"result":{"role":"assistant"}}' in bodies
    assert not any(b"tool_output" in body for body in bodies)


def test_the_stateless_era(relay: RelayClient, server: Scripted) -> None:
    started, freed = threading.Event(), threading.Event()

    def waiting(handler: Handler, message: Any) -> None:
        handler.begin_events()
        handler.event(as_event({"jsonrpc": "2.0", "method": "notifications/progress"}))
        started.set()
        while handler.connection.recv(1):
            pass
        freed.set()

    server.answers |= {
        "tools/call": lambda handler, message: handler.result(message, {**LARGE, "resultType": "complete"}),
        "resources/read": waiting,
        "server/discover": lambda handler, message: handler.result(
            message, {"supportedVersions": ["2026-07-28"]}
        ),
    }
    assert relay.ask("server/discover", {"_meta": STATELESS}) == {"supportedVersions": ["2026-07-28"]}
    marked = {"type": "object", "properties": {"b": {"x-mcp-header": "Flag"}, "c": {"x-mcp-header": "None"}}}
    schema = {"properties": {"a": {"type": "string", "x-mcp-header": "Region"}, "in": marked, "d": {}}}
    tools = {"tools": [{"name": "grüß ", "inputSchema": schema}]}
    server.answers["tools/list"] = lambda handler, message: handler.result(message, tools)
    assert relay.ask("tools/list", {"_meta": STATELESS})["tools"][0]["inputSchema"] == schema
    arguments = {"a": "é", "in": {"b": True, "c": None}, "d": 1}
    called = {"name": "grüß ", "arguments": arguments, "_meta": STATELESS}
    result = relay.ask("tools/call", called)
    assert "too large" in text_of(result)
    assert result["resultType"] == "complete"
    heads = server.headers_of("tools/call")
    assert (heads["mcp-protocol-version"], heads["mcp-method"]) == ("2026-07-28", "tools/call")
    assert heads["mcp-name"] == "=?base64?Z3LDvMOfIA==?="
    repeated = {name: said for name, said in heads.items() if name.startswith("mcp-param-")}
    assert repeated == {"mcp-param-region": "=?base64?w6k=?=", "mcp-param-flag": "true"}
    request = relay.send("resources/read", {"uri": "file:///x", "_meta": STATELESS})
    assert relay.read()["method"] == "notifications/progress"
    assert server.headers_of("resources/read")["mcp-name"] == "file:///x"
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request}}
    assert started.wait(60)
    relay.write(json.dumps(cancel).encode() + b"\n")
    assert freed.wait(60), "the connection stays open"
    assert not any(b"notifications/cancelled" in body for _, _, _, body in server.asked)
    assert relay.ask("server/discover", {"_meta": STATELESS})


def test_a_large_event_is_read_and_a_signal_ends_the_session(relay: RelayClient, server: Scripted) -> None:
    def cut(handler: Handler, message: Any) -> None:
        result = {"content": [{"type": "text", "text": "0123456789abcde\n" * (1 << 18) + "\ud83d"}]}
        handler.begin_events()
        handler.event(as_event({"jsonrpc": "2.0", "id": message["id"], "result": result}))

    server.answers["tools/call"] = cut
    relay.ask("initialize")
    relay.write(b"\n")
    assert "4194307 bytes" in text_of(relay.tool("big"))
    relay.signal(signal.SIGTERM)
    assert relay.status() == -signal.SIGTERM
    assert [method for method, _, _, _ in server.asked] == ["POST", "POST", "DELETE"]


def test_requests_do_not_wait_for_each_other(relay: RelayClient, server: Scripted) -> None:
    second = threading.Event()

    def first(handler: Handler, message: Any) -> None:
        assert second.wait(60)
        handler.result(message, {})

    server.answers |= {"prompts/list": first, "ping": lambda handler, message: handler.result(message, {})}
    one = relay.send("prompts/list")
    assert relay.ask("initialize")
    assert relay.send("ping") == relay.read()["id"]
    second.set()
    assert relay.read()["id"] == one


def test_a_notification_that_the_server_does_not_take_is_given_up(
    server: Scripted, url: str, tmp_path: Path
) -> None:
    impatient = (
        "-c",
        "import beside.relay.http, beside.main as main\n"
        "beside.relay.http.ANSWER_SECONDS = 0.5\n"
        "main.sys.exit(main.main())",
    )
    let_go, waited_for = threading.Event(), []

    def hang(handler: Handler, message: Any) -> None:
        if not let_go.wait(5):
            waited_for.append(message["method"])
        handler.break_off()

    def head_alone(handler: Handler, message: Any) -> None:
        handler.begin_events()
        hang(handler, message)

    def byte_by_byte(handler: Handler, message: Any) -> None:
        with suppress(OSError):  # The relay may be gone.
            for _ in range(50):
                handler.wfile.write(b"H")
                if let_go.wait(0.1):
                    break
            else:
                waited_for.append(message["method"])
        handler.break_off()

    hung = [hang, head_alone, byte_by_byte]
    server.answers |= {f"notifications/{number}": answer for number, answer in enumerate(hung)}
    server.answers["ping"] = lambda handler, message: handler.result(message, {})
    with RelayClient("--url", server.url, state=tmp_path / "state", program=impatient, url=url) as relay:
        try:
            for number in range(len(hung)):
                relay.write(b'{"jsonrpc": "2.0", "method": "notifications/%d"}\n' % number)
                assert relay.ask("ping") == {}
                assert waited_for == []
        finally:
            let_go.set()
        assert relay.end() == 0


def test_every_request_is_answered_whatever_the_server_does(relay: RelayClient, server: Scripted) -> None:
    def refused(status: int, body: bytes, kind: str = "application/json") -> Callable[[Handler, Any], None]:
        return lambda handler, message: handler.answer(status, body, kind)

    def cut(handler: Handler, message: Any) -> None:
        handler.begin_events()
        handler.event(b"data: {}")
        handler.break_off()

    error = b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32601, "message": "no such method"}}'
    for number, (answer, said) in enumerate(
        [
            (refused(404, error), "no such method"),
            (refused(401, b"", "text/html"), "--header"),
            (refused(500, b"<html>"), "status 500"),
            (refused(202, b""), "status 202 and no response"),
            (refused(200, b"hello", "text/plain"), "status 200 and no response"),
            (cut, "ended the stream without a response"),
            (Handler.break_off.__get__, ""),
        ]
    ):
        server.answers[f"method/{number}"] = answer if said else lambda handler, message: handler.break_off()
        request = relay.send(f"method/{number}")
        while "id" not in (message := relay.read()):
            assert message == {}
        assert message["id"] == request
        assert said in message["error"]["message"]


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + b"Content-Length: 999999999999999\r\n\r\n{}",
        HEAD + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n{}",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffff\r\n{}",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n{}",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}",
        HEAD + b"A: b\r\n" * 10_000 + b"\r\n",
        HEAD + b'\r\n{"jsonrpc": "2.0", "id": 7' + b"7" * 5000 + b', "result": {}}',
        HEAD + b"\r\n" + b"[" * 200_000,
        HEAD + b'\r\n{"id": ' + b"[" * 200_000,
        HEAD + b'\r\n{"jsonrpc": "2.0", "id": 1, "result": {"content": "\xff\xfe"}}',
        EVENTS + b"data: \xff\xfe\n\n" * 3,
        EVENTS + b'data: {"jsonrpc": "2.0", "id": "other", "result": {}}\n\n',
        EVENTS + b"event: \xff\nid: \xff\xff\ndata\n\n",
        b"HTTP/1.1 307 Moved\r\nLocation: /mcp\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200\r\n",
        b"\x00\xff",
        b"",
    ],
)
def test_no_bytes_of_a_server_end_the_relay(answer: bytes, url: str, tmp_path: Path) -> None:
    """Each request gets a response: the relay's own, or what the server sent under its id."""
    with (
        answering(answer) as server,
        RelayClient("--url", f"{server}/mcp", state=tmp_path / "state", url=url) as relay,
    ):
        for _ in range(2):
            request = relay.send("tools/call", {"name": "do"})
            while (line := relay.stdout.readline().replace(b" ", b"")) and b'"id":%d,' % request not in line:
                pass
            assert line
        assert relay.end() == 0


IMPATIENT = """
import beside.relay.http, machine.http1
beside.relay.http.MOST_BYTES = machine.http1.MOST_BYTES = 16 << 20
from beside.main import main
raise SystemExit(main())
"""


def test_an_endless_body_and_an_endless_event_are_given_up(url: str, tmp_path: Path) -> None:
    """After a sixteenth of the usual number of bytes."""
    for head, piece in ((HEAD + b"\r\n", b"x" * (1 << 20)), (EVENTS, b"data: %b\n" % (b"x" * (1 << 16)))):
        with (
            answering(head, then=piece) as server,
            RelayClient(
                *("--url", f"{server}/mcp"), state=tmp_path / "state", program=("-c", IMPATIENT), url=url
            ) as relay,
        ):
            before = relay.peak_kilobytes()
            request = relay.send("tools/call", {"name": "do"})
            assert relay.read()["id"] == request
            assert relay.peak_kilobytes() - before < 3 * (16 << 10)


def test_a_request_with_a_deep_or_long_id_ends_nothing(relay: RelayClient, server: Scripted) -> None:
    server.answers["ping"] = lambda handler, message: handler.result(message, {})
    for bad in (b"[" * 100_000 + b"]" * 100_000, b"7" * 5000):
        relay.write(b'{"jsonrpc":"2.0","method":"notifications/x","id":' + bad + b"}\n")
    assert relay.ask("ping") == {}
    assert relay.end() == 0


def test_a_session_that_the_server_has_lost_is_opened_anew(relay: RelayClient, server: Scripted) -> None:
    names = iter(["first", "second"])
    live = ""

    def opened(handler: Handler, message: Any) -> None:
        nonlocal live
        assert "Mcp-Session-Id" not in handler.headers
        live = next(names)
        handler.result(message, {"protocolVersion": "2025-06-18"}, Mcp_Session_Id=live)

    def known(handler: Handler, message: Any) -> None:
        if handler.headers["Mcp-Session-Id"] == live:
            handler.result(message, {"session": live})
        else:
            handler.answer(404, b"")

    server.answers |= {"initialize": opened, "ping": known}
    relay.ask("initialize")
    assert relay.ask("ping") == {"session": "first"}
    live = "none: it was restarted"
    asked = {relay.send("ping") for _ in range(4)}
    answers = [relay.read() for _ in asked]
    assert {one["id"] for one in answers} == asked
    assert [one["result"] for one in answers] == [{"session": "second"}] * 4
    assert server.headers_of("notifications/initialized")["mcp-session-id"] == "second"


def test_a_stream_is_resumed_after_its_last_event(relay: RelayClient, server: Scripted) -> None:
    def broken(handler: Handler, message: Any) -> None:
        server.stream = [as_event({"jsonrpc": "2.0", "id": message["id"], "result": {"resumed": True}}, "e2")]
        handler.begin_events()
        handler.event(b"id: e1\ndata:")
        handler.break_off()

    server.answers["resources/list"] = broken
    assert relay.ask("resources/list") == {"resumed": True}
    assert [heads["last-event-id"] for method, _, heads, _ in server.asked if method == "GET"] == ["e1"]


def test_a_redirect_within_the_origin_is_followed(relay: RelayClient, server: Scripted) -> None:
    def moved(handler: Handler, message: Any) -> None:
        if handler.path == "/mcp/":
            handler.result(message, {"moved": True})
        else:
            handler.answer(307, b"", Location="/mcp/")

    server.answers |= {
        "ping": moved,
        "ping2": lambda handler, message: handler.answer(307, b"", Location="http://192.0.2.1/mcp"),
    }
    assert relay.ask("ping") == {"moved": True}
    assert [path for _, path, _, _ in server.asked] == ["/mcp?team=a", "/mcp/"]
    relay.send("ping2")
    assert "status 307" in relay.read()["error"]["message"]


@pytest.mark.parametrize(
    "location",
    [
        "/a b",
        "/caf\u00e9",
        "/tab\there",
        "/del\x7f",
        "//[::1/mcp",
        "http://127.0.0.1:abc/",
        "http://127.0.0.1:99999/",
        "http://[v1.a]/",
        "mailto:a@example.com",
        "http:///mcp",
        "",
    ],
)
@pytest.mark.parametrize("method", ["ping", "notifications/x"])
def test_a_redirect_that_cannot_be_sent_concerns_its_request_alone(
    relay: RelayClient, server: Scripted, location: str, method: str
) -> None:
    server.answers |= {
        method: lambda handler, message: handler.answer(308, b"", Location=location),
        "prompts/list": lambda handler, message: handler.result(message, {}),
    }
    if method == "ping":
        relay.send(method)
        assert "error" in relay.read()
    else:
        relay.write(json.dumps({"jsonrpc": "2.0", "method": method}).encode() + b"\n")
    assert relay.ask("prompts/list") == {}
    assert server.asked[-1][1] == "/mcp?team=a"


@pytest.mark.parametrize("status", [404, 405, 410, 503, 307, 0])
def test_a_redirect_is_forgotten_when_what_it_leads_to_fails(
    relay: RelayClient, server: Scripted, status: int
) -> None:
    """0: the server closes the connection."""

    def moved(handler: Handler, message: Any) -> None:
        if handler.path == "/old":
            handler.result(message, {"moved": True})
        else:
            handler.answer(308, b"", Location="/old")

    def failing(handler: Handler, message: Any) -> None:
        if status:
            handler.answer(status, b"", Location="/a b")
        else:
            handler.close_connection = True

    server.answers |= {"ping": moved, "prompts/list": failing}
    assert [relay.ask("ping") for _ in range(2)] == [{"moved": True}] * 2
    assert [path for _, path, _, _ in server.asked] == ["/mcp?team=a", "/old", "/old"]
    relay.send("prompts/list")
    assert "error" in relay.read()
    server.answers["ping"] = lambda handler, message: handler.result(message, {"path": handler.path})
    assert relay.ask("ping") == {"path": "/mcp?team=a"}


def test_what_no_url_and_no_header_can_hold_ends_nothing(relay: RelayClient, server: Scripted) -> None:
    def moved(handler: Handler, message: Any) -> None:
        handler.answer(307, b"", Location="http://127.0.0.1:abc/")

    def initialized(handler: Handler, message: Any) -> None:
        handler.result(message, {"protocolVersion": "\u20ac\n"}, Mcp_Session_Id=SESSION)

    server.answers |= {"prompts/list": moved, "notifications/x": moved, "initialize": initialized}
    server.answers["ping"] = lambda handler, message: handler.result(message, {})
    relay.send("prompts/list")
    assert "status 307" in relay.read()["error"]["message"]
    relay.write(b'{"jsonrpc":"2.0","method":"notifications/x"}\n')
    assert relay.ask("initialize")["protocolVersion"] == "\u20ac\n"
    assert relay.ask("ping") == {}
    assert "mcp-protocol-version" not in server.headers_of("ping")
    meta = {"_meta": {"io.modelcontextprotocol/protocolVersion": "\u20ac"}}
    relay.send("ping", meta)
    assert "cannot be reached" in relay.read()["error"]["message"]
    assert relay.ask("ping") == {}
    assert relay.end() == 0


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    for arguments, said in [
        (("--url", "ftp://x"), b"--url must be"),
        (("--url", "http://x/a b"), b"--url must be of ASCII"),
        (("--url", "http://x/caf\u00e9"), b"--url must be of ASCII"),
        (("--url", "http://x", "--header", "no colon"), b"--header must be"),
        (("--url", "http://x", "--", "cat"), b"takes one of a command"),
    ]:
        with RelayClient(*arguments, state=tmp_path / "state") as relay:
            assert relay.status() == 2
            assert said in relay.said()


def test_a_stored_result_is_handed_on(relay: RelayClient, server: Scripted) -> None:
    taken: list[Any] = []

    def called(handler: Handler, message: Any) -> None:
        taken.append(message["params"]["arguments"])
        handler.result(message, LARGE)

    server.answers["tools/call"] = called
    relay.ask("initialize", {"protocolVersion": "2025-06-18"})
    handle = text_of(relay.call("a")).partition('(handle = "')[2].partition('"')[0]
    relay.call("a", content=f"spillgate://{handle}")
    assert taken[-1] == {"what": "a", "content": LARGE["content"][0]["text"]}  # type: ignore[index]
    refused = relay.call("a", content=f"spillgate://{handle}#rows=1")
    assert refused["isError"]
    assert len(taken) == 2
