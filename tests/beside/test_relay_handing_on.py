"""The relay hands stored results on: the server gets their text where the client's model refers to them."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from domain.references import UNRESOLVED
from tests import plain_http
from tests.beside.relay_client import HANDLE, SCRIPTED, STATELESS, RelayClient
from tests.misbehaving_server import OF_THE_SERVICE, answering

TEXT = "line é of text\n" * 6250


def opened(place: Path, url: str, **environment: Any) -> RelayClient:
    command = (sys.executable, SCRIPTED, str(place / "received"))
    return RelayClient("--", *command, state=place / "state", url=url, **environment)


@pytest.fixture
def relay(url: str, tmp_path: Path) -> Iterator[RelayClient]:
    with opened(tmp_path, url) as client:
        yield client


def stored(relay: RelayClient) -> str:
    """The handle of a result of the server."""
    message = relay.call("text", size=100_000)["content"][0]["text"]
    handle = HANDLE.search(message)
    assert handle is not None
    assert (
        "\nTo hand it to another tool of this server unread, pass spillgate://<handle> as the whole argument."
        in message
    )
    return handle[0]


def received(place: Path) -> list[Any]:
    return [json.loads(line) for line in (place / "received").read_bytes().splitlines()]


def refusal_of(result: Any) -> str:
    assert result["isError"] is True
    refusal: str = result["content"][0]["text"]
    return refusal


def test_the_server_gets_the_text_and_all_else_byte_for_byte(relay: RelayClient, tmp_path: Path) -> None:
    reference = f"spillgate://{stored(relay)}"
    big = 12345678901234567890123
    deep = {"rows": [f"{reference}#lines=2", f"see {reference}", 1.0, big]}
    result = relay.call("result", result={"content": []}, content=reference, deep=deep)
    assert result == {"content": []}
    message = received(tmp_path)[-1]
    arguments = message["params"]["arguments"]
    assert arguments["content"] == TEXT
    assert arguments["deep"] == {"rows": ["line é of text\n", f"see {reference}", 1.0, big]}
    assert (message["id"], message["method"], message["params"]["name"]) == (2, "tools/call", "do")


def test_what_is_no_reference_passes_as_it_is(relay: RelayClient, tmp_path: Path) -> None:
    handle = stored(relay)
    texts = [
        handle,
        f"see spillgate://{handle}",
        f"spillgate://{handle} ",
        "spillgate://x",
        {f"spillgate://{handle}": 1},
    ]
    arguments = {"what": "text", "size": 16, "texts": texts}
    line = json.dumps(
        {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "do", "arguments": arguments}}
    )
    relay.write(line.encode() + b"\n")
    assert relay.read()["id"] == 9
    assert (tmp_path / "received").read_bytes().splitlines()[-1] == line.encode()


def test_the_tool_does_not_run_if_a_reference_is_refused(
    relay: RelayClient, url: str, tmp_path: Path
) -> None:
    handle = stored(relay)
    (tmp_path / "other").mkdir()
    with opened(tmp_path / "other", url) as other:
        theirs = stored(other)
    count = len(received(tmp_path))
    other_digit = "1" if handle.endswith("0") else "0"
    for reference, why in (
        (f"spillgate://{theirs}", "No stored result of this session"),
        (f"spillgate://{handle[:-1]}{other_digit}", "No stored result has this handle"),
        (f"spillgate://{handle}#rows=1", "After the handle comes nothing"),
    ):
        refusal = refusal_of(relay.call("text", content=reference))
        assert refusal.startswith(why)
        assert refusal.endswith(" The tool did not run.")
    assert len(received(tmp_path)) == count
    era = relay.ask(
        "tools/call", {"name": "do", "arguments": {"a": f"spillgate://{theirs}"}, "_meta": STATELESS}
    )
    assert era["resultType"] == "complete"


def test_what_a_server_says_is_never_resolved(relay: RelayClient, tmp_path: Path) -> None:
    """A result, and a request of the server, may hold a reference to what its model has stored."""
    bait = f"spillgate://{stored(relay)}"
    held = relay.send("tools/call", {"name": "do", "arguments": {"what": "hold"}})
    result = {"content": [{"type": "text", "text": bait}]}
    call = {"name": "do", "arguments": {"content": bait}}
    said = [
        {"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": call},
        {"jsonrpc": "2.0", "id": held, "result": result},
    ]
    (tmp_path / "said").write_text("".join(json.dumps(one) + "\n" for one in said))
    relay.write(
        json.dumps({"id": "e", "method": "emit", "params": {"path": str(tmp_path / "said")}}).encode() + b"\n"
    )
    assert [relay.read(), relay.read()] == said


@pytest.mark.parametrize("answer", OF_THE_SERVICE.values(), ids=OF_THE_SERVICE)
def test_without_an_answer_of_the_service_the_tool_does_not_run(answer: bytes, tmp_path: Path) -> None:
    reference = "spillgate://session-a/file-00000000-0000-4000-8000-000000000000"
    with answering(answer) as url, opened(tmp_path, url) as relay:
        assert refusal_of(relay.call("text", size=16, content=reference)) == UNRESOLVED
        relay.call("text", size=16, content=f"see {reference}")
        assert reference not in relay.said().decode()
    assert len(received(tmp_path)) == 1


def test_each_use_is_accounted_for_the_tool_that_got_it(relay: RelayClient, url: str) -> None:
    handle = stored(relay)
    relay.call("text", size=16, content=f"spillgate://{handle}#lines=1-2")
    session = handle.partition("/")[0].removeprefix("session-")
    [entry] = plain_http.get(
        f"{url}/accounting/entries", params={"session_id": session, "type": "pass_on"}
    ).json()["entries"]
    assert (entry["tool_name"], entry["details"]["bytes"]) == ("do", 32)
