"""`spillgate mcp -- COMMAND`: a real relay between a client and a scripted server, before a real service."""

import asyncio
import base64
import json
import os
import random
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from policies.outcomes.store import TOO_LARGE
from tests import plain_http
from tests.beside.relay_client import HANDLE, SCRIPTED, STATELESS, RelayClient
from tests.faults.service_process import Services
from tests.misbehaving_server import OF_THE_SERVICE, answering, http

OUR_TOOLS = ["tool_output"]


@pytest.fixture
def relay(url: str, tmp_path: Path) -> Iterator[RelayClient]:
    with opened(tmp_path, url=url) as client:
        yield client


@pytest.fixture(scope="module")
def shared(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayClient]:
    """For tests that leave nothing behind in a relay."""
    with opened(tmp_path_factory.mktemp("shared"), url=url) as client:
        yield client


def opened(place: Path, *options: str, **environment: Any) -> RelayClient:
    command = (sys.executable, SCRIPTED, str(place / "received"))
    return RelayClient(*options, "--", *command, state=place / "state", **environment)


def entries(url: str, session: str) -> list[dict[str, Any]]:
    answer = plain_http.get(f"{url}/accounting/entries", params={"session_id": session})
    found: list[dict[str, Any]] = answer.json()["entries"]
    return found


def assert_cut(shown: str, sent: str) -> None:
    """The model got head and tail around a line that says how much is missing, and that it is not stored."""
    note = f"[{len(sent) - 12_288} characters not shown: the result was too large, and is not stored]"
    assert shown == f"{sent[:6144]}\n{note}\n{sent[-6144:]}"


def text_of(result: Any) -> str:
    assert [block["type"] for block in result["content"]] == ["text"]
    said: str = result["content"][0]["text"]
    return said


def test_a_large_result_is_replaced_and_asked_about(relay: RelayClient, url: str) -> None:
    about = {"clientInfo": {"name": "my-editor", "version": "1"}}
    assert relay.ask("initialize", about)["serverInfo"]["name"] == "scripted"
    said = text_of(relay.call("text", size=100_000))
    assert said.startswith(f"{TOO_LARGE} (")
    handle = HANDLE.search(said)
    assert handle is not None
    lines = relay.tool("tool_output_lines", handle=handle[0], offset=6000, limit=2)
    assert lines["isError"] is False
    assert "6000 line é of text" in text_of(lines).replace(":", "")
    found = relay.tool("tool_output", handle=handle[0], extract="line of text")
    assert "line é of text" in text_of(found)
    assert "resultType" not in found
    wrong = relay.tool("tool_output_grep", handle=handle[0], pattern="(")
    assert wrong["isError"] is True
    session = handle[0].split("/")[0].removeprefix("session-")
    first = entries(url, session)[0]
    assert (first["mcpServer"], first["command"], first["outcome"]) == ("scripted", "do", "store")
    assert re.fullmatch(r"\d+-[0-9a-f]{8}-1", first["tool_call_id"])
    assert (first["client"], first["project"]) == ("my-editor", Path.cwd().name)
    assert first["charactersIn"] > 0
    assert relay.end() == 0


