"""Each row of the list in docs/policies.md of what `redact` does not mask, as it says."""

import base64
import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.app.doors.payloads import payload
from tests.beside.relay_client import SCRIPTED, RelayClient
from tests.conftest import Serve
from tests.faults.forking import run
from tests.faults.service_process import Services
from tests.made_secrets import made

pytestmark = pytest.mark.anyio

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "policies.md"
SECRETS = {one.kind: one.secret for one in made(1)}
TOKEN = SECRETS["github_token"]
MASK = r"\[redacted: [a-z_]+ #\d{6}\]"
POLICY = '[defaults]\nredact = ["secrets", "pin"]\n[redact.pin]\npattern = "PIN-?([0-9]{6})"\n'
LINES = "a line of words\n" * 2000


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    return path


@pytest.fixture
async def client(serve: Serve, policy_file: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with serve(storage_url="memory:", policy_file=policy_file) as client:
        yield client


async def told(client: httpx.AsyncClient, content: Any, **more: Any) -> Any:
    answer = await client.post("/results", json={"tool_name": "run", "content": content, **more})
    assert answer.is_success, answer.text
    return answer.json()


async def shown(client: httpx.AsyncClient, text: str, **more: Any) -> str:
    return str((await told(client, text, **more))["content"])


async def test_a_tools_name_and_arguments_stay(client: httpx.AsyncClient) -> None:
    arguments = {"path": f"/a/{TOKEN}"}
    policy = {"on_oversize": "truncate", "head_chars": 100, "max_bytes": 1000}
    text = await shown(client, LINES, tool_name="read_file", tool_arguments=arguments, policy=policy)
    assert TOKEN in text
    handle = (await told(client, LINES, tool_arguments=arguments))["handle"]
    assert TOKEN in (await client.get(f"/results/{handle}")).text


async def test_what_users_and_models_wrote_stays(client: httpx.AsyncClient) -> None:
    messages = [{"role": role, "content": f"{role} {TOKEN}"} for role in ("system", "user", "assistant")]
    messages.append({"role": "tool", "tool_call_id": "c", "content": f"x {TOKEN}"})
    answer = (await client.post("/v1/compress", json={"messages": messages})).json()
    assert answer["messages"][:3] == messages[:3]
    assert re.fullmatch(f"x {MASK}", answer["messages"][3]["content"])


async def test_what_is_read_to_be_edited_stays(client: httpx.AsyncClient) -> None:
    for tool, door, is_masked in (
        ("Read", "claude-code", False),
        ("Read", None, True),
        ("Bash", "claude-code", True),
    ):
        assert (TOKEN in await shown(client, TOKEN, tool_name=tool, door=door)) != is_masked


async def test_what_no_hook_may_replace_stays(client: httpx.AsyncClient) -> None:
    for name in ("failure", "batch"):
        sent = json.loads(json.dumps(payload("claude-code", name)).replace("exit", TOKEN))
        assert (await client.post("/hooks/claude-code", json=sent)).json() == {}


async def test_numbers_of_a_coding_agent_stay(client: httpx.AsyncClient) -> None:
    sent = payload("claude-code", "mcp two blocks")
    link = {"type": "resource_link", "uri": "PIN123456", "PIN": 123456}
    sent["tool_response"].append(link)
    answer = (await client.post("/hooks/claude-code", json=sent)).json()
    assert re.fullmatch(f"PIN{MASK}", answer["hookSpecificOutput"]["updatedToolOutput"][-1]["uri"])
    assert answer["hookSpecificOutput"]["updatedToolOutput"][-1]["PIN"] == 123456


async def test_bytes_in_base64_stay(client: httpx.AsyncClient) -> None:
    long, short = SECRETS["aws_access_key_id"] + "+AAA" * 250, SECRETS["aws_access_key_id"]
    for data, is_masked in ((long, False), (short, True)):
        for block in (
            {"type": "image", "mimeType": "image/png", "data": data},
            {"type": "resource", "resource": {"uri": "file:///a", "blob": data}},
        ):
            assert ((await told(client, [block]))["content"] != [block]) == is_masked


async def test_a_result_without_a_service_passes(client: httpx.AsyncClient) -> None:
    environ = {"PATH": "/bin", "HOME": "/nonexistent", "SPILLGATE_URL": "http://127.0.0.1:1"}
    environ["SPILLGATE_AUTO_START"] = "false"
    sent = payload("claude-code", "mcp two blocks")
    sent["tool_response"][0]["text"] = TOKEN
    answer = run(("-m", "beside.main", "hook", "claude-code"), environ, json.dumps(sent).encode())
    assert json.loads(answer.stdout) == {}


async def test_a_password_of_plain_words_stays(client: httpx.AsyncClient) -> None:
    for line in ("password: correcthorsebattery", 'password = "Correct Horse 42 !"'):
        assert await shown(client, line) == line
    assert re.search(MASK, await shown(client, "password: CorrectHorse42!"))


async def test_an_encoded_secret_stays(client: httpx.AsyncClient) -> None:
    for text in (
        base64.b64encode(TOKEN.encode()).decode(),
        TOKEN.encode().hex(),
        quote("ghp_").replace("_", "%5F"),
    ):
        assert await shown(client, text) == text
    percent = "password=%41b3xY9%21kLmN2" + "&"
    assert "%21kLmN2" not in await shown(client, percent)


async def test_a_secret_in_parts_stays_until_a_query_joins_them(client: httpx.AsyncClient) -> None:
    text = json.dumps({"a": TOKEN[:20], "b": TOKEN[20:]})
    assert await shown(client, text) == text
    rows = "id,a,b\n" + "".join(f"{number},{TOKEN[:20]},{TOKEN[20:]}\n" for number in range(1000))
    handle = (await told(client, rows))["handle"]
    question = {"handle": handle, "query": "SELECT a || b AS c FROM data LIMIT 1"}
    body = {"session_id": "default", "name": "tool_output", "arguments": question}
    assert re.search(MASK, (await client.post("/tools/call", json=body)).text)


async def test_a_key_that_letters_touch_stays(client: httpx.AsyncClient) -> None:
    google, stripe = SECRETS["google"], SECRETS["stripe"]
    for text in (f"x{google}", f"7{google}", f"{google}_x", f"{stripe}_x"):
        assert await shown(client, text) == text
    for text in (f"_{google}", f"({google})", f"x{stripe}", f"x{SECRETS['aws_access_key_id']}_x"):
        assert re.search(MASK, await shown(client, text)), text


async def test_a_long_secret_may_stay(client: httpx.AsyncClient) -> None:
    for size, is_whole in ((60_000, True), (400_000, False)):
        lines = "".join("aB3/xY9+" * 8 + "\n" for _ in range(size // 65))
        key = f"-----BEGIN RSA PRIVATE KEY-----\n{lines}-----END RSA PRIVATE KEY-----\n"
        text = "-\n" * ((1 << 19) - size // 4) + key + "-\n" * (1 << 19)
        handle = (await told(client, text))["handle"]
        content = (await client.get(f"/results/{handle}/content")).text
        assert ("aB3/xY9+" not in content) == is_whole


async def test_the_bytes_of_a_disk_store_are_those_that_came(
    serve: Serve, policy_file: Path, tmp_path: Path
) -> None:
    async with serve(policy_file=policy_file, storage_url=f"disk://{tmp_path}/plain") as client:
        await told(client, LINES + TOKEN)
    assert any(
        TOKEN.encode() in path.read_bytes() for path in (tmp_path / "plain").rglob("*") if path.is_file()
    )


async def test_a_pattern_that_is_gone_masks_nothing(serve: Serve, policy_file: Path) -> None:
    async with serve(policy_file=policy_file) as client:
        handle = (await told(client, LINES + "PIN123456"))["handle"]
        assert "PIN123456" not in (await client.get(f"/results/{handle}/content")).text
    policy_file.write_text('[defaults]\nredact = ["secrets"]\n')
    async with serve(policy_file=policy_file) as client:
        assert "PIN123456" in (await client.get(f"/results/{handle}/content")).text


async def test_the_relay_passes_what_is_not_for_the_model(
    services: Services, policy_file: Path, tmp_path: Path
) -> None:
    service = await services.start(tmp_path / "service", policy_file=str(policy_file))
    async with service.client() as client:
        url = str(client.base_url).rstrip("/")
    lines = [
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": TOKEN}},
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1, "message": TOKEN}},
    ]
    (tmp_path / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = (sys.executable, SCRIPTED, str(tmp_path / "received"))
    with RelayClient("--", *command, state=tmp_path / "state", url=url) as relay:
        relay.send("emit", {"path": str(tmp_path / "lines")})
        assert [relay.read() for _ in lines] == lines
        listed = {"resources": [{"uri": "file:///a", "name": TOKEN}]}
        assert relay.ask("resources/list", {"result": listed}) == listed


async def test_what_was_told_before_is_masked_once_the_policy_names_it(
    serve: Serve, policy_file: Path
) -> None:
    """A retry, and what is told of the texts that a model was given."""
    call = {"tool_call_id": "c", "policy": {"preview": "head"}}
    async with serve() as client:
        first = await told(client, f"{TOKEN}\n{LINES}", **call)
        assert TOKEN in first["content"]
    async with serve(policy_file=policy_file) as client:
        again = await told(client, f"{TOKEN}\n{LINES}", **call)
        assert again["handle"] == first["handle"]
        given = (await client.get(f"/results/{first['handle']}/given")).text
        for text in (again["content"], given):
            assert TOKEN not in text
            assert re.search(MASK, text)


ROWS: dict[str, Callable[..., Awaitable[None]]] = {
    "a tool's name, its arguments and the id of its call": test_a_tools_name_and_arguments_stay,
    "what users, systems and models wrote in a conversation": test_what_users_and_models_wrote_stays,
    "results of tools that read files to edit them": test_what_is_read_to_be_edited_stays,
    "results that an agent lets no hook replace": test_what_no_hook_may_replace_stays,
    "numbers in what a coding agent shows": test_numbers_of_a_coding_agent_stay,
    "pictures, sounds and files in base64": test_bytes_in_base64_stay,
    "what an MCP server tells its client, not the model": test_the_relay_passes_what_is_not_for_the_model,
    "results while the service is away, or that it refuses": test_a_result_without_a_service_passes,
    "passwords of plain words or with spaces": test_a_password_of_plain_words_stays,
    "secrets in base64, hexadecimal or percent-encoding": test_an_encoded_secret_stays,
    "a secret in parts, in several members or lines": test_a_secret_in_parts_stays_until_a_query_joins_them,
    "a known key directly after a letter or digit, if it begins with letters only (`xAIza…`); or directly "
    "before one, if its rule requires an end": test_a_key_that_letters_touch_stays,
    "the rest of a secret of more than 64 KiB, in a result of more than 256 KiB": test_a_long_secret_may_stay,
    "what matches a pattern that the policy file no longer has": test_a_pattern_that_is_gone_masks_nothing,
    "the files of a `disk:` store": test_the_bytes_of_a_disk_store_are_those_that_came,
}


def test_the_list_in_the_docs_is_the_one_that_is_tested() -> None:
    table = DOCUMENT.read_text().partition("### What is not masked\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines() if line.startswith("| ")]
    assert rows[1:] == [*ROWS]
