"""Large JSON bodies that are hard to parse: memory stays bounded, and the content that is kept is right."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bench import hostile
from tests.counts import FULL, count
from tests.faults.service_process import Services

pytestmark = pytest.mark.anyio

GROWTH = 5
"""The peak grows by at most so many times the body."""

SLACK = 1 << 20

SIZE = hostile.SIZE // count(4, 1)

KEPT = {
    "escaped quotes": '"',
    "backslashes": "\\",
    "text, escaped": 'a line of text\n\tand "more" of it\n',
    "text in \\u": "é",
    "lone surrogates": "\ufffd",
    "surrogate pairs": "\U0001f600",
}


def reset_peak(pid: int) -> int:
    """Forgets the most resident bytes so far; answers those of now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak(pid)


def peak(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@pytest.mark.repeated
async def test_a_large_json_body_takes_little_more_memory_than_its_size(
    services: Services, tmp_path: Path
) -> None:
    service = await services.start(tmp_path / "state", storage_max_bytes="0")
    figures = {}
    async with service.client() as client:
        # What is loaded or cached once.
        await client.post("/results", json={"tool_name": "t", "content": "x y\n" * 100_000})
        for label in hostile.LABELS if FULL else hostile.LABELS[::3]:
            body = hostile.body(label, SIZE)
            for path, sent in (("/hooks/codex", hostile.of_hook(body)), ("/results", body)):
                before = reset_peak(service.pid)
                answer = await client.post(path, content=sent, headers={"Content-Type": "application/json"})
                growth = peak(service.pid) - before
                figures[path, label] = growth / len(body)
                assert answer.status_code in (200, 201, 400, 422), label
                assert growth < GROWTH * len(body) + SLACK, figures
            if label in KEPT:
                stored = answer.json()
                text = (await client.get(f"/results/{stored['handle']}/content")).text
                assert text == KEPT[label] * (len(text) // len(KEPT[label])), label
                assert len(text) == stored["measure"]["chars"] > SIZE // 12 - 10, label
                assert bool(stored["warnings"]) == (label == "lone surrogates"), label
    print(figures)
    assert service.failures() == []
    assert await service.stop() == 0


async def test_blocks_of_a_large_body_are_kept_as_they_came(services: Services, tmp_path: Path) -> None:
    service = await services.start(tmp_path / "state")
    other = {"type": "chart", "data": "QUJD" * 400_000, "note": 'a "quoted" \\ and é\U0001f600'}
    blocks = [{"type": "text", "text": f"{n} \u0000 \\u0000 1:2\n" * 4000} for n in range(40)]
    sent = [*blocks, other, {"type": "text", "text": "\u00001:2"}]
    whole = "\n".join(
        str(one["text"]) if one["type"] == "text" else json.dumps(one, separators=(",", ":")) for one in sent
    )
    arguments = {"path": "p" * 5000, "say": 'a "quoted" \\ word'}
    body = json.dumps(
        {"tool_name": "t", "tool_arguments": arguments, "content": sent}, separators=(",", ":")
    ).encode()
    assert len(body) > 2 << 20
    async with service.client() as client:
        stored = (
            await client.post("/results", content=body, headers={"Content-Type": "application/json"})
        ).json()
        assert (await client.get(f"/results/{stored['handle']}/content")).text == whole
        info = (await client.get(f"/results/{stored['handle']}")).json()
    assert json.loads(info["tool_arguments"]) == arguments
    assert await service.stop() == 0


OTHERS = (
    ("POST", "/check", b"tool_name"),
    ("PUT", "/sessions/s", b"policy"),
    ("POST", "/sessions/s/usage", b"turn"),
    ("POST", "/extract", b"extract"),
)


async def pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 1 << 16):
        yield body[start : start + (1 << 16)]


async def test_other_routes_take_a_mebibyte_and_few_values(services: Services, tmp_path: Path) -> None:
    service = await services.start(tmp_path / "state")
    async with service.client(headers={"Content-Type": "application/json"}) as client:
        for method, path, field in OTHERS:
            large = b'{"%b":"%b"}' % (field, b"a" * (1 << 20))
            many = b'{"%b":[%b1]}' % (field, b"[]," * 20_000)
            for body, status, code in ((large, 413, "body_too_large"), (many, 422, "invalid_field")):
                for content in (body, pieces(body)):
                    answer = await client.request(method, path, content=content)
                    assert (answer.status_code, answer.json()["code"]) == (status, code), path
    assert await service.stop() == 0


async def test_larger_json_is_413_and_its_text_is_taken(services: Services, tmp_path: Path) -> None:
    service = await services.start(tmp_path / "state", max_json_bytes="2000000")
    text = "a line of text\n" * 200_000
    body = json.dumps({"tool_name": "t", "content": text}).encode()
    async with service.client() as client:
        for path in ("/results", "/hooks/codex", "/v1/compress", "/beta/litellm_basic_guardrail_api"):
            for content in (body, pieces(body)):
                media = "application/json" if path in ("/results", "/v1/compress") else "text/plain"
                answer = await client.post(path, content=content, headers={"Content-Type": media})
                if content is not body and media == "text/plain":
                    # Its size shows only as it is read: the agent keeps its result.
                    assert (answer.status_code, answer.json().get("action", "NONE")) == (200, "NONE")
                    continue
                assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large"), path
                assert "SPILLGATE_MAX_JSON_BYTES" in answer.json()["detail"]
                assert "text/plain" in answer.json()["detail"]
        headers = {"Content-Type": "text/plain"}
        stored = await client.post("/results?tool_name=t", content=text, headers=headers)
        assert stored.status_code == 201
        assert (await client.get(f"/results/{stored.json()['handle']}/content")).text == text
    assert await service.stop() == 0


INVALID = [
    ('"ok"}, ]', "after its end"),
    ('"\\x"}', "an escape"),
    ('["ok",]}', "a comma"),
    ('"\x01"}', "a control character"),
    ("01}", "a number"),
    ('"ok","tool_name":5,,}', "behind a wrong field"),
]


async def test_invalid_json_is_400_in_a_body_of_any_size(services: Services, tmp_path: Path) -> None:
    service = await services.start(tmp_path / "state")
    async with service.client(headers={"Content-Type": "application/json"}) as client:
        for size in (1, 100_000, 2_000_000):
            blocks = b'[{"type":"text","text":"a","note":"\xff%b"}]}' % (b"x" * size)
            for tail, label in [*((text.encode(), label) for text, label in INVALID), (blocks, "not UTF-8")]:
                policy = b'"policy":{"max_bytes":0},"tool_arguments":"%b"' % (b"x" * min(size, 900_000))
                body = b'{"tool_name":"t",%b,"content":%b' % (policy, tail)
                answer = await client.post("/results", content=body)
                assert answer.status_code == 400, (label, size, answer.text[:200])
        for method, path, field in OTHERS:
            for tail in (b"NaN}", b'"\xff"}', b'"a",}', b"[Infinity]}"):
                answer = await client.request(method, path, content=b'{"%b":%b' % (field, tail))
                assert answer.status_code == 400, (path, tail, answer.text)
    assert await service.stop() == 0