def test_what_passes_with_masks_is_shown_with_masks(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[defaults]\nredact = ["noun"]\n[redact.noun]\npattern = "line é"\n')
    with Services(tmp_path) as services:
        masking = asyncio.run(services.start(tmp_path / "masking", policy_file=str(policy)))
        with opened(tmp_path, url="http://{}:{}".format(*masking.address)) as relay:
            shown = text_of(relay.call("text", size=200))
    assert re.search(r"\[redacted: noun #\d{6}\] of text", shown)
    assert "line é" not in shown


def test_the_session_and_the_call_are_named(url: str, tmp_path: Path) -> None:
    with opened(tmp_path, url=url, session="named") as relay:
        meta = {**STATELESS, "claudecode/toolUseId": "toolu_1"}
        arguments = {"what": "text", "size": 20_000}
        result = relay.ask("tools/call", {"name": "do", "arguments": arguments, "_meta": meta})
        assert "session-named/file-" in text_of(result)
        own = {"name": "tool_output_lines", "arguments": {"handle": text_of(result), "offset": 1}}
        handle = HANDLE.search(text_of(result))
        assert handle is not None
        own["arguments"] = {"handle": f' "{handle[0].upper()}" ', "offset": 1}
        answer = relay.ask("tools/call", {**own, "_meta": meta})
        assert answer["resultType"] == "complete"
        assert next(entry["tool_call_id"] for entry in entries(url, "named")) == "toolu_1"


def test_our_tools_are_listed_once_at_the_end_of_the_last_page(relay: RelayClient) -> None:
    for _ in range(2):
        names, cursor = [], None
        for page in (1, 2, 3):
            listed = relay.ask("tools/list", {"cursor": cursor} if cursor else {})
            names += [tool["name"] for tool in listed["tools"]]
            cursor = listed.get("nextCursor")
            theirs = listed["tools"][0]
            assert "outputSchema" not in theirs
            kept = {"kept": 1} if page == 1 else {}
            assert theirs["_meta"] == {**kept, "anthropic/maxResultSizeChars": 500_000}
            assert ascii(theirs["description"]) == r"'d\ud800\xe9'"
            assert theirs["inputSchema"]["properties"]["n"]["maximum"] == 12345678901234567890123
        assert cursor is None
        assert names == ["tool-1", "tool-2", "tool-3", *OUR_TOOLS]


def test_all_else_passes_byte_for_byte_and_in_order(relay: RelayClient, tmp_path: Path) -> None:
    odd = [
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.50}}\n',
        b' { "jsonrpc" : "2.0", "method" : "x", "a": 1, "a": 2, "n": 123456789012345678901, "f": 1e400 }\r\n',
        b'{"jsonrpc":"2.0","id":"\\u00e9","method":"sampling/createMessage","params":{"s":"\\ud800"}}\n',
        b'{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{"message":"\xc3\xa9"}}\n',
        b'{"jsonrpc":"2.0","id":99,"result":{"tools":[{"name":"t","outputSchema":{}}],"content":[]}}\n',
        b'{"jsonrpc":"2.0","id":99,"error":{"code":-32601,"message":"no"}}\n',
        b'{"jsonrpc":"2.0","id":1,"result":{"x":NaN}}\n',
        b'{"a":' * 5000 + b"}" * 5000 + b"\n",
        b'{"broken": \xff\n',
        b"{}\n",
        b'{"jsonrpc":"2.0","method":"last, without its end"}',
    ]
    small = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"n":%d}}\n'
    theirs = [line for n in range(300) for line in (small % n, random.Random(n).choice(odd[:-1]))] + odd[-1:]
    (tmp_path / "emitted").write_bytes(b"".join(theirs))
    asked = json.dumps({"id": 1, "method": "emit", "params": {"path": str(tmp_path / "emitted")}})
    answered = [b'"id":"\\u00e9"', b'"id":0']
    ours = [line for line in odd if not any(part in line for part in answered)]
    ours = [asked.encode() + b"\n", *ours]
    relay.write(b"".join(ours))
    relay.stdin.close()
    assert relay.stdout.read() == b"".join(theirs)
    assert relay.status() == 0
    assert (tmp_path / "received").read_bytes() == b"".join(ours)


def test_a_batch_is_refused_and_not_passed_on(relay: RelayClient, tmp_path: Path) -> None:
    for batch in (b"[]", b' [{"jsonrpc":"2.0","id":1,"method":"tools/list"}]', b"[" * 5000):
        relay.write(batch + b"\n")
        answer = relay.read()
        assert (answer["id"], answer["error"]["code"]) == (None, -32600)
    assert relay.ask("ping") == {}
    assert b"tools/list" not in (tmp_path / "received").read_bytes()


