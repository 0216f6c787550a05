"""Outputs of ordinary programs over HTTP: `query` yields what they say, the message claims what `query`
yields, and the number of a line is the same in each answer."""

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from content.tables import spelled
from tests.conftest import served
from tests.content.ordinary_texts import SHAPES
from tests.content.printed_outputs import OUTPUTS, Output

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("queries_here")]

OTHERS = [Output(name, text, (), (), ()) for name, (text, _, _) in SHAPES.items()]
_TABLE = re.compile(r"(\w+)\(([\d,]+) rows?\b(?: of [^:()]+)?(?:: ((?:[^()\"]|\"[^\"]*\")*))?\)")
_NUMBERED = re.compile(r"(\d+): (.*)")
_CLIP = "…"
_VALUES = "values such as: "


@pytest.fixture(scope="module")
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with served(storage_url="memory:", ledger_url="memory:") as (_, client):
        yield client


class Kept:
    """A stored output and its answers."""

    def __init__(self, client: httpx.AsyncClient, output: Output, stored: dict[str, Any]) -> None:
        self._client, self.output, self.handle = client, output, stored["handle"]
        self.message: str = stored["content"].partition("\n\n")[2]
        self._told: dict[str, Any] = {}

    async def get(self, path: str, **given: Any) -> dict[str, Any]:
        """What the first of the same requests was answered."""
        if (asked := f"{path} {given}") not in self._told:
            answer = await self._client.get(f"/results/{self.handle}/{path}", params=given)
            assert answer.status_code == 200, answer.text
            self._told[asked] = answer.json()
        told: dict[str, Any] = self._told[asked]
        return told

    async def rows(self, sql: str) -> list[Any]:
        answer = await self.get("query", expression=sql, limit=1000)
        assert answer["columns"] is not None, answer
        rows = [tuple(row.values()) for row in answer["result"]]
        return [row[0] if len(row) == 1 else row for row in rows]

    async def asked(self, **arguments: str) -> str:
        call = {"session_id": "s", "name": "tool_output", "arguments": {"handle": self.handle, **arguments}}
        text: str = (await self._client.post("/tools/call", json=call)).json()["text"]
        return text


@pytest.fixture(scope="module")
async def kept(client: httpx.AsyncClient, request: pytest.FixtureRequest) -> Kept:
    output: Output = request.param
    sent: dict[str, Any] = {"session_id": "s", "tool_name": "execute_shell", "content": output.text}
    sent["policy"] = {"max_bytes": 100}
    stored = (await client.post("/results", json=sent)).json()
    assert stored["outcome"] == "store"
    return Kept(client, output, stored)


# The tests of one output follow each other: it is stored once, and loaded once for its queries.
of_programs = pytest.mark.parametrize("kept", OUTPUTS, ids=lambda output: output.name, indirect=True)
of_all = pytest.mark.parametrize("kept", [*OUTPUTS, *OTHERS], ids=lambda output: output.name, indirect=True)


def plain(value: object) -> object:
    """Numbers compare with texts of digits."""
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    try:
        return value if value is None or isinstance(value, bool) else float(str(value))
    except ValueError:
        return value


def number_in(cell: str) -> object:
    """The number of a cell that is written with a sign, or with a comma for the point."""
    bare = re.sub(r"[^\d.,-]", "", cell)
    return plain(bare.replace(",", "") if "." in bare else bare.replace(",", "."))


@of_programs
async def test_query_yields_what_the_output_says(kept: Kept) -> None:
    output = kept.output
    for sql, wanted in output.asked:
        if sql == "*":
            columns = (await kept.get("query", expression="SELECT * FROM data LIMIT 1"))["columns"]
            assert columns[: len(wanted)] == wanted
        else:
            assert [*map(plain, await kept.rows(sql))] == [*map(plain, wanted)], sql
    assert [one for one in output.said if one not in kept.message] == []
    assert [one for one in output.unsaid if one in kept.message] == []


def bare(text: str) -> str:
    """Without white space and the mark at the beginning of a file, which `lines` shows as it was sent."""
    return "".join(text.removeprefix("\ufeff").split())


def is_shown(shown: str, text: str) -> bool:
    """Whether a clipped text is the beginning of another; white space aside."""
    begin, is_clipped = bare(shown).removesuffix(_CLIP), shown.endswith(_CLIP)
    return bare(text).startswith(begin) if is_clipped else bare(text) == begin


