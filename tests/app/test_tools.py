"""GET /tools and POST /check."""

import httpx
import pytest

pytestmark = pytest.mark.anyio


async def test_there_is_no_tool_until_something_is_stored(client: httpx.AsyncClient) -> None:
    assert (await client.get("/tools")).json() == {"tools": [], "instructions": ""}
    await client.post("/results", json={"tool_name": "t", "content": "x" * 20_000})
    assert (await client.get("/tools?session_id=other")).json()["tools"] == []
    told = (await client.get("/tools")).json()
    assert told["tools"][0]["function"]["name"] == "tool_output"
    assert "tool_output" in told["instructions"]


async def test_each_format_holds_the_same_schema(client: httpx.AsyncClient) -> None:
    cases: list[tuple[str, tuple[str, ...]]] = [
        ("openai", ("function", "parameters")),
        ("anthropic", ("input_schema",)),
        ("mcp", ("inputSchema",)),
    ]
    for format, path in cases:
        await client.post("/results", json={"tool_name": "t", "content": "x" * 20_000})
        schema = (await client.get("/tools", params={"format": format})).json()["tools"][0]
        for part in path:
            schema = schema[part]
        assert schema["required"] == ["handle", "extract"]
        assert schema["additionalProperties"] is False
        assert schema["properties"]["handle"]["minLength"] == 1
        assert schema["properties"]["mode"]["enum"] == ["auto", "truncate", "retrieve"]


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