def test_numbers_that_no_float_holds_stay_in_a_list_of_tools(relay: RelayClient, tmp_path: Path) -> None:
    """The request is the first of the relay, so its id is 1."""
    schema = b'{"maximum":1e999,"minimum":0.10,"multipleOf":12345678901234567890.5}'
    listed = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"t","inputSchema":%b}]}}\n' % schema
    (tmp_path / "emitted").write_bytes(listed)
    relay.send("tools/list", {"cursor": "odd"})
    relay.write(b'{"id":7,"method":"emit","params":{"path":"%b"}}\n' % bytes(tmp_path / "emitted"))
    lines = [relay.stdout.readline() for _ in range(2)]
    assert any(b'"inputSchema":' + schema in line for line in lines)


def test_a_second_answer_and_tools_with_long_or_odd_names_are_governed(
    relay: RelayClient, tmp_path: Path
) -> None:
    answer = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%b"}]}}\n'
    for name in ("n" * 300, "a\nb", "\ud800", "", "é€"):
        for letter in (b"x", b"y", b"y"):
            (tmp_path / "emitted").write_bytes(answer % (relay._requests + 1, letter * 20_000))
            if letter == b"x":
                relay.send("tools/call", {"name": name, "arguments": {"what": "hold"}})
            else:
                (tmp_path / "emitted").write_bytes(answer % (relay._requests, letter * 20_000))
            relay.write(b'{"id":7,"method":"emit","params":{"path":"%b"}}\n' % bytes(tmp_path / "emitted"))
            assert "too large" in text_of(relay.read()["result"]), (name[:9], letter)


PICTURE = {"type": "image", "data": "A" * 50_000, "mimeType": "image/png"}
LINK = {"type": "resource_link", "uri": "file:///x", "name": "x"}
LONG = "many words here\n" * 800
ROWS = {"rows": [{"id": n, "name": f"name {n}"} for n in range(500)]}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def test_what_of_a_result_is_replaced(shared: RelayClient, url: str) -> None:
    cases: list[tuple[dict[str, Any], list[str], str]] = [
        (
            {"content": [said(LONG), PICTURE, said("end"), LINK]},
            ["text", "image", "resource_link"],
            LONG + "\nend",
        ),
        ({"content": [said(LONG)], "structuredContent": {"result": LONG}}, ["text"], LONG),
        ({"content": [said("500 rows")], "structuredContent": ROWS}, ["text", "text"], json.dumps(ROWS)),
        ({"content": [], "structuredContent": ROWS, "_meta": {"a": 1}}, ["text"], json.dumps(ROWS)),
        ({"structuredContent": ROWS, "isError": True}, ["text"], json.dumps(ROWS)),
        (
            {"content": [{"type": "resource", "resource": {"uri": "file:///y", "text": LONG}}], "x": [1.50]},
            ["resource"],
            LONG,
        ),
        ({"content": [said('€😀\\"\n' * 1500)]}, ["text"], '€😀\\"\n' * 1500),
        ({"content": [said("a"), said("b")] * 4000}, ["text"], "\n".join(["a", "b"] * 4000)),
        ({"content": [{"type": "new", "of": LONG}]}, ["text"], json.dumps({"type": "new", "of": LONG})),
    ]
    for result, types, stored in cases:
        given = shared.call("result", result=result)
        assert [block["type"] for block in given["content"]] == types
        assert "structuredContent" not in given
        kept = [block for block in result.get("content", []) if block["type"] in ("image", "resource_link")]
        assert [block for block in given["content"] if block["type"] in ("image", "resource_link")] == kept
        others = {"content", "structuredContent"}
        assert {name: one for name, one in given.items() if name not in others} == {
            name: one for name, one in result.items() if name not in others
        }
        texts = (block.get("resource", block).get("text") for block in given["content"])
        messages = [text for text in texts if text is not None]
        handle = HANDLE.search(messages[-1])
        assert handle is not None
        assert plain_http.get(f"{url}/results/{handle[0]}/content").text == stored
        if len(messages) == 2:
            assert messages[0] == "500 rows"


