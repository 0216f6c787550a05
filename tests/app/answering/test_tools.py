"""GET /tools and POST /check."""

import json

import httpx
import pytest

from content.tokens import load_encoding

pytestmark = pytest.mark.anyio


async def test_there_is_no_tool_until_something_is_stored(client: httpx.AsyncClient) -> None:
    assert (await client.get("/tools")).json() == {"tools": [], "instructions": ""}
    await client.post("/results", json={"tool_name": "t", "content": "x" * 20_000})
    assert (await client.get("/tools?session_id=other")).json()["tools"] == []
    told = (await client.get("/tools")).json()
    assert told["tools"][0]["function"]["name"] == "tool_output"
    assert told["instructions"] == ""


FORMATS: list[tuple[str, tuple[str, ...]]] = [
    ("openai", ("function", "parameters")),
    ("anthropic", ("input_schema",)),
    ("mcp", ("inputSchema",)),
]


@pytest.mark.parametrize(("form", "path"), FORMATS)
async def test_the_one_tool_takes_a_handle_and_four_strings_in_170_tokens(
    client: httpx.AsyncClient, form: str, path: tuple[str, ...]
) -> None:
    """All that is sent of it, in each format; over MCP that is more than what a model is shown."""
    await client.post("/results", json={"tool_name": "t", "content": "x" * 20_000})
    told = (await client.get("/tools", params={"format": form})).json()
    (tool,) = told["tools"]
    listed = (
        [tool] if form != "mcp" else (await client.post("/mcp", json=TOOLS_LIST)).json()["result"]["tools"]
    )
    assert listed == [tool]
    sent = json.dumps(tool, ensure_ascii=False, separators=(",", ":")) + told["instructions"]
    assert load_encoding("o200k_base").count(sent) <= 170
    schema = tool
    for part in path:
        schema = schema[part]
    assert list(schema["properties"]) == ["handle", "query", "pattern", "lines", "extract"]
    assert {one["type"] for one in schema["properties"].values()} == {"string"}
    assert schema["required"] == ["handle"]
    assert schema["additionalProperties"] is False


TOOLS_LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@pytest.mark.parametrize(("form", "path"), FORMATS)
async def test_a_tool_of_its_own_says_which_modes_can_run(
    client: httpx.AsyncClient, form: str, path: tuple[str, ...]
) -> None:
    policy = {"policy": {"offer": ["lines", "query", "grep", "ask"]}}
    await client.put("/sessions/default", json=policy)
    await client.post("/results", json={"tool_name": "t", "content": "x" * 20_000})
    told = (await client.get("/tools", params={"format": form})).json()
    schemas = []
    for tool in told["tools"]:
        for part in path:
            tool = tool[part]
        schemas.append(tool)
    assert [list(schema["properties"]) for schema in schemas] == [
        ["handle", "extract", "mode"],
        ["handle", "pattern", "context", "ignore_case", "offset"],
        ["handle", "lines"],
        ["handle", "query"],
    ]
    ask = schemas[0]
    assert ask["required"] == ["handle", "extract"]
    assert ask["additionalProperties"] is False
    assert ask["properties"]["handle"]["minLength"] == 1
    assert ask["properties"]["mode"]["enum"] == ["auto", "truncate", "retrieve"]


async def test_check_tells_before_the_work_is_done(client: httpx.AsyncClient) -> None:
    cases: list[tuple[dict[str, object], str | None, str | None]] = [
        ({"tool_name": "read_file", "bytes": 12_288}, None, None),
        ({"tool_name": "read_file", "bytes": 12_289}, "size_cap", "Error: File content (~12289 bytes)"),
        ({"tool_name": "bash", "tokens": 900}, None, None),
        ({"tool_name": "bash", "tokens": 5001}, "token_budget", "Error: Command output (~5001 tokens)"),
        ({"tool_name": "bash", "bytes": 12_000, "tokens": 5001}, "token_budget", "Error: Command output"),
        ({"tool_name": "bash", "tokens": 1_000_000}, "token_budget", "Error: Command output"),
        ({"tool_name": "grep", "bytes": 99_999}, "size_cap", "Error: Search output"),
        ({"tool_name": "fly", "bytes": 99_999}, "size_cap", "Error: Tool output"),
        ({"tool_name": "read_file", "bytes": 99_999, "paginated": True}, None, None),
        ({"tool_name": "list_orders", "bytes": 99_999, "paginated": True}, "size_cap", "Error: Tool output"),
    ]
    for asked, trigger, said in cases:
        await client.put(
            "/sessions/default", json={"context_window": 5000, "buffer_tokens": 0, "max_output_tokens": 0}
        )
        told = (await client.post("/check", json=asked)).json()
        assert told["allowed"] is (trigger is None)
        assert told["trigger"] == trigger
        assert (told["content"] or "").startswith(said or "")
        session = (await client.get("/sessions/default")).json()
        assert session["budget"]["reserved_tokens"] == 0
        assert (await client.get("/accounting/entries")).json()["entries"] == []


async def test_check_needs_a_size(client: httpx.AsyncClient) -> None:
    assert (await client.post("/check", json={"tool_name": "t"})).status_code == 422
