"""The handle message, /extract and /query say the same of a text, plain, wrapped and numbered."""

import re
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.conftest import Serve
from tests.content.formats.test_bad_texts import BAD
from tests.content.ordinary_texts import SHAPES, WRAPS

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("queries_here")]

EXTENT = re.compile(r"The data: (.*?); [\d,]+ bytes")
HOW_MUCH = "How many lines, rows and columns are there?"


@pytest.fixture
async def client(serve: Serve) -> AsyncIterator[httpx.AsyncClient]:
    async with serve() as client:
        (await client.put("/sessions/formats", json={"policy": {"max_bytes": 400}})).raise_for_status()
        yield client


@pytest.mark.parametrize("wrap", ["plain", "block"])
async def test_handle_message_extract_and_query_say_the_same(client: httpx.AsyncClient, wrap: str) -> None:
    for name, (text, said, rows) in SHAPES.items():
        sent = {"session_id": "formats", "tool_name": "fetch", "content": WRAPS[wrap](text)}
        kept = (await client.post("/results", json=sent)).json()
        shown = kept["content"].partition("\n\n")[2]
        assert (
            not rows or not shown or f"({rows} rows" in shown or shown.startswith(("JSON lines", "JSON doc"))
        ), name
        asked = {"handle": kept["handle"], "extract": HOW_MUCH, "mode": "retrieve"}
        extent = EXTENT.search((await client.post("/extract", json=asked)).json()["body"])
        assert extent is not None, name
        assert extent[1].startswith(said), name
        if rows or wrap == "plain":
            query = await client.get(
                f"/results/{kept['handle']}/query", params={"expression": "[].keys(@) | length(@)"}
            )
            assert query.status_code == (200 if rows else 422), name
            assert query.json().get("result", 0) == rows, name
            assert rows or query.json()["code"] == "not_queryable", name


async def test_a_path_that_decides_the_format_decides_it_for_all(client: httpx.AsyncClient) -> None:
    text = "replicas: 2\n\n# Image\n\nname: shop\n\n## Tag\n\ntag: 1\n" * 20
    for path, said, shown in (
        ("docs/a.md", "Markdown, 40 headings", "headings: 3: Image"),
        ("deploy/a.yaml", "plain text", "plain text"),
    ):
        sent = {
            "session_id": "formats",
            "tool_name": "read_file",
            "tool_arguments": {"path": path},
            "content": text,
        }
        kept = (await client.post("/results", json=sent)).json()
        assert kept["content"].split("\n\n", 1)[1].startswith(shown)
        asked = {"handle": kept["handle"], "extract": HOW_MUCH, "mode": "retrieve"}
        extent = EXTENT.search((await client.post("/extract", json=asked)).json()["body"])
        assert extent is not None
        assert extent[1].startswith(said)


async def test_a_terminals_codes_are_matched_through_and_kept_in_the_content(
    client: httpx.AsyncClient,
) -> None:
    line = "\x1b[31merror\x1b[0m: disk \x1b[1mfull\x1b[0m\n"
    text = "\x1b[32mok\x1b[0m: all is well\n" * 100 + line
    sent = {"session_id": "formats", "tool_name": "bash", "content": text}
    kept = (await client.post("/results", json=sent)).json()
    for pattern in (r"\berror\b", "error: disk full$"):
        found = await client.get(f"/results/{kept['handle']}/grep", params={"pattern": pattern})
        assert [(one["line"], one["text"]) for one in found.json()["matches"]] == [(101, "error: disk full")]
    assert (await client.get(f"/results/{kept['handle']}/content")).text == text
    lines = await client.get(f"/results/{kept['handle']}/lines", params={"offset": 101, "limit": 1})
    assert lines.json()["lines"][0]["text"] == line.rstrip("\n")


@pytest.mark.parametrize(
    "name",
    [
        "half a document",
        "lone surrogates",
        "a lone surrogate in the fourth record",
        "a literal with a bracket in a name",
        "brackets",
        "a block cut in an escape",
        "blank",
    ],
)
async def test_bad_input_is_stored_and_described_alike(client: httpx.AsyncClient, name: str) -> None:
    text = BAD[name].encode("utf-8", "replace").decode()
    answer = await client.post(
        "/results", json={"session_id": "formats", "tool_name": "fetch", "content": text}
    )
    assert answer.status_code in (200, 201)
    kept = answer.json()
    shown = kept["content"].partition("\n\n")[2]
    assert len(shown.encode()) <= 700
    asked = {"handle": kept["handle"], "extract": HOW_MUCH, "mode": "retrieve"}
    answer = await client.post("/extract", json=asked)
    assert answer.status_code == 200
    extent = EXTENT.search(answer.json()["body"])
    assert extent is not None
    query = await client.get(f"/results/{kept['handle']}/query", params={"expression": "length(@)"})
    assert query.status_code in (200, 422)
    assert (await client.get(f"/results/{kept['handle']}/content")).text == text


async def test_an_item_of_a_page_is_found_with_its_number(client: httpx.AsyncClient) -> None:
    items = "".join(f"{n}. <span>Story {n} of the city {n * n}</span><br>\n" for n in range(1, 90))
    sent = {"session_id": "formats", "tool_name": "fetch", "content": f"<html><body>\n{items}</body></html>"}
    kept = (await client.post("/results", json=sent)).json()
    asked = {"handle": kept["handle"], "extract": "Which place has story 44?", "mode": "retrieve"}
    assert "44. <span>Story 44 " in (await client.post("/extract", json=asked)).json()["body"]