def test_an_embedded_resource_keeps_all_but_its_contents(shared: RelayClient, url: str) -> None:
    def resource(name: str, **contents: Any) -> dict[str, Any]:
        about = {"uri": f"file:///{name}", "mimeType": "text/x-log", "_meta": {"a": name}}
        given = {"annotations": {"audience": ["assistant"], "priority": 1.0}, "_meta": {"b": [name]}}
        return {"type": "resource", "resource": about | contents, **given}

    def without(block: dict[str, Any]) -> dict[str, Any]:
        left = {name: one for name, one in block["resource"].items() if name not in ("text", "blob")}
        return {**block, "resource": left}

    blob = base64.b64encode(b"\0\1" * 10_001).decode()
    cases = [
        [resource("x", text=LONG)],
        [resource("x", text=LONG), resource("y", text=LONG), said("end")],
        [said(LONG) | {"annotations": {"priority": 0.5}}, resource("y", text=LONG)],
        [resource("x", blob=blob)],
        [said("A file:"), resource("x", blob=blob)],
    ]
    for content in cases:
        given = shared.call("result", result={"content": content})["content"]
        assert [block["type"] for block in given] == [
            block["type"] for number, block in enumerate(content) if not number or block["type"] == "resource"
        ]
        resources = [block for block in content if block["type"] == "resource"]
        assert [without(block) for block in given if block["type"] == "resource"] == list(
            map(without, resources)
        )
        assert given[0].get("annotations") == content[0].get("annotations")
        first = given[0].get("resource", given[0])["text"]
        assert HANDLE.search(first)
        for block in given[1:]:
            assert not HANDLE.search(block["resource"]["text"])
        if "blob" in json.dumps(content):
            (told,) = (block["resource"]["text"] for block in given if "resource" in block)
            assert told.startswith("file:///x: text/x-log, 20,002 bytes, not text.")


def test_what_of_a_result_passes(shared: RelayClient) -> None:
    cases: list[dict[str, Any]] = [
        {"content": [said("small")], "structuredContent": {"a": 1}, "_meta": {"b": 2}},
        {"content": [PICTURE]},
        {"content": [said(LONG)], "resultType": "input_required"},
        {"task": {"taskId": "t", "status": "working"}},
        {"content": [{"type": "text", "text": 7}]},
        {"content": {"text": LONG}},
        {"content": []},
    ]
    for result in cases:
        assert shared.call("result", result=result) == result


def test_the_copy_of_a_picture_in_structured_content_is_dropped_in_silence(shared: RelayClient) -> None:
    for content in ([PICTURE], [said("small"), PICTURE]):
        copy = {"images": [{"base64": PICTURE["data"]}]}
        assert shared.call("result", result={"content": content, "structuredContent": copy}) == {
            "content": content
        }


def test_structured_content_that_passes_by_itself_stays_beside_a_cut_text(url: str, tmp_path: Path) -> None:
    plain_http.put(f"{url}/sessions/cut", json={"policy": {"max_rows": 50}}).raise_for_status()
    with opened(tmp_path, url=url, session="cut") as relay:
        rows = {"rows": ROWS["rows"][:200]}
        result = {"content": [said("row\n" * 100)], "structuredContent": rows}
        given = relay.call("result", result=result)
    assert "(Showing lines 1–50 of 100 total)" in text_of(given)
    assert given["structuredContent"] == rows


