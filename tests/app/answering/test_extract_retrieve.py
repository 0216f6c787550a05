"""POST /extract with no model configured: the passages that answer, over HTTP."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.answering import extractor
from app.sweeper import sweep
from tests.conftest import Serve, StillClock, served

pytestmark = pytest.mark.anyio

LOG = "".join(
    f"2024-05-01 10:{n // 60 % 60:02}:{n % 60:02} INFO request {n} took {n % 90} ms\n" for n in range(3000)
)
FAULTY = LOG.replace(
    "INFO request 2000 took", "ERROR request 2000 lost its connection to db-7.internal, took"
)
ORDERS = json.dumps(
    {"orders": [{"id": n, "city": f"city {n}", "total": n * 3} for n in range(2000)], "page": 1}
)


async def keep(client: httpx.AsyncClient, text: str, **fields: Any) -> str:
    sent = {"session_id": "s", "tool_name": "journal", "content": text, **fields}
    return str((await client.post("/results", json=sent)).json()["handle"])


async def ask(client: httpx.AsyncClient, handle: str, extract: str, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/extract", json={"handle": handle, "extract": extract, **fields})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def test_a_question_is_answered_with_no_model(client: httpx.AsyncClient) -> None:
    for mode in ["auto", "retrieve"]:
        handle = await keep(client, FAULTY)
        told = await ask(client, handle, "Which host was the connection lost to?", mode=mode)
        frame = f"ABSTRACT FROM TOOL OUTPUT journal WITH HANDLE {handle}, STRATEGY:retrieve:\n\n"
        assert told["text"] == frame + told["body"]
        assert "ERROR request 2000 lost its connection to db-7.internal, took 20 ms\n" in told["body"]
        assert re.search(r"^\[lines \d+-\d+\]$", told["body"], re.MULTILINE)
        assert (told["status"], told["strategy"], told["warnings"]) == ("complete", "retrieve", [])
        assert told["usage"] == {"llm_calls": 0, "input_tokens": 0, "output_tokens": 0, "cost_usd": 0.0}
        assert (told["coverage"]["ratio"], told["coverage"]["missing"]) == (1.0, [])


async def test_a_line_that_is_repeated_is_shown_once(client: httpx.AsyncClient) -> None:
    handle = await keep(client, LOG + "the needle is in the hay\n" * 50 + LOG)
    body = (await ask(client, handle, "needle hay"))["body"]
    assert body.count("the needle is in the hay\n[The same line ") == body.count("the needle is in the hay\n")


async def test_all_that_is_shown_stands_in_the_result(client: httpx.AsyncClient) -> None:
    handle = await keep(client, ORDERS)
    told = await ask(client, handle, 'total of "city 1234"')
    assert '"city": "city 1234", "total": 3702' in told["body"]
    heads = re.findall(
        r"^\[line 1, bytes (\d+)-(\d+)(?: · (\$\S*))?(?: · 3 of 3 words)?\]\n", told["body"], re.MULTILINE
    )
    assert heads
    for start, end, _ in heads:
        span = {"Range": f"bytes={start}-{int(end) - 1}"}
        piece = (await client.get(f"/results/{handle}/content", headers=span)).text
        assert piece in told["body"]
    assert any(re.fullmatch(r"\$\.orders\[123\d\]", path) for *_, path in heads)


PLAIN = "one more line of plain words\n" * 1000
TABLE = "id,city,amount\n" + "".join(f'{n},"city\n{n}",{n * 3}\n' for n in range(2000))
RECORDS = "".join(json.dumps({"name": f"n {n}", "size": n}) + "\n" for n in range(900))


async def test_a_count_of_what_the_data_does_not_hold_is_nothing_found(client: httpx.AsyncClient) -> None:
    told = await ask(client, await keep(client, PLAIN), "How many swallows are in the rows?")
    assert told["body"].startswith(
        "NO RELEVANT DATA FOUND\nNowhere in the data: swallows, rows.\nThe data: plain text, 6,000 words; "
    )
    assert told["status"] == "complete"


WORDS = ("red", "blue", "green", "grey", "white", "pink", "brown")
FILLER = "".join(
    f"slide{n % 60 + 20}.xml of the {WORDS[n % 7]} {WORDS[n % 6]} set was read\n" for n in range(2000)
)


def among_others(needle: str) -> str:
    return f"{FILLER}{needle}\n{FILLER}"


async def test_several_identifiers_may_be_asked_about(client: httpx.AsyncClient) -> None:
    text = among_others("getName and setName are used") + among_others("setSize is here")
    told = await ask(client, await keep(client, text), "Where are getName, setName and setSize?")
    assert "getName and setName are used" in told["body"]
    assert "setSize is here" in told["body"]


async def test_what_a_page_has_in_templates_is_seen(client: httpx.AsyncClient) -> None:
    rows = "<p>nothing of note is said in here</p>\n" * 400
    page = f"<html><body>{rows}<template x-if='a'><p>the savings of each week</p></template>{rows}</body>"
    told = await ask(client, await keep(client, page), "note on savings of each week")
    assert "the savings of each week" in told["body"]


async def test_content_blocks_are_searched_like_any_text(client: httpx.AsyncClient) -> None:
    image = {"type": "image", "data": "iVBORw0KGgo" + "A" * 20_000, "mimeType": "image/png"}
    blocks = [{"type": "text", "text": FAULTY}, image, {"type": "text", "text": "the end is db-9.internal"}]
    sent = {"session_id": "s", "tool_name": "journal", "content": blocks}
    handle = str((await client.post("/results", json=sent)).json()["handle"])
    body = (await ask(client, handle, "db-9.internal or db-7.internal"))["body"]
    assert "db-7.internal, took" in body
    assert "the end is db-9.internal" in body


async def test_a_number_with_a_zero_fraction_is_a_whole_number_on_every_route(
    client: httpx.AsyncClient,
) -> None:
    handle = await keep(client, FAULTY)
    ranges = [{"start": 0.0, "end": float(len(FAULTY))}]
    assert "db-7" in (await ask(client, handle, "lost connection", ranges=ranges, deadline_ms=5000.0))["body"]
    report = {"used_tokens": 5494.0, "turn": 1.0}
    for path, sent in (
        ("/sessions/s", {"context_window": 100_000.0}),
        ("/sessions/s/usage", report),
        ("/check", {"session_id": "s", "tool_name": "t", "bytes": 10.0, "tokens": 3.0}),
        ("/results", {"session_id": "s", "tool_name": "t", "content": "x", "context": report}),
    ):
        method = client.put if path == "/sessions/s" else client.post
        answer = await method(path, json=sent)
        assert answer.status_code in (200, 201), (path, answer.text)
    assert (await client.get("/sessions/s")).json()["budget"]["used_tokens"] == 5494


async def test_a_shorter_answer_still_holds_the_best(client: httpx.AsyncClient) -> None:
    handle = await keep(client, FAULTY)
    window = {"context_window": 900, "buffer_tokens": 0, "max_output_tokens": 0}
    await client.put("/sessions/s", json=window)
    told = await ask(client, handle, "connection lost")
    budget = (await client.get("/sessions/s")).json()["budget"]
    assert "db-7.internal" in told["body"]
    assert (told["strategy"], told["status"]) == ("retrieve", "complete")
    assert budget["used_tokens"] + budget["reserved_tokens"] <= 900


async def test_what_is_too_large_for_its_deadline_falls_back_in_time(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow the machine: the fallback has the time that it needs.
    monkeypatch.setattr(extractor, "GRACE_SECONDS", 60.0)
    handle = await keep(client, FAULTY * 40)
    told = await ask(client, handle, "connection lost", deadline_ms=100)
    assert told["body"].startswith("WARNING: tool_output fallback to truncate (the deadline passed).\n")
    assert told["status"] == "fallback"


async def test_questions_at_the_same_time_and_after_a_restart_agree(serve: Serve) -> None:
    async with serve() as client:
        handle = await keep(client, FAULTY)
        first = await ask(client, handle, "connection lost")
        assert (await ask(client, handle, "connection lost"))["body"] == first["body"]
    async with serve() as client:
        assert (await ask(client, handle, "connection lost"))["body"] == first["body"]


@pytest.fixture
async def service(tmp_path: Path, clock: StillClock) -> AsyncIterator[Any]:
    async with served(clock, storage_url=f"disk://{tmp_path}/state", retention_seconds=100) as both:
        yield both


@pytest.mark.parametrize("end", ["delete", "session", "expiry"])
async def test_an_index_does_not_outlive_its_result(service: Any, clock: StillClock, end: str) -> None:
    rt, client = service
    handle = await keep(client, FAULTY)
    await ask(client, handle, "connection lost")
    await sweep(rt, left_behind=False)
    assert rt.indexes.size > 0
    if end == "delete":
        await client.delete(f"/results/{handle}")
    elif end == "session":
        await client.delete("/sessions/s")
    else:
        clock.pass_seconds(101)
    await sweep(rt, left_behind=False)
    assert rt.indexes.size == 0
    gone = await client.post("/extract", json={"handle": handle, "extract": "connection lost"})
    assert gone.status_code in (404, 410)


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        ({}, "query over data(id, name), lines(line, text)"),
        ({"profile": "ai-agent"}, "extract in the words of data(id, name), lines(line, text)"),
        ({"offer": ["ask", "grep"]}, "extract in the words of data(id, name), lines(line, text)"),
        ({"offer": ["ask", "query"]}, "tool_output_query over data(id, name), lines(line, text)"),
    ],
)
async def test_an_answer_names_what_the_model_is_offered(
    client: httpx.AsyncClient, policy: dict[str, Any], named: str
) -> None:
    text = "id,name\n" + "".join(f"{n},name of {n * 7919}\n" for n in range(2000))
    await client.put("/sessions/s", json={"policy": policy})
    sent = {"tool_name": "db", "session_id": "s", "content": text}
    handle = (await client.post("/results", json=sent)).json()["handle"]
    for question in ("name of 7919", "How many names are there?", "zebra quagga"):
        arguments = {"handle": handle, "extract": question}
        call = {"session_id": "s", "name": "tool_output", "arguments": arguments}
        told = (await client.post("/tools/call", json=call)).json()
        asked = (await client.post("/extract", json=arguments)).json()
        for answer in (told["text"], asked["text"]):
            offers = (await client.get("/tools", params={"session_id": "s"})).json()["tools"]
            properties = {name for one in offers for name in one["function"]["parameters"]["properties"]}
            for argument in {"query", "pattern", "lines"} - properties:
                assert not re.search(rf"\b{argument} (?:=|over)", answer)
        if question == "name of 7919":
            assert told["text"].rstrip("\n").endswith(f"{named}.]")


SETTINGS = "".join(f"[section{n}]\nkey = {n}\npath = /srv/{n}\n\n" for n in range(600)) + (
    "[configuration]\nretries = 7\nregion = eu-north\n\n"
)
LOADER = "".join(
    f'def read_{n}(path, limit):\n    """Reads {n}."""\n    return [path, limit]\n\n\n' for n in range(200)
)
SCRIPT = "".join(
    f"import x{n} from './x{n}';\n\nfunction helper{n}(a) {{\n  return a;\n}}\n\n" for n in range(300)
)
INSTRUCTIONS = [
    (
        "Extract all function definitions",
        LOADER,
        ["Nowhere in the data: function, definitions.", "def read_3 (line 16)"],
    ),
    (
        "Find lines containing 'export default' and show 10 lines of context around each",
        SCRIPT + "export default function App() {\n  return 'the app';\n}\n",
        ["export default function App() {", "return 'the app'"],
    ),
    (
        "List all error messages with their line numbers",
        LOG.replace("INFO request 2000 took", "ERROR request 2000 lost its disk, took"),
        ["ERROR request 2000 lost its disk", "“error” is in 1 line"],
    ),
    (
        "Get the configuration section and summarize its values",
        SETTINGS,
        ["[configuration]\nretries = 7\nregion = eu-north\n", "Nowhere in the data: summarize."],
    ),
    (
        "Find all occurrences of pattern 'TODO' or 'FIXME'",
        LOADER.replace("Reads", "Fits a pattern of"),
        ["NO RELEVANT DATA FOUND\n", "TODO, FIXME."],
    ),
]
"""The examples of the extraction tool of ai-agent, and what stands in the answer."""


@pytest.mark.parametrize("profile", ["default", "ai-agent"])
async def test_instructions_of_ai_agent_are_answered_by_passages_or_name_what_counts(
    client: httpx.AsyncClient, profile: str
) -> None:
    for instruction, text, wanted in INSTRUCTIONS:
        handle = await keep(client, text, policy={"profile": profile})
        body = (await ask(client, handle, instruction))["body"]
        assert [one for one in wanted if one not in body] == [], instruction
        *above, last = body.rstrip("\n").split("\n")
        assert "lines(line, text)" in last, instruction
        number = {f"def read_{n} (line {5 * n + 1})" for n in range(200)}
        assert {line for line in above if line.startswith("def read_") and "(line" in line} <= number


async def test_where_quoted_texts_are_nowhere_no_other_passage_is_shown(client: httpx.AsyncClient) -> None:
    handle = await keep(client, LOADER.replace("Reads", "Fits a pattern of"))
    body = (await ask(client, handle, "Find the pattern 'TODO' or 'FIXME'"))["body"]
    assert body.startswith("NO RELEVANT DATA FOUND\nNowhere in the data: TODO, FIXME.\n")
    handle = await keep(client, FAULTY)
    assert "lost its connection" in (await ask(client, handle, "Why 'lost connections'?"))["body"]
