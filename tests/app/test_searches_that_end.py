"""Searches that end the question: the first and the last match, lines around few, words in another order."""

import re

import httpx
import pytest

from tests.app.test_tool_calls import keep, text_of

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("queries_here")]


@pytest.fixture(scope="module")
def client(shared_client: httpx.AsyncClient) -> httpx.AsyncClient:
    return shared_client


HAY = "nothing but hay\n" * 400
ROLLED = "".join(
    f"[2026-11-24 10:{n // 60:02}:{n % 60:02}] INFO Rolled new log segment for 'part-{n % 7}' in {n} ms\n"
    for n in range(1400)
)


async def search(client: httpx.AsyncClient, text: str, pattern: str) -> str:
    return await text_of(client, "tool_output", handle=await keep(client, text), pattern=pattern)


@pytest.mark.parametrize("pattern", ["Rolled", "part-3", "in 1?[0-9]?[0-9] ms", "part-3.*in [0-9]{1,2} ms"])
async def test_the_first_and_the_last_match_are_shown_however_many_there_are(
    client: httpx.AsyncClient, pattern: str
) -> None:
    found = await search(client, ROLLED, pattern)
    matching = [n for n, line in enumerate(ROLLED.splitlines(), 1) if re.search(pattern, line)]
    shown = [int(line.partition(":")[0]) for line in found.splitlines() if line[:1].isdigit()]
    assert shown == sorted(set(shown))
    assert shown[0] == matching[0]
    assert shown[-1] == matching[-1]
    assert len(found.encode()) <= 2500
    if len(matching) > 100:
        shown_are = f"of which {len(shown)} are shown: the first, the last and some between.]"
        assert found.startswith(f"[{len(matching):,} matching lines, {shown_are}")
        assert len(found.encode()) <= (900 if len(matching) > 1000 else 1500)


async def test_the_last_of_some_that_do_not_fit_is_shown_below_the_first(client: httpx.AsyncClient) -> None:
    lines = [f"{n}: needle {'x' * 300}\n" for n in range(8)]
    found = await search(client, "".join(f"{line}{HAY}" for line in lines), "needle")
    assert re.search(
        r"\[Matching lines 1 to \d+ and 8 of 8\. For the others: a narrower pattern\.\]\Z", found
    )
    tail = [re.sub("x+", "x", line) for line in found.splitlines()[-3:-1]]
    assert tail == ["[… then the last:]", "2808: 7: needle x"]


async def test_between_the_first_and_the_last_of_two_is_nothing(client: httpx.AsyncClient) -> None:
    around = f"{'y' * 150}\n"
    text = "".join(f"{around}{n} needle {'x' * 150}\n{around}" for n in range(60))
    asked = {"handle": await keep(client, text), "pattern": "needle", "context": 1}
    found = await text_of(client, "tool_output", **asked)
    assert [line[:8] for line in found.splitlines() if "needle" in line] == ["2: 0 nee", "179: 59 "]
    assert found.startswith("[60 matching lines, of which 2 are shown: the first and the last.]\n")


async def test_words_that_stand_in_another_order_are_shown_where_they_do(client: httpx.AsyncClient) -> None:
    found = await search(client, ROLLED, r"part-3.*rolled new (log )?segment")
    assert found.startswith(
        "No line matches. 200 lines hold “part-3”, “rolled new”, “log”, “segment” in another"
    )
    assert found.endswith(f"\n1397: {ROLLED.splitlines()[1396]}")
    plain = await search(client, ROLLED, "segment log new")
    assert "1,400 lines hold “segment”, “log”, “new” in another order or form. The last:" in plain
    assert "in another order" not in await search(client, ROLLED, "rolled.*squirrel")


async def test_a_few_matches_of_a_text_have_the_lines_around_them(client: httpx.AsyncClient) -> None:
    words = "".join(f"line {n} of a manual says {'little' if n % 300 else 'much'}\n" for n in range(1, 1400))
    found = await search(client, words, "much")
    assert [line.split(" ")[0] for line in found.splitlines()] == [
        *("299-", "300:", "301-", "--", "599-", "600:", "601-", "--", "899-", "900:", "901-", "--"),
        *("1199-", "1200:", "1201-", "[All"),
    ]
    in_log = await search(client, ROLLED, "in (7|77) ms")
    assert [line.split(" ")[0] for line in in_log.splitlines()] == ["8:", "78:", "[All"]


async def test_a_few_matches_of_source_have_the_line_of_their_function(client: httpx.AsyncClient) -> None:
    source = "import os\n\n\n" + "".join(
        f"def work_{n}(path):\n    name = os.fspath(path)\n    size = {n}\n    total = size + {n}\n"
        f"    return fail('unknown', name, total) if size == {n // 90 * 90} else name\n\n\n"
        for n in range(300)
    )
    few = await search(client, source, r"total = size \+ (5|205)$")
    headers = ("def work_5(path):", "def work_205(path):")
    shown = [f"{n}- {line}" for n, line in enumerate(source.splitlines(), 1) if line in headers]
    assert [line for line in few.splitlines() if "def " in line] == shown


async def test_records_that_share_a_line_are_counted(client: httpx.AsyncClient) -> None:
    record = '{"id": 1, "text": "a brace }{ in a text", "kind": "a"}'
    text = f"{record}\n" * 400 + f"{record}{record}\n" * 9
    answer = await client.post("/results", json={"tool_name": "t", "session_id": "default", "content": text})
    told = answer.json()
    assert "JSON lines, 418 records with keys" in told["content"]
    handle = told["handle"]
    counted = await text_of(client, "tool_output", handle=handle, query="SELECT count(*) FROM data")
    assert counted == "418"