def test_answers_out_of_order_and_cancelled_requests(relay: RelayClient, tmp_path: Path) -> None:
    first = relay.send("tools/call", {"name": "do", "arguments": {"what": "hold"}})
    relay.write(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}\n')
    second = relay.send("tools/call", {"name": "do", "arguments": {"what": "hold"}})
    last = relay.send("tools/call", {"name": "do", "arguments": {"what": "release"}})
    answers = [relay.read() for _ in range(3)]
    assert [message["id"] for message in answers] == [last, first, second]
    assert text_of(answers[1]["result"]) == f"held {first}"
    assert b"notifications/cancelled" in (tmp_path / "received").read_bytes()


def test_garbage_goes_to_stderr(relay: RelayClient) -> None:
    request = relay.send("tools/call", {"name": "do", "arguments": {"what": "garbage"}})
    assert relay.stdout.readline() == b'{"jsonrpc": "2.0", "id": 4711, "result": {"unfinished": \n'
    answer = relay.read()
    assert (answer["id"], text_of(answer["result"])) == (request, "after garbage")
    assert b"Listening on \xff\xfe stdout!\n\n\x00\x01\n" in relay.said()


def test_the_exit_status_and_signals_are_those_of_the_server(url: str, tmp_path: Path) -> None:
    for number, (what, status) in enumerate(
        [({"what": "exit", "status": 7}, 7), ({"what": "kill"}, -signal.SIGKILL), ({"what": "close"}, 0)]
    ):
        (tmp_path / str(number)).mkdir()
        with opened(tmp_path / str(number), url=url) as relay:
            relay.ask("ping")
            relay.send("tools/call", {"name": "do", "arguments": what})
            assert relay.stdout.read() == b""
            assert relay.end() == status
    (tmp_path / "t").mkdir()
    with opened(tmp_path / "t", url=url) as relay:
        relay.ask("ping")
        relay.signal(signal.SIGTERM)
        assert relay.status() == -signal.SIGTERM
    # Some clients leave the dashes out.
    command = ("--no-embedded", sys.executable, "-uc", "print('{}'); raise SystemExit(5)")
    with RelayClient(*command, state=tmp_path / "d") as relay:
        assert relay.read() == {}
        assert relay.status() == 5
    with RelayClient("--", "/no/such/command", state=tmp_path / "n") as relay:
        assert relay.status() == 127
        assert relay.said() == b"spillgate mcp: /no/such/command: No such file or directory\n"
    with RelayClient(state=tmp_path / "m") as relay:
        assert relay.status() == 2
        assert b"--url URL" in relay.said()


def test_an_answer_that_is_owed_comes_after_the_output_of_the_server_has_ended(tmp_path: Path) -> None:
    is_asked, may_answer = threading.Event(), threading.Event()

    class SlowService(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(503)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            is_asked.set()
            may_answer.wait()
            self.wfile.write(http("200 OK", b'{"text": "It is there.", "is_error": false}'))

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), SlowService) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with opened(tmp_path, url=f"http://127.0.0.1:{server.server_port}") as relay:
            request = relay.send(
                "tools/call", {"name": "tool_output", "arguments": {"handle": "h", "extract": "x"}}
            )
            is_asked.wait()
            # Its output ends before it does.
            relay.send("tools/call", {"name": "do", "arguments": {"what": "close"}})
            relay.send("tools/call", {"name": "do", "arguments": {"what": "hold"}})
            received = tmp_path / "received"
            while not received.exists() or b'"hold"' not in received.read_bytes():
                time.sleep(0.01)
            may_answer.set()
            answer = relay.read()
            assert (answer["id"], text_of(answer["result"])) == (request, "It is there.")
            assert relay.end() == 0
        server.shutdown()


def test_a_server_that_hangs_is_left_to_the_client(relay: RelayClient) -> None:
    """Its process ends with the client's signal."""
    relay.send("tools/call", {"name": "do", "arguments": {"what": "hold"}})
    relay.ask("ping")
    relay.signal(signal.SIGINT)
    assert relay.status() == -signal.SIGINT


