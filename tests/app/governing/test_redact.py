"""`redact`: secrets are masked in all that a model is shown, and stored as they are."""

import asyncio
import hashlib
import json
import math
import os
import re
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest

from content.redaction import allowance, search
from content.redaction.detector import Detector
from content.redaction.masks import Masks
from content.redaction.spans import SecretSpan
from domain.errors import ConfigError
from tests.app.doors.payloads import payload
from tests.conftest import Serve
from tests.counts import count
from tests.faults.forking import run
from tests.faults.service_process import Services
from tests.keys import key_file
from tests.made_secrets import made

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("queries_here")]

SECRETS = {one.kind: one for one in made(2)}
TOKEN = SECRETS["github_token"].secret
MASK = r"\[redacted: github_token #\d{6}\]"
POLICY = '[defaults]\nredact = ["secrets", "ticket"]\n[redact.ticket]\npattern = "TICKET-([0-9]{6})"\n'
LINES = [
    f"2026-11-20 08:{number // 60:02}:{number % 60:02} INFO request {number} done\n" for number in range(3000)
]


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    return path


@pytest.fixture
async def client(serve: Serve, policy_file: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with serve(storage_url="memory:", policy_file=policy_file) as client:
        yield client


async def governed(client: httpx.AsyncClient, content: Any, **more: Any) -> Any:
    body = {"session_id": "s", "tool_name": "run", "content": content, **more}
    answer = await client.post("/results", json=body)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


async def called(client: httpx.AsyncClient, handle: str, **arguments: Any) -> str:
    body = {"session_id": "s", "name": "tool_output", "arguments": {"handle": handle, **arguments}}
    answer = await client.post("/tools/call", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["text"])


async def test_a_result_that_passes_has_masks_and_is_not_complete(client: httpx.AsyncClient) -> None:
    told = await governed(client, f"token {TOKEN}, TICKET-123456\n")
    assert re.fullmatch(rf"token {MASK}, TICKET-\[redacted: ticket #\d{{6}}\]\n", told["content"])
    assert (told["outcome"], told["complete"]) == ("pass", False)
    assert told["redacted"] == {"github_token": 1, "ticket": 1}
    entry = (await client.get("/accounting/entries")).json()["entries"][0]
    assert entry["details"]["redacted"] == {"github_token": 1, "ticket": 1}
    metrics = (await client.get("/metrics")).text
    assert 'spillgate_redacted_total{kind="github_token"} 1.0' in metrics


async def test_nothing_is_masked_unless_the_policy_says_so(serve: Serve) -> None:
    async with serve(storage_url="memory:") as client:
        told = await governed(client, f"token {TOKEN}\n")
        assert told["content"] == f"token {TOKEN}\n"
        assert (told["complete"], told["redacted"]) == (True, None)


async def test_each_way_to_read_a_stored_result_has_masks(client: httpx.AsyncClient) -> None:
    lines = [*LINES[:1500], f"token {TOKEN} is in use\n", *LINES[1500:]]
    told = await governed(client, "".join(lines))
    handle = told["handle"]
    answers = [
        told["content"],
        await called(client, handle, lines="1499-1503"),
        await called(client, handle, pattern="is in use", context=2),
        await called(client, handle, pattern="ghp_[a-zA-Z]+"),
        await called(client, handle, extract="which token is in use?"),
        await called(client, handle, extract="which token is in use?", mode="truncate"),
        (await client.get(f"/results/{handle}/content")).text,
        (await client.get(f"/results/{handle}/lines", params={"offset": 1501, "limit": 1})).text,
        (await client.get(f"/results/{handle}/grep", params={"pattern": "token"})).text,
        (await client.get(f"/results/{handle}/given")).text,
    ]
    assert not [answer for answer in answers if TOKEN[4:12] in answer]
    masks = {mask for answer in answers for mask in re.findall(MASK, answer)}
    assert len(masks) == 1
    assert answers[1].splitlines()[2] == f"1501: token {masks.pop()} is in use"
    assert "No line matches" in answers[3]


async def test_a_query_reads_masks(client: httpx.AsyncClient) -> None:
    rows = [{"id": number, "token": made_token} for number, made_token in enumerate([TOKEN] * 400)]
    handle = (await governed(client, json.dumps(rows)))["handle"]
    for query in ("SELECT token FROM data WHERE id = 7", "[7].token"):
        answer = await called(client, handle, query=query)
        assert re.search(MASK, answer), answer
        assert TOKEN not in answer
    answer = await client.get(f"/results/{handle}/query", params={"expression": "[7].token"})
    assert re.fullmatch(MASK, answer.json()["result"])


ESCAPED = "".join(f"\\u{ord(one):04x}" for one in TOKEN)
AWS = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKE"


@pytest.mark.parametrize(
    ("text", "query"),
    [
        (json.dumps([{"id": 7, "token": "TOKEN"}] * 300).replace("TOKEN", ESCAPED), "SELECT * FROM data"),
        (json.dumps([{"aws_secret_access_key": AWS}] * 300).replace("/", "\\/"), "[0:5]"),
        ("".join([*LINES, f"token \x1b[1m\x1b[Kghp_\x1b[m\x1b[K{TOKEN[4:]}\n"]), "SELECT * FROM data"),
    ],
    ids=["escapes", "slashes", "colours"],
)
async def test_no_way_to_read_decodes_a_secret(client: httpx.AsyncClient, text: str, query: str) -> None:
    told = await governed(client, text)
    handle = told["handle"]
    references = ("", "#lines=-2", "#pattern=token|key", f"#query={query}")
    bodies = [
        {"session_id": "s", "tool_name": "mail", "arguments": {"all": f"spillgate://{handle}{part}"}}
        for part in references
    ]
    answers = [
        told["content"],
        await called(client, handle, lines="-2"),
        await called(client, handle, pattern="token|key"),
        await called(client, handle, extract="which token or key is it?"),
        await called(client, handle, query=query),
        (await client.get(f"/results/{handle}/query", params={"expression": query})).text,
        (await client.get(f"/results/{handle}/lines", params={"view": "greppable"})).text,
        # A part of a text of one line may be refused.
        *[(await client.post("/arguments", json=body)).text for body in bodies],
    ]
    for answer in map(str, answers):
        read = answer.replace("\\\\", "\\").replace("\\/", "/")
        assert not any(part in read for part in (TOKEN[4:12], ESCAPED[6:40], AWS[4:12])), answer


async def test_what_a_query_puts_together_has_masks_and_is_counted(client: httpx.AsyncClient) -> None:
    text = "id,a,b\n" + "".join(f"{number},{TOKEN[:12]},{TOKEN[12:]}\n" for number in range(1000))
    handle = (await governed(client, text))["handle"]
    answer = await called(client, handle, query="SELECT a || b AS whole FROM data LIMIT 2")
    assert len(re.findall(MASK, answer)) == 2
    assert TOKEN not in answer
    entries = (await client.get("/accounting/entries")).json()["entries"]
    assert [one["details"]["redacted"] for one in entries if one["type"] != "tool"] == [{"github_token": 2}]
    asked = {"expression": "SELECT a || b AS whole FROM data LIMIT 1"}
    told = (await client.get(f"/results/{handle}/query", params=asked)).json()
    assert re.fullmatch(MASK, told["result"][0]["whole"])


async def test_a_masked_number_of_a_query_is_told_as_text(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('[defaults]\nredact = ["id"]\n[redact.id]\npattern = "[0-9]{6}"\n')
    async with serve(storage_url="memory:", policy_file=path) as client:
        handle = (await governed(client, json.dumps([{"a": "b" * 20}] * 900)))["handle"]
        query = "SELECT 123456 AS number FROM data LIMIT 1"
        assert re.search(r"\[redacted: id #\d{6}\]", await called(client, handle, query=query))
        told = (await client.get(f"/results/{handle}/query", params={"expression": query})).json()
        assert re.fullmatch(r'\[\{"number":\[redacted: id #\d{6}\]\}\]', told["result"])


async def test_no_path_and_no_digest_of_the_stored_bytes_is_told_where_something_is_masked(
    serve: Serve, policy_file: Path, tmp_path: Path
) -> None:
    secret = "".join([*LINES, f"token {TOKEN}\n"])
    messages = [{"role": "tool", "tool_call_id": "c", "content": secret}]
    async with serve(policy_file=policy_file) as client:
        plain, masked = [(await governed(client, text))["handle"] for text in ("".join(LINES), secret)]
        known = {one["handle"]: one for one in (await client.get("/results")).json()["results"]}
        for handle, has_masks in ((plain, False), (masked, True)):
            told = (await client.get(f"/results/{handle}")).json()
            content = await client.get(f"/results/{handle}/content")
            assert (told["path"] is None) == has_masks
            assert f'"{told["sha256"]}"' == content.headers["etag"]
            assert told["measure"]["bytes"] == len(content.content)
            of_list = {"client": None, "project": None}
            assert {**known[handle], "expires_at": 0, "kind": "log"} == {**told, "expires_at": 0, **of_list}
        assert told["sha256"] != hashlib.sha256(secret.encode()).hexdigest()
        assert str(tmp_path) not in (await client.post("/v1/compress", json={"messages": messages})).text
    keys = key_file(tmp_path / "keys", "red:agent", "red:person:reveal")
    async with serve(policy_file=policy_file, api_keys_file=keys) as client:
        client.headers["Authorization"] = "Bearer agent"
        handle = (await governed(client, secret))["handle"]
        for name, reveals in (("agent", False), ("person", True)):
            told = (
                await client.get(f"/results/{handle}", headers={"Authorization": f"Bearer {name}"})
            ).json()
            assert (told["sha256"] == hashlib.sha256(secret.encode()).hexdigest()) == reveals
            assert (told["measure"]["bytes"] == len(secret.encode())) == reveals


async def test_a_tool_is_left_as_it_is_by_its_own_table_or_by_the_door_whose_client_edits_with_it(
    serve: Serve, tmp_path: Path
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(f'{POLICY}[tools."*read_file"]\nredact = []\n')
    async with serve(storage_url="memory:", policy_file=path) as client:
        for tool, door, is_masked in (
            ("read_file", None, False),
            ("mcp__fs__read_file", None, False),
            ("Read", None, True),
            ("Read", "claude-code", False),
            ("view", "copilot", False),
            ("read", "pi", False),
            ("Bash", "claude-code", True),
        ):
            told = await governed(client, f"TOKEN={TOKEN}", tool_name=tool, door=door)
            assert (told["redacted"] is not None) == is_masked, (tool, door)


async def test_the_secret_is_stored_and_shown_to_the_role_reveal_alone(
    serve: Serve, policy_file: Path, tmp_path: Path
) -> None:
    keys = key_file(
        tmp_path / "keys", "red:agent", "red:person:reveal", "blue:other:reveal", "ops:admin:admin"
    )
    text = "".join([*LINES, f"token {TOKEN}\n"])
    async with serve(storage_url="memory:", policy_file=policy_file, api_keys_file=keys) as client:
        client.headers["Authorization"] = "Bearer agent"
        handle = (await governed(client, text))["handle"]
        path = f"/results/{handle}/content"
        for name, status in (("agent", 403), ("other", 404), ("admin", 403), ("person", 200)):
            whole = await client.get(
                path, params={"redact": "false"}, headers={"Authorization": f"Bearer {name}"}
            )
            assert whole.status_code == status, name
            assert (TOKEN in whole.text) == (status == 200)
        assert whole.text == text
        shown = await client.get(path, headers={"Authorization": "Bearer person"})
        assert re.search(MASK, shown.text)
        assert shown.headers["etag"] != whole.headers["etag"]
        assert int(shown.headers["content-length"]) == len(shown.content)
        other = {"Authorization": "Bearer other"}
        assert (await client.get(f"/results/{handle}", headers=other)).status_code == 404


async def test_without_keys_nothing_reveals(client: httpx.AsyncClient) -> None:
    handle = (await governed(client, "".join([*LINES, TOKEN])))["handle"]
    answer = await client.get(f"/results/{handle}/content", params={"redact": "false"})
    assert answer.status_code == 403


async def test_content_blocks_keep_their_form(client: httpx.AsyncClient) -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo" + "AKIA" * 400 + "A=="}
    blocks = [{"type": "text", "text": f"token {TOKEN}"}, image]
    told = await governed(client, blocks)
    assert re.fullmatch(f"token {MASK}", told["content"][0]["text"])
    assert told["content"][1] == image
    assert told["complete"] is False


async def test_a_text_body_has_masks(client: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "text/plain", "Accept": "text/plain"}
    answer = await client.post(
        "/results", params={"tool_name": "run"}, content=f"token {TOKEN}\n".encode(), headers=headers
    )
    assert re.fullmatch(f"token {MASK}\n", answer.text)
    assert answer.headers["spillgate-complete"] == "false"


async def test_a_retry_is_answered_with_the_same_masks(client: httpx.AsyncClient) -> None:
    first = await governed(client, f"token {TOKEN}", tool_call_id="c1")
    again = await governed(client, f"token {TOKEN}", tool_call_id="c1")
    assert again["content"] == first["content"]
    assert 'spillgate_redacted_total{kind="github_token"} 1.0' in (await client.get("/metrics")).text


async def test_a_value_has_one_number_in_a_session_after_a_restart_too(
    serve: Serve, policy_file: Path
) -> None:
    other = next(made(2)).secret
    assert other != TOKEN
    async with serve(policy_file=policy_file) as client:
        first = (await governed(client, f"{TOKEN} {other} {TOKEN}"))["content"].split("[")
        elsewhere = (await governed(client, TOKEN, session_id="t"))["content"]
    async with serve(policy_file=policy_file) as client:
        after = (await governed(client, f"{TOKEN} {other} {TOKEN}"))["content"].split("[")
        handle = (await governed(client, "".join([*LINES, TOKEN])))["handle"]
        read = await called(client, handle, lines="-1")
    assert after == first
    assert first[1].strip() == first[3].strip() != first[2].strip()
    assert first[1].strip() in read
    assert elsewhere != "[" + first[1].strip()


def leaks(answer: str) -> bool:
    """Whether eight characters of the secret in a row are in the answer."""
    return any(TOKEN[at : at + 8] in answer for at in range(len(TOKEN) - 7))


@pytest.mark.parametrize("outcome", ["cap", "truncate", "store"])
async def test_no_cut_of_an_outcome_leaves_a_part_of_a_secret(
    client: httpx.AsyncClient, outcome: str
) -> None:
    policy = {"on_oversize": outcome, "max_bytes": 1500, "head_chars": 700, "preview": "head-tail"}
    for before in range(500, 760, count(6, 1)):
        text = f"{'word ' * 160}"[:before] + f" {TOKEN} " + "word " * 1000 + f"{TOKEN} " + "w" * (before - 50)
        told = await governed(client, text, policy={**policy, "keep": before % 5 == 0})
        assert told["outcome"] == outcome
        assert not leaks(told["content"]), before


async def test_no_window_of_a_search_or_a_passage_leaves_a_part_of_a_secret(
    client: httpx.AsyncClient,
) -> None:
    lines = [
        f"{'a' * distance} needle {'b' * distance} {TOKEN} {'c' * 600}\n" for distance in range(60, 160, 2)
    ]
    handle = (await governed(client, "".join(lines)))["handle"]
    for arguments in (
        {"pattern": "needle"},
        {"extract": "where is the needle?"},
        {"lines": "1-50"},
        *({"pattern": "needle", "offset": offset} for offset in range(1, 50, 7)),
    ):
        answer = await called(client, handle, **arguments)
        assert re.search("aaaa|cccc", answer)
        assert not leaks(answer), arguments


async def test_no_range_of_the_content_has_a_part_of_a_secret(client: httpx.AsyncClient) -> None:
    handle = (await governed(client, "".join([*LINES, f"token {TOKEN} is\n", *LINES])))["handle"]
    whole = (await client.get(f"/results/{handle}/content")).content
    at = whole.index(b"[redacted")
    for start in range(at - 5, at + 45):
        part = await client.get(
            f"/results/{handle}/content", headers={"Range": f"bytes={start}-{start + 20}"}
        )
        assert part.content == whole[start : start + 21]


async def test_a_streamed_body_has_masks_wherever_its_chunks_end(client: httpx.AsyncClient) -> None:
    text = f"token {TOKEN} is in use\n".encode() * 2

    for cut in range(len(text)):

        async def chunks(cut: int = cut) -> AsyncIterator[bytes]:
            yield text[:cut]
            yield text[cut:]

        headers = {"Content-Type": "text/plain", "Accept": "text/plain"}
        answer = await client.post("/results", params={"tool_name": "run"}, content=chunks(), headers=headers)
        assert answer.text.count("[redacted: github_token") == 2
        assert not leaks(answer.text)


async def test_a_large_result_has_masks_where_its_blocks_end(client: httpx.AsyncClient) -> None:
    filler = "a line of words\n" * (1 << 16)
    for shift in (0, 20, 39):
        text = filler[: (1 << 20) - shift] + TOKEN + filler
        handle = (await governed(client, text))["handle"]
        assert not leaks((await client.get(f"/results/{handle}/content")).text)


def hook(tool: str, text: str, **more: Any) -> dict[str, Any]:
    return {
        "hook_event_name": "PostToolUse",
        "session_id": "h",
        "tool_name": tool,
        "tool_input": {"command": "env"},
        "tool_response": {"stdout": text, "stderr": "", "interrupted": False},
        "tool_use_id": "toolu_1",
        **more,
    }


async def test_a_hook_masks_what_passes_and_leaves_files_that_are_read_to_be_edited(
    client: httpx.AsyncClient,
) -> None:
    answer = (await client.post("/hooks/claude-code", json=hook("Bash", f"TOKEN={TOKEN}"))).json()
    shown = answer["hookSpecificOutput"]["updatedToolOutput"]["stdout"]
    assert re.fullmatch(f"TOKEN={MASK}", shown)
    assert (await client.post("/hooks/claude-code", json=hook("Bash", "TOKEN=none"))).json() == {}
    file = {
        "filePath": "/a/.env",
        "content": f"TOKEN={TOKEN}\n",
        "numLines": 2,
        "startLine": 1,
        "totalLines": 2,
    }
    read = hook("Read", "", tool_response={"type": "text", "file": file})
    assert (await client.post("/hooks/claude-code", json=read)).json() == {}
    told = await governed(client, f"TOKEN={TOKEN}", tool_name="Read", door="claude-code")
    assert TOKEN in told["content"]


async def test_a_hook_masks_the_part_that_an_agent_has_cut_itself(client: httpx.AsyncClient) -> None:
    cut = "Warning: truncated output (original token count: 87224)\nTotal output lines: 60000\n\n"
    sent = payload("codex", "Bash cut") | {"tool_response": f"{cut}TOKEN={TOKEN}\n"}
    assert re.search(f"TOKEN={MASK}", (await client.post("/hooks/codex", json=sent)).text)
    sent["tool_response"] = f"{cut}TOKEN=none\n"
    assert (await client.post("/hooks/codex", json=sent)).json() == {}


async def test_the_command_of_a_hook_and_the_shell_show_masks(
    services: Services, policy_file: Path, tmp_path: Path
) -> None:
    service = await services.start(tmp_path / "state", policy_file=str(policy_file))
    async with service.client() as client:
        url = str(client.base_url).rstrip("/")
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SPILLGATE_URL": url}
    sent = json.dumps(hook("Bash", f"TOKEN={TOKEN}")).encode()
    answer = run(("-m", "beside.main", "hook", "claude-code"), environ, sent).stdout.decode()
    assert re.search(f"TOKEN={MASK}", answer)
    cut = "Warning: truncated output (original token count: 87224)\nTotal output lines: 60000\n\n"
    part = payload("codex", "Bash cut") | {"tool_response": f"{cut}TOKEN={TOKEN}\n"}
    answer = run(("-m", "beside.main", "hook", "codex"), environ, json.dumps(part).encode()).stdout.decode()
    assert re.search(f"TOKEN={MASK}", answer)
    piped = run(("-m", "beside.main", "pipe"), environ, f"TOKEN={TOKEN}\n".encode()).stdout.decode()
    assert re.fullmatch(f"TOKEN={MASK}\n", piped)


async def test_mcp_shows_masks(client: httpx.AsyncClient) -> None:
    handle = (await governed(client, "".join([*LINES, f"token {TOKEN}\n"])))["handle"]
    call = {"name": "tool_output", "arguments": {"handle": handle, "pattern": "token"}}
    read = {"uri": f"spillgate://{handle}?offset=3001"}
    for method, params in (("tools/call", call), ("resources/read", read)):
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = await client.post("/mcp", json=body)
        assert re.search(MASK, answer.text), answer.text
        assert not leaks(answer.text)


async def test_a_gateways_guardrail_masks_what_passes(client: httpx.AsyncClient) -> None:
    messages = [
        {"role": "user", "content": "?"},
        {"role": "tool", "tool_call_id": "c", "content": f"x {TOKEN}"},
    ]
    for route, sent in (
        ("/beta/litellm_basic_guardrail_api", {"input_type": "request", "structured_messages": messages}),
        ("/v1/compress", {"messages": messages}),
    ):
        answer = await client.post(route, json=sent)
        assert re.search(f"x {MASK}", answer.text), answer.text
        assert not leaks(answer.text)


async def test_a_request_and_a_session_may_add_to_what_is_redacted_and_take_nothing_away(
    client: httpx.AsyncClient, serve: Serve, tmp_path: Path
) -> None:
    for policy in ({"redact": []}, {"redact": ["ticket"]}):
        assert not leaks((await governed(client, TOKEN, policy=policy))["content"])
        await client.put("/sessions/s", json={"policy": policy})
        assert not leaks((await governed(client, TOKEN))["content"])
    async with serve(storage_url=f"disk://{tmp_path}/other") as plain:
        text = "".join([*LINES, f"token {TOKEN}\n"])
        handle = (await governed(plain, text, policy={"redact": ["secrets"]}))["handle"]
        assert re.search(MASK, await called(plain, handle, lines="-1"))
        assert not leaks((await plain.get(f"/results/{handle}/content")).text)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ('[defaults]\nredact = ["tickets"]\n', "policy.toml, [defaults], line 2: `redact` may name only"),
        ('[redact.t]\npattern = "("\n', "line 2: redact.t.pattern is refused: RE2 cannot take this pattern."),
        (
            '[redact.t]\npattern = "a*"\n',
            "redact.t.pattern is refused: The pattern matches an empty text.",
        ),
        ('[redact.secrets]\npattern = "a"\n', "redact.secrets is reserved for the built-in rules"),
        ('[redact.not_searched]\npattern = "a"\n', "redact.not_searched is reserved for parts"),
        ('[redact.t]\npatern = "a"\n', "redact.t.patern is not a key; pattern is."),
        ('[redact.T]\npattern = "a"\n', "line 1: redact.T must be a name"),
    ],
)
async def test_a_wrong_pattern_is_named_with_its_line(
    serve: Serve, tmp_path: Path, policy: str, says: str
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(policy)
    with pytest.raises(ConfigError) as raised:
        async with serve(storage_url="memory:", policy_file=path):
            pass
    assert says in str(raised.value)
    assert ".." not in str(raised.value)


async def test_secrets_without_the_extra_are_refused_at_the_start(
    serve: Serve, policy_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("policies.book.is_available", lambda: False)
    with pytest.raises(ConfigError, match="needs the extra `redact`"):
        async with serve(storage_url="memory:", policy_file=policy_file):
            pass


async def test_an_override_names_known_patterns_and_brings_none(client: httpx.AsyncClient) -> None:
    for policy in ({"redact": ["unknown"]}, {"redact": {"x": {"pattern": "a"}}}):
        body = {"tool_name": "run", "content": "a", "policy": policy}
        assert (await client.post("/results", json=body)).json()["code"] == "invalid_policy"


async def test_a_result_is_handed_on_with_masks_unless_the_file_says_reveal_of_the_tool(
    serve: Serve, tmp_path: Path
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(f"{POLICY}[tools.deploy]\nreveal = true\n")
    async with serve(storage_url="memory:", policy_file=path) as client:
        handle = (await governed(client, "".join([*LINES, f"token {TOKEN}"])))["handle"]
        for tool, has_secret in (("deploy", True), ("mail", False)):
            for part in ("", "#lines=-1", "#pattern=token"):
                body = {
                    "session_id": "s",
                    "tool_name": tool,
                    "arguments": {"a": f"spillgate://{handle}{part}"},
                }
                answer = (await client.post("/arguments", json=body)).json()
                assert (TOKEN in answer["arguments"]["a"]) == has_secret
                assert answer["used"][0]["bytes"] == len(answer["arguments"]["a"].encode())
        await client.put("/sessions/s", json={"policy": {"reveal": True}})
        body = {"session_id": "s", "tool_name": "mail", "arguments": {"a": f"spillgate://{handle}"}}
        assert not leaks((await client.post("/arguments", json=body)).text)
        named = await client.get(f"/results/{handle}/content", params={"passed_on_to": "deploy"})
        assert not leaks(named.text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("".join(f'password = "aB3x{n}Y9!"\n' for n in range(600)), search.AT_ONCE_SECONDS),
        ("a line\n" * 400, 1e-9),
        ("a line\n" * 4000, 60.0),
    ],
    ids=["passwords", "no time", "long"],
)
async def test_a_text_whose_search_takes_long_is_not_searched_on_the_event_loop(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, text: str, seconds: float
) -> None:
    monkeypatch.setattr(search, "AT_ONCE_SECONDS", seconds)
    found_in = []

    def seen(detector: Detector, data: bytes, seconds: float = math.inf) -> list[SecretSpan]:
        spans = find(detector, data, seconds)
        found_in.append((len(data), threading.get_ident() == loop))
        return spans

    find, loop = Detector.find, threading.get_ident()
    monkeypatch.setattr(Detector, "find", seen)
    cut = "Warning: truncated output (original token count: 87224)\nTotal output lines: 60000\n\n"
    for path, body in (
        ("/results", {"session_id": "s", "tool_name": "t", "content": text}),
        ("/hooks/codex", payload("codex", "Bash cut") | {"tool_response": cut + text}),
    ):
        found_in.clear()
        assert (await client.post(path, json=body)).is_success
        assert found_in
        assert not any(is_in_loop for size, is_in_loop in found_in if size >= len(text))


async def test_what_is_not_searched_in_time_is_never_shown_and_the_answer_says_so(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(allowance, "SECONDS", 0.02)
    monkeypatch.setattr(allowance, "SECONDS_A_MIB", 0)
    path = tmp_path / "policy.toml"
    path.write_text('[defaults]\nredact = ["end"]\n[redact.end]\npattern = "a[^b]*b|c"\n')
    text = "acac " * 20_000
    async with serve(storage_url="memory:", policy_file=path) as client:
        told = await governed(client, text, policy={"mode": "observe"})
        assert re.fullmatch(r"\[redacted: not_searched #\d{6}\]", told["content"])
        assert (told["outcome"], told["complete"]) == ("pass", False)
        assert told["redacted"] == {"not_searched": 1}
        assert "could not be searched for secrets in time" in told["warnings"][0]
        stored = await governed(client, "".join(LINES * 3) + text, tool_call_id="c")
        blocks = await governed(client, [{"type": "text", "text": text}, {"type": "x", "uri": text}])
        hook = await client.post("/hooks/codex", json=payload("codex", "Bash") | {"tool_response": text})
        for answer in (stored["content"], json.dumps(blocks), hook.text):
            assert "acac" not in answer
        content = (await client.get(f"/results/{stored['handle']}/content")).text
        assert content.startswith("".join(LINES[:3000]))
        assert re.search(r"\[redacted: not_searched #\d{6}\]", content)
        assert "acac" not in content
        metrics = (await client.get("/metrics")).text
        assert 'spillgate_redacted_total{kind="not_searched"}' in metrics
    assert "A part of a result was not searched for secrets in time." in caplog.text


async def test_a_search_of_one_tenant_holds_no_other_tenant(
    serve: Serve, policy_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slow(detector: Detector, data: bytes, seconds: float = math.inf) -> list[SecretSpan]:
        if b"slow" in data:
            begun.set()
            assert may_end.wait(60)
        return find(detector, data, seconds)

    find = Detector.find
    monkeypatch.setattr(Detector, "find", slow)
    keys = key_file(tmp_path / "keys", "red:one", "red:two", "blue:three")
    text = "".join([*LINES[:1000], f"token {TOKEN}\n"])
    async with serve(storage_url="memory:", policy_file=policy_file, api_keys_file=keys) as client:

        async def post(key: str, content: str) -> None:
            body = {"tool_name": "run", "content": content}
            answer = await client.post("/results", json=body, headers={"Authorization": f"Bearer {key}"})
            assert answer.is_success
            done.append(key)

        done: list[str] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(post, "one", f"slow {text}")
            await anyio.to_thread.run_sync(begun.wait, 60)
            tasks.start_soon(post, "two", text)
            with anyio.fail_after(60):
                await post("three", text)
            assert done == ["three"]
            may_end.set()
        assert sorted(done) == ["one", "three", "two"]


async def test_many_masks_leave_the_event_loop_to_others(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time that the loop comes round, a few hundred masks were written at most."""
    turns, most = 0, 0
    written: Counter[int] = Counter()

    def counted(masks: Masks, number: int, key: bytes) -> bytes:
        written[turns] += 1
        return mask(masks, number, key)

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    mask = Masks.mask
    monkeypatch.setattr(Masks, "mask", counted)
    path = tmp_path / "policy.toml"
    path.write_text('[defaults]\nredact = ["id"]\n[redact.id]\npattern = "[0-9]{6}"\n')
    count = 5000
    text = "".join(f"{100_000 + number}\n" for number in range(count))
    async with serve(storage_url="memory:", policy_file=path) as client:
        turning = asyncio.create_task(turn())
        for policy in ({"mode": "observe"}, {}):
            told = await governed(client, text, policy=policy)
            most = max(most, *written.values())
        assert told["outcome"] == "store"
        content = (await client.get(f"/results/{told['handle']}/content")).text
        assert len(re.findall(r"\[redacted: id #\d{6}\]\n", content)) == count
        assert "4999" in await called(client, told["handle"], lines="4999")
        turning.cancel()
    assert len(written) > count / 1000
    assert max(most, *written.values()) <= 1000


def test_100_kb_are_searched_in_half_of_5_ms(benched: Detector) -> None:
    """Processor time, the best of some: the promise is 5 ms more for a result of 100 KB."""
    data = "".join(LINES).encode()[:100_000]
    best = min(stopwatch(benched, data) for _ in range(5))
    assert best < 0.0025


def stopwatch(detector: Detector, data: bytes) -> float:
    began = time.process_time()
    detector.find(data)
    return time.process_time() - began


@pytest.fixture(scope="module")
def benched() -> Detector:
    return Detector({}, secrets=True)
