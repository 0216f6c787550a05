"""Stored results handed on by agents that people use: what reaches the tool is the result, byte for byte."""

import json
import os
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from content.tokens import load_encoding
from tests.beside.relay_client import HANDLE, RelayClient
from tests.faults.service_process import Service
from tests.interop.agents.model import Asked, Call, ScriptedModel
from tests.interop.agents.programs import PROGRAMS, Agent, ClaudeCode, Codex, GeminiCli, OpenCode
from tests.interop.test_agent_hooks import spillgate
from tests.redis_server import free_port

pytestmark = pytest.mark.anyio

FILES = [sys.executable, str(Path(__file__).with_name("files_server.py"))]
SIZE = 200_000


class Case(NamedTuple):
    """How the model of an agent fetches a text, and writes one to a file: by the agent's own tool and by one
    of an MCP server."""

    client: str
    agent: type[Agent]
    fetch: str
    mcp: str
    own: tuple[str, str, str] | None = None
    first: tuple[Call, ...] = ()
    options: tuple[str, ...] = ()


CASES = [
    Case(
        "claude-code",
        ClaudeCode,
        "mcp__files__fetch",
        "mcp__files__save",
        ("Write", "file_path", "content"),
    ),
    Case(
        "codex",
        Codex,
        "fetch",
        "save",
        first=(Call("tool_search", {"query": "fetch save", "limit": 9}),),
        options=("--dangerously-bypass-hook-trust",),
    ),
    Case("opencode", OpenCode, "files_fetch", "files_save", ("write", "filePath", "content")),
    Case("gemini", GeminiCli, "mcp_files_fetch", "mcp_files_save", ("write_file", "file_path", "content")),
]


def reference(asked: Asked) -> str:
    handles = [found[0] for text in asked.results if (found := HANDLE.search(text))]
    return f"spillgate://{handles[-1]}"


def text() -> str:
    """What the tool `fetch` returns."""
    lines = [f'{number}: "quoted" \\ é 鬱 \t {"x" * (number % 50)}\n' for number in range(5000)]
    return "".join(lines)[:SIZE]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.client)
async def test_a_stored_result_is_written_to_a_file_unread(
    case: Case, service: Service, tmp_path: Path
) -> None:
    with ScriptedModel() as model:
        agent = case.agent(tmp_path / "agent", model)
        agent.add_mcp("files", FILES)
        agent.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        async with service.client() as client:
            url = str(client.base_url).rstrip("/")
            agent.environ |= {"SPILLGATE_URL": url, "SPILLGATE_HOOK_TIMEOUT_MS": "20000"}
            arguments = [one for one in agent._command("Save.") if one != "--strict-mcp-config"]
            agent._command = lambda prompt: arguments  # type: ignore[method-assign]
            await spillgate(agent.home, url, "hook", "install", case.client)
            by_mcp, by_own, bad = (agent.project / name for name in ("by-mcp", "by-own", "bad"))

            def save(asked: Asked) -> Call:
                return Call(case.mcp, {"path": str(by_mcp), "text": reference(asked)})

            def write(asked: Asked) -> Call:
                assert case.own is not None
                name, path, content = case.own
                return Call(name, {path: str(by_own), content: reference(asked)})

            def refused(asked: Asked) -> Call:
                return Call(case.mcp, {"path": str(bad), "text": f"{reference(asked)}#rows=1"})

            steps: list[Any] = [*case.first, Call(case.fetch), save, *([write] if case.own else []), refused]
            model.script(*steps, "All done.")
            ran = await agent.run("Save.", *case.options)
            assert "All done." in ran.stdout, ran.stderr
            entries = (await client.get("/accounting/entries?type=pass_on")).json()["entries"]
    results = model.asked[-1].results
    assert by_mcp.read_text() == text()
    assert "The tool did not run." in results[-1]
    assert not bad.exists()
    if case.own is not None:
        assert by_own.read_text() == text()
    assert [entry["details"]["bytes"] for entry in entries] == [len(text().encode())] * len(entries)
    assert len(entries) == (2 if case.own else 1)
    turns = model.asked[len(case.first) :]
    sizes = [load_encoding("o200k_base").count(asked.text) for asked in turns]
    assert max(after - before for before, after in pairwise(sizes)) < 1000, sizes
    if case.client == "claude-code":
        start, fetched, saved, written, *_ = map(context, turns)
        assert fetched - start + written - saved < 400, (start, fetched, saved, written)


def context(asked: Asked) -> int:
    """Tokens of the calls and of their results in a request of Anthropic's protocol."""
    blocks = [
        block
        for message in asked.body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    calls = [f"{one['name']} {json.dumps(one['input'])}" for one in blocks if one["type"] == "tool_use"]
    return sum(map(load_encoding("o200k_base").count, (*calls, *asked.results)))


def test_the_filesystem_server_behind_the_relay_writes_a_stored_result(tmp_path: Path) -> None:
    server = PROGRAMS / "mcp-server-filesystem"
    if not server.exists():
        pytest.skip("the MCP server is not installed: run `make interop`")
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "large").write_text(text())
    command = ("--embedded", "--", str(server), str(folder))
    with RelayClient(*command, state=tmp_path / "state", url=f"http://127.0.0.1:{free_port()}") as relay:
        relay.ask(
            "initialize",
            {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        )
        relay.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        read = relay.tool("read_text_file", path=str(folder / "large"))
        handle = HANDLE.search(read["content"][0]["text"])
        assert handle is not None, read
        written = relay.tool("write_file", path=str(folder / "copy"), content=f"spillgate://{handle[0]}")
        assert not written.get("isError"), written
        part = {"path": str(folder / "part"), "content": f"spillgate://{handle[0]}#lines=2-3"}
        assert not relay.tool("write_file", **part).get("isError")
        refused = relay.tool(
            "write_file", path=str(folder / "bad"), content=f"spillgate://{handle[0]}#rows=1"
        )
        assert refused["isError"]
    assert (folder / "copy").read_bytes() == (folder / "large").read_bytes()
    assert (folder / "part").read_text() == "".join(text().splitlines(keepends=True)[1:3])
    assert not (folder / "bad").exists()