def test_bytes_that_are_not_utf8_are_stored_as_they_are_shown(relay: RelayClient, tmp_path: Path) -> None:
    line = b"caf\xe9 latin\n"
    for count in (5, 2000):
        request = relay.send("tools/call", {"name": "do", "arguments": {"what": "hold"}})
        result = b'{"content":[{"type":"text","text":"%s"}]}' % (line.replace(b"\n", b"\\n") * count)
        (tmp_path / "latin").write_bytes(b'{"jsonrpc":"2.0","id":%d,"result":%s}\n' % (request, result))
        relay.send("emit", {"path": str(tmp_path / "latin")})
        answer = relay.stdout.readline()
        if count == 5:
            assert answer == (tmp_path / "latin").read_bytes()
        else:
            assert f"{TOO_LARGE} (26000 bytes, 2000 lines" in text_of(json.loads(answer)["result"])


def test_results_of_any_size(relay: RelayClient) -> None:
    """4 MB are governed, in less memory than four times that. 6 MB are cut: the service refuses them."""
    relay.ask("ping")
    before = relay.peak_kilobytes()
    assert f"{TOO_LARGE} (4194304 bytes" in text_of(relay.call("raw", size=4 << 20))
    assert relay.peak_kilobytes() - before < 4 * (4 << 10)
    assert_cut(text_of(relay.call("raw", size=6 << 20)), "0123456789abcde\n" * (6 << 16))


def test_the_service_stops_and_starts_in_between(tmp_path: Path) -> None:
    with Services(tmp_path) as services:
        started = asyncio.run(services.start(tmp_path / "state"))
        url = "http://{}:{}".format(*started.address)
        with opened(tmp_path, "--no-embedded", url=url) as relay:
            assert "too large" in text_of(relay.call("text", size=20_000))
            started.kill()
            for _ in range(2):
                assert_cut(text_of(relay.call("text", size=20_000)), "line é of text\n" * 1250)
            answer = relay.tool("tool_output_lines", handle="session-s/file-x", offset=1)
            assert answer["isError"] is True
            assert "Start it, or correct SPILLGATE_URL" in text_of(answer)
            assert relay.said().count(b"The result is cut. It is not stored.\n") == 1
            port = url.rpartition(":")[2]
            command = ("-m", "beside.main", "serve", "--port", port)
            asyncio.run(services.start(tmp_path / "state", command))
            assert "too large" in text_of(relay.call("text", size=20_000))


def test_a_service_that_does_not_answer_is_left_alone(tmp_path: Path) -> None:
    impatient = (
        "-c",
        "import beside.client as client, beside.main as main\n"
        "sent = client.ServiceClient.request\n"
        "client.ServiceClient.request = lambda one, request: sent(one, request._replace(seconds=0.1))\n"
        "main.sys.exit(main.main())",
    )
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.fspath(tmp_path / "silent"))
        server.listen()
        with opened(tmp_path, program=impatient, url=f"unix:{tmp_path / 'silent'}") as relay:
            for _ in range(5):
                assert_cut(text_of(relay.call("text", size=20_000)), "line é of text\n" * 1250)
            assert b"timed out. The result is cut." in relay.said()
        server.setblocking(False)
        connections = []
        with suppress(BlockingIOError):
            while True:
                connections.append(server.accept()[0])
        # One for the first result, one that was to be ready for it.
        assert len(connections) <= 2
        for one in connections:
            one.close()


@pytest.mark.parametrize("is_open", [True, False])
def test_a_closed_stderr_loses_no_result(tmp_path: Path, is_open: bool) -> None:
    """A pipe that no process reads, or none at all."""
    code = (
        "import os, sys\n"
        "reader, writer = os.pipe()\n"
        "os.close(reader)\n"
        f"os.dup2(writer, 2) if {is_open} else os.close(2)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'beside.main', *sys.argv[1:]])"
    )
    with opened(tmp_path, "--no-embedded", program=("-c", code), url="http://127.0.0.1:1") as relay:
        for _ in range(2):
            assert_cut(text_of(relay.call("text", size=20_000)), "line é of text\n" * 1250)
            relay.send("tools/call", {"name": "do", "arguments": {"what": "garbage"}})
            assert b'"unfinished"' in relay.stdout.readline()
            assert text_of(relay.read()["result"]) == "after garbage"
        assert relay.end() == 0


