"""When the model of an MCP client gets our tool from the relay, from which relay, under which name."""

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from policies.outcomes.store import TOO_LARGE
from tests.beside.relay_client import HANDLE, SCRIPTED, STATELESS, RelayClient
from tests.faults.service_process import Services

CHANGED = "notifications/tools/list_changed"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
LARGE = {"name": "do", "arguments": {"what": "text", "size": 100_000}}


class Client:
    """A client of MCP by its name, with one relay for each of its servers."""

    def __init__(self, place: Path, url: str, name: str, stack: ExitStack, *more: str) -> None:
        self.place, self.url, self.name, self.stack, self.more = place, url, name, stack, more

    def relay(self, server: str = "", *options: str) -> RelayClient:
        given = ("--name", server) if server else ()
        command = (sys.executable, SCRIPTED, str(self.place / f"received-{server}"), *self.more)
        relay = RelayClient(
            *given, *options, "--no-embedded", "--", *command, state=self.place / "state", url=self.url
        )
        return self.stack.enter_context(relay)

    def opened(self, server: str = "") -> RelayClient:
        """In the era of `initialize`."""
        relay = self.relay(server)
        told = relay.ask("initialize", {"clientInfo": {"name": self.name, "version": "1"}})
        self.capabilities = told["capabilities"]
        return relay


