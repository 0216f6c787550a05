"""`redact`: secrets are masked in all that a model is shown, and stored as they are."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Serve
from tests.keys import key_file
from tests.made_secrets import made

pytestmark = pytest.mark.anyio

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
    async with serve(policy_file=policy_file) as client:
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
    async with serve() as client:
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


async def test_the_secret_is_stored_and_shown_to_the_role_reveal_alone(
    serve: Serve, policy_file: Path, tmp_path: Path
) -> None:
    keys = key_file(
        tmp_path / "keys", "red:agent", "red:person:reveal", "blue:other:reveal", "ops:admin:admin"
    )
    text = "".join([*LINES, f"token {TOKEN}\n"])
    async with serve(policy_file=policy_file, api_keys_file=keys) as client:
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
    image = {"type": "image", "mimeType": "image/png", "data": "AKIA" + "A2" * 8}
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