def test_after_a_fault_of_the_relay_messages_pass(tmp_path: Path) -> None:
    faulty = (
        "-c",
        "import beside.relay.relay, beside.main as main\n"
        "beside.relay.relay.Relay._note_server = lambda *_: {}[0]\n"
        "main.sys.exit(main.main())",
    )
    with opened(tmp_path, "--no-embedded", program=faulty, url="http://127.0.0.1:1") as relay:
        assert relay.ask("initialize")["serverInfo"]["name"] == "scripted"
        assert b"A fault of the relay, KeyError. The message passes unchanged.\n" in relay.said()
        assert [tool.get("name") for tool in relay.ask("tools/list", {"cursor": "odd"})["tools"][2:]] == [
            None
        ]
        assert relay.end() == 0


def test_after_an_answer_that_is_no_outcome_the_result_passes(tmp_path: Path) -> None:
    code = (
        "import beside.relay.service_calls, beside.main as main\n"
        "beside.relay.service_calls.PAUSE_SECONDS = 0\n"
        "main.sys.exit(main.main())"
    )
    answers: list[bytes] = []
    with (
        answering(answers) as url,
        opened(tmp_path, "--no-embedded", program=("-c", code), url=url) as relay,
    ):
        for name, answer in OF_THE_SERVICE.items():
            answers.append(answer)
            assert_cut(text_of(relay.call("text", size=20_000)), "line é of text\n" * 1250)
            assert b"The result is cut. It is not stored.\n" in relay.said()
            told = relay.tool("tool_output_lines", handle="session-s/file-x", offset=1)
            assert told["isError"] is True, name
            assert "takes an object" not in text_of(told)


def test_a_client_that_reads_no_more_ends_the_server(relay: RelayClient) -> None:
    relay.ask("ping")
    relay.stdout.close()
    with suppress(BrokenPipeError):
        while relay.process.is_alive():
            relay.send("ping")
    assert relay.status() != 0


def test_without_a_service_results_pass(tmp_path: Path) -> None:
    for url in ["ftp://x", "http://127.0.0.1:1"]:
        with opened(tmp_path, "--no-embedded", url=url) as relay:
            assert [tool["name"] for tool in relay.ask("tools/list", {"cursor": "3"})["tools"]] == ["tool-3"]
            assert b"The model has no tools for stored results." in relay.said()
            for short in ("line é of text\n" * 819, "行" * 12_288):
                assert text_of(relay.call("result", result={"content": [said(short)]})) == short
            assert b"The result passes unchanged. It is not stored." in relay.said()
            for long in ("line é of text\n" * 820, "行" * 12_289):
                result = {"content": [said(long), PICTURE, LINK], "isError": True}
                given = relay.call("result", result=result)
                assert_cut(given["content"][0]["text"], long)
                assert given == {
                    "content": [{**said(given["content"][0]["text"])}, PICTURE, LINK],
                    "isError": True,
                }
            assert b"The result is cut. It is not stored." in relay.said()
            given = relay.call("result", result={"content": [said("500 rows")], "structuredContent": ROWS})
            assert given["content"][0] == said("500 rows")
            assert_cut(given["content"][1]["text"], json.dumps(ROWS))
            assert "structuredContent" not in given
            blob = {"type": "resource", "resource": {"uri": "file:///x", "blob": "AAAA" * 10_000}}
            given = relay.call("result", result={"content": [blob]})["content"][0]["resource"]
            about, _, cut = given["text"].partition("\n")
            assert about == "file:///x: bytes of an unknown type, 30,000 bytes, not text."
            assert_cut(cut, json.dumps(blob))