@pytest.fixture
def client(url: str, tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as stack:
        yield lambda name, *more: Client(tmp_path, url, name, stack, *more)


def listed(relay: RelayClient, **params: Any) -> list[str]:
    """The names on the last page."""
    told = relay.ask("tools/list", {"cursor": "3", **params})
    return [tool["name"] for tool in told["tools"]]


def text(result: Any) -> str:
    said: str = result["content"][0]["text"]
    return said


def answer_about(relay: RelayClient, message: str) -> str:
    handle = HANDLE.search(message)
    assert handle is not None, message
    return text(relay.tool("tool_output", handle=handle[0], lines="17"))


@pytest.mark.parametrize("name", ["claude-code", "opencode", "copilot-cli"])
def test_a_client_that_asks_again_gets_the_tool_once_something_is_stored(client: Any, name: str) -> None:
    """The result comes behind the list: the tool is in the model's next request."""
    ours = client(name)
    relay = ours.opened("files")
    assert ours.capabilities == {"tools": {"listChanged": True}}
    assert listed(relay) == ["tool-3"]
    assert text(relay.call("text", size=100)).startswith("line")
    assert listed(relay) == ["tool-3"]
    call = relay.send("tools/call", LARGE)
    assert relay.read() == {"jsonrpc": "2.0", "method": CHANGED}
    again = relay.send("tools/list", {"cursor": "3"})
    first, second = relay.read(), relay.read()
    assert [first["id"], second["id"]] == [again, call]
    assert [tool["name"] for tool in first["result"]["tools"]] == ["tool-3", "tool_output"]
    shown = {"claude-code": "mcp__files__tool_output", "opencode": "files_tool_output"}
    message = text(second["result"])
    assert f"\n{shown.get(name, 'files-tool_output')}(handle = " in message
    assert answer_about(relay, message).startswith("17: line é of text\n")
    # It is told once.
    assert TOO_LARGE in text(relay.ask("tools/call", LARGE))


def test_a_client_that_does_not_ask_again_waits_for_its_result_a_moment_only(client: Any) -> None:
    relay = client("claude-code").opened()
    assert listed(relay) == ["tool-3"]
    call = relay.send("tools/call", LARGE)
    assert relay.read()["method"] == CHANGED
    answer = relay.read()
    assert answer["id"] == call
    assert "\ntool_output(handle = " in text(answer["result"])
    relay.stdin.close()
    assert relay.status() == 0


def test_a_result_that_waits_is_not_lost_when_the_client_closes_its_side(client: Any) -> None:
    relay = client("claude-code").opened()
    relay.send("tools/call", LARGE)
    relay.stdin.close()
    said = relay.stdout.read().splitlines()
    assert [json.loads(line).get("method") for line in said] == [CHANGED, None]
    assert relay.status() == 0


@pytest.mark.parametrize("name", ["codex-mcp-client", "gemini-cli-mcp-client", "mcp"])
def test_any_other_client_has_the_tool_from_the_start(client: Any, name: str) -> None:
    ours = client(name)
    relay = ours.opened("files")
    assert ours.capabilities == {"tools": {}}
    assert listed(relay) == ["tool-3", "tool_output"]
    message = text(relay.ask("tools/call", LARGE))
    shown = "mcp_files_tool_output" if name.startswith("gemini") else "tool_output"
    assert f"\n{shown}(handle = " in message


def stateless(relay: RelayClient, method: str, params: Any = None, name: str = "claude-code") -> int:
    info = {"io.modelcontextprotocol/clientInfo": {"name": name}}
    return relay.send(method, {**(params or {}), "_meta": STATELESS | info})


@pytest.mark.parametrize("more", [(), ("tells",)])
def test_in_the_stateless_era_the_client_listens(client: Any, more: tuple[str, ...]) -> None:
    """A server that tells of no changes is not asked to; one that does tells of its own beside ours."""
    relay = client("claude-code", *more).relay()
    stateless(relay, "server/discover")
    assert relay.read()["result"]["capabilities"]["tools"] == {"listChanged": True}
    wanted = {"toolsListChanged": True, "resourcesListChanged": True}
    listens = stateless(relay, "subscriptions/listen", {"notifications": wanted})
    acknowledged = relay.read()
    assert acknowledged["method"] == ACKNOWLEDGED
    ours = {"toolsListChanged": True}
    assert acknowledged["params"] == {
        "notifications": {"resourcesListChanged": True, **ours} if more else ours,
        "_meta": {SUBSCRIPTION: listens},
    }
    stateless(relay, "tools/list", {"cursor": "3"})
    assert [tool["name"] for tool in relay.read()["result"]["tools"]] == ["tool-3"]
    stateless(relay, "tools/call", LARGE)
    assert relay.read() == {
        "jsonrpc": "2.0",
        "method": CHANGED,
        "params": {"_meta": {SUBSCRIPTION: listens}},
    }
    stateless(relay, "tools/list", {"cursor": "3"})
    assert [tool["name"] for tool in relay.read()["result"]["tools"]] == ["tool-3", "tool_output"]
    assert TOO_LARGE in text(relay.read()["result"])


def test_a_client_of_the_stateless_era_that_does_not_listen_has_the_tool_from_the_start(client: Any) -> None:
    relay = client("claude-code").relay()
    stateless(relay, "server/discover")
    relay.read()
    listens = stateless(relay, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    relay.read()
    stateless(relay, "notifications/cancelled", {"requestId": listens})
    stateless(relay, "tools/list", {"cursor": "3"})
    assert [tool["name"] for tool in relay.read()["result"]["tools"]] == ["tool-3", "tool_output"]


def test_five_relays_of_a_client_offer_one_tool_that_answers_for_all(client: Any) -> None:
    ours = client("gemini-cli-mcp-client")
    relays = [ours.opened(name) for name in ("a", "b", "c", "d", "e")]
    assert [listed(relay)[1:] for relay in relays] == [["tool_output"], [], [], [], []]
    messages = [text(relay.ask("tools/call", LARGE)) for relay in relays]
    for message in messages:
        assert "\nmcp_a_tool_output(handle = " in message
        assert answer_about(relays[0], message).startswith("17: line é of text\n")
    relays[0].stdin.close()
    assert relays[0].status() == 0
    assert listed(relays[1]) == ["tool-3", "tool_output"]
    assert "\nmcp_b_tool_output(handle = " in text(relays[2].ask("tools/call", LARGE))


def test_of_relays_that_offer_late_the_one_that_stores_first_offers(client: Any) -> None:
    ours = client("claude-code")
    relays = [ours.opened(name) for name in ("a", "b", "c")]
    assert [listed(relay) for relay in relays] == [["tool-3"]] * 3
    relays[1].send("tools/call", LARGE)
    assert relays[1].read()["method"] == CHANGED
    assert listed(relays[1]) == ["tool-3", "tool_output"]
    assert "\nmcp__b__tool_output(handle = " in text(relays[1].read()["result"])
    for relay in (relays[0], relays[2]):
        message = text(relay.ask("tools/call", LARGE))
        assert "\nmcp__b__tool_output(handle = " in message
        assert listed(relay) == ["tool-3"]
        assert answer_about(relays[1], message).startswith("17: ")
    relays[1].process.kill()
    relays[1].process.join()
    relays[2].send("tools/call", LARGE)
    assert relays[2].read()["method"] == CHANGED


def test_clients_that_are_not_known_to_run_one_conversation_have_a_tool_from_each_relay(client: Any) -> None:
    ours = client("mcp")
    relays = [ours.opened(name) for name in ("a", "b")]
    assert [listed(relay) for relay in relays] == [["tool-3", "tool_output"]] * 2


def test_no_handle_is_named_to_a_model_that_could_not_be_given_the_tool(tmp_path: Path) -> None:
    with Services(tmp_path) as services:
        started = asyncio.run(services.start(tmp_path / "state"))
        url = "http://{}:{}".format(*started.address)
        started.kill()
        with ExitStack() as stack:
            ours = Client(tmp_path, url, "mcp", stack)
            relay = ours.opened()
            assert listed(relay) == ["tool-3"]
            port = url.rpartition(":")[2]
            asyncio.run(services.start(tmp_path / "state", ("-m", "beside.main", "serve", "--port", port)))
            assert text(relay.ask("tools/call", LARGE)).startswith("line é of text\n")
            assert (
                b"The model has no tools for stored results. The result is cut. It is not stored."
                in relay.said()
            )
            assert listed(relay) == ["tool-3", "tool_output"]
            assert text(relay.ask("tools/call", LARGE)).startswith(TOO_LARGE)