@of_all
async def test_what_the_message_claims_query_yields(kept: Kept) -> None:
    *shown, last = kept.message.split("\n")
    if not kept.message or "binary" in kept.message:
        return
    assert last.startswith("query: ")
    for name, count, columns in _TABLE.findall(last):
        assert await kept.rows(f"SELECT count(*) FROM {name}") == [int(count.replace(",", ""))], name
        answer = await kept.get("query", expression=f"SELECT * FROM {name} LIMIT 1")
        names = ", ".join(map(spelled, answer["columns"]))
        assert names.startswith(columns.partition(" such as ")[0].removesuffix(", …")), name
    await _check_row(kept, shown)
    await _check_log(kept, shown)


async def _check_row(kept: Kept, shown: list[str]) -> None:
    """The row of data that the message shows is the first that `query` yields, under the same names."""
    above = next((at for at, line in enumerate(shown) if line.endswith("; one row of data:")), None)
    if above is None:
        return
    row = (await kept.get("query", expression="SELECT * FROM data LIMIT 1"))["result"][0]
    below = shown[above + 1 :]
    if below[-1].startswith(_VALUES):
        await _check_values(kept, below.pop().removeprefix(_VALUES), list(row))
    text, values = "\n".join(below), list(row.items())
    at = 0
    for number, (name, value) in enumerate(values):
        begin = f"{', ' if number else ''}{spelled(name)}: "
        if not text.startswith(begin, at):
            assert text.endswith(_CLIP), (name, text[at:])
            return
        at += len(begin)
        behind = f", {spelled(values[number + 1][0])}: " if number + 1 < len(values) else ""
        end = text.find(behind, at) if behind else len(text)
        cell = text[at : end if end >= 0 else len(text)]
        if value is not None and not isinstance(value, bool | list | dict):
            assert is_shown(cell, str(value)) or number_in(cell) == plain(value), (name, cell, value)
        at += len(cell)


async def _check_values(kept: Kept, text: str, names: list[str]) -> None:
    """The values of columns that have few are values of these columns."""
    for part in text.removesuffix(_CLIP).split("; "):
        name = next(name for name in names if part.startswith(f"{spelled(name)} "))
        told = part.removeprefix(f"{spelled(name)} ").split(" | ")
        assert set(told) <= set(await kept.rows(f"SELECT DISTINCT {spelled(name)} FROM data")), name


async def _check_log(kept: Kept, shown: list[str]) -> None:
    """Levels are counted as `query` counts them."""
    heads = [line for line in shown if line.startswith("log; ")]
    for level, count in re.findall(r"\b([A-Z]{4,9}) ([\d,]+)", heads[0]) if heads else ():
        sql = f"SELECT count(*) FROM data WHERE level = '{level}'"
        assert await kept.rows(sql) == [int(count.replace(",", ""))], level
    if heads and (found := re.search(r"without a level ([\d,]+)", heads[0])):
        sql = "SELECT count(*) FROM data WHERE level IS NULL"
        assert await kept.rows(sql) == [int(found[1].replace(",", ""))]


@of_all
async def test_the_number_of_a_line_is_the_same_in_each_answer(kept: Kept) -> None:
    of_query: dict[int, str] = dict(await kept.rows("SELECT line, text FROM lines LIMIT 1000"))
    # JSON on one line is shown as many, in `pattern` and in `lines`.
    view = {} if len(of_query) > 1 else {"view": "greppable"}
    told = await kept.get("lines", limit=1000, **view)
    of_lines = {one["number"]: one["text"] for one in told["lines"]}
    if len(of_query) > 1:
        assert {at: bare(text) for at, text in of_query.items()} == {
            at: bare(text) for at, text in of_lines.items()
        }
    assert of_lines
    for line in kept.message.split("\n"):
        if (found := _NUMBERED.fullmatch(line)) and "its last lines:" in kept.message:
            assert is_shown(found[2], of_lines[int(found[1])]), line
    longest = max(of_lines.values(), key=len)
    word = next(iter(re.findall(r"[A-Za-z]{4,}", longest)), "")
    answer = await kept.asked(pattern=word) if word else ""
    for number, text in re.findall(r"^(\d+): (.*)$", answer, re.MULTILINE):
        # Tags of a page are left out; an object is shown whole, and a line that is repeated once.
        line = of_lines[int(number)]
        shown = re.sub(r" … \(\+\d+ in this line\)$", _CLIP, re.sub(r"  \[\d+ times: also .*\]$", "", text))
        assert "<" in line or is_shown(shown, line) or bare(line).rstrip(",[{") in bare(text), text
    answer = await kept.asked(lines="3-5")
    for number, text in re.findall(r"^(\d+): (.*)$", answer, re.MULTILINE):
        assert bare(text) == bare(of_lines[int(number)])
