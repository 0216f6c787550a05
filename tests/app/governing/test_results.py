"""POST /results: what passes, what is stored, both ways in, and the same call twice."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from app.http.api.answers import ResultOut
from policies.outcomes.store import TOO_LARGE
from tests.conftest import Serve

pytestmark = pytest.mark.anyio

BIG = "\n".join(f"line {number} of the log" for number in range(1000))
HANDLE = r"session-[\w-]+/file-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


async def post(client: httpx.AsyncClient, content: object, **fields: object) -> httpx.Response:
    return await client.post("/results", json={"tool_name": "execute_shell", "content": content, **fields})


async def test_a_small_result_passes_byte_for_byte(client: httpx.AsyncClient) -> None:
    answer = await post(client, "héllo\r\n\x00\n")
    told = answer.json()
    assert answer.status_code == 200
    assert told["outcome"] == "pass"
    assert told["content"] == "héllo\r\n\x00\n"
    assert told["complete"] is True
    assert told["trigger"] is None
    assert told["handle"] is None
    assert told["measure"] == {"bytes": 10, "lines": 2, "chars": 9, "tokens": 5, "tokens_exact": True}
    assert told["budget"]["enforced"] is False


async def test_an_oversized_result_is_stored_and_replaced_by_the_exact_message(
    client: httpx.AsyncClient,
) -> None:
    answer = await post(client, BIG)
    told = answer.json()
    measure = told["measure"]
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/results/{told['handle']}"
    assert told["trigger"] == "size_cap"
    assert told["complete"] is False
    assert re.fullmatch(HANDLE, told["handle"])
    assert measure["bytes"] == len(BIG)
    assert measure["lines"] == 1000
    assert told["content"] == (
        f"{TOO_LARGE} ({len(BIG)} bytes, 1000 lines, {measure['tokens']} tokens). "
        "It is stored.\n"
        f'tool_output(handle = "{told["handle"]}") reads it by query, pattern, lines or extract.\n\n'
        "plain text; its last lines:\n999: line 998 of the log\n1000: line 999 of the log\n"
        "its first lines:\n1: line 0 of the log\nquery: lines(line, text)"
    )
    body = await client.get(f"/results/{told['handle']}/content")
    assert body.text == BIG


async def test_the_handle_is_the_path_of_the_plain_body_on_disk(
    disk_client: httpx.AsyncClient, tmp_path: Path
) -> None:
    told = (await post(disk_client, BIG, session_id="s1")).json()
    path = tmp_path / "state" / "tool_output" / "default" / told["handle"]
    assert path.read_text() == BIG
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


async def test_any_text_body_works_with_its_fields_in_the_query(client: httpx.AsyncClient) -> None:
    answer = await client.post(
        "/results?tool_name=execute_shell&session_id=s2",
        content=b"some output\n",
        headers={"Content-Type": "text/plain", "Accept": "text/plain"},
    )
    assert answer.status_code == 200
    assert answer.content == b"some output\n"
    assert answer.headers["spillgate-outcome"] == "pass"
    assert answer.headers["spillgate-bytes"] == "12"
    assert answer.headers["spillgate-lines"] == "1"
    assert "spillgate-handle" not in answer.headers
    assert "spillgate-durability" not in answer.headers


async def test_a_stored_text_body_answers_the_message_and_its_headers(
    disk_client: httpx.AsyncClient,
) -> None:
    answer = await disk_client.post(
        "/results?tool_name=execute_shell",
        content=BIG.encode(),
        headers={"Content-Type": "text/csv; charset=UTF-8", "Accept": "text/plain"},
    )
    assert answer.status_code == 201
    assert answer.text.startswith(f"{TOO_LARGE} (")
    assert re.fullmatch(HANDLE, answer.headers["spillgate-handle"])
    assert answer.headers["spillgate-durability"] == "disk"
    assert answer.headers["spillgate-trigger"] == "size_cap"
    assert int(answer.headers["spillgate-budget-remaining"]) > 0


@pytest.mark.usefixtures("queries_here")
@pytest.mark.parametrize("preview", ["sketch", "outline", "head"])
async def test_a_text_of_which_only_the_beginning_is_a_table_is_stored_and_read_by_its_lines(
    client: httpx.AsyncClient, preview: str
) -> None:
    rows = "".join(f"web-{number:<8}1/1     Running\n" for number in range(70))
    steps = (
        f"step{'-' * (n % 9)} {n} ended {'x' * (n % 13)}well, {'y' * (n % 7)}and {n}\n" for n in range(300)
    )
    text = f"NAME        READY   STATUS\n{rows}{''.join(steps)}"
    answer = await client.post(
        "/results", json={"tool_name": "execute_shell", "content": text, "policy": {"preview": preview}}
    )
    assert answer.status_code == 201, answer.text
    given = {"handle": answer.json()["handle"]}
    for asked, said in (
        ({"query": "SELECT count(*) FROM data"}, str(text.count("\n"))),
        ({"pattern": "web-42"}, "44: web-42"),
        ({"extract": "Is web-42 running?"}, "web-42"),
        ({"query": "[].nothing"}, "no table"),
    ):
        body = {"session_id": "default", "name": "tool_output", "arguments": given | asked}
        told = await client.post("/tools/call", json=body)
        assert told.status_code == 200, told.text
        assert said in told.text, told.text
    known = await client.get(f"/results/{given['handle']}")
    assert known.status_code == 200


async def test_streamed_and_posted_the_same_text_is_measured_and_kept_the_same(
    client: httpx.AsyncClient,
) -> None:
    async def chunks(data: bytes) -> AsyncIterator[bytes]:
        for start in range(0, len(data), 70_001):
            yield data[start : start + 70_001]

    for size in (20_000, 300_000, 3_000_000):
        text = ("wörd " * size)[:size]
        posted = (await post(client, text)).json()
        url, headers = "/results?tool_name=execute_shell", {"Content-Type": "text/plain"}
        answer = await client.post(url, content=chunks(text.encode()), headers=headers)
        streamed = answer.json()
        sizes = ("bytes", "lines", "chars")
        assert [streamed["measure"][name] for name in sizes] == [posted["measure"][name] for name in sizes]
        for told in (posted, streamed):
            assert (await client.get(f"/results/{told['handle']}/content")).text == text


async def test_a_large_result_may_pass_where_no_cap_is_set(client: httpx.AsyncClient) -> None:
    text = "all of it\n" * 200_000
    answer = await client.post(
        '/results?tool_name=t&policy={"max_bytes":0}',
        content=text.encode(),
        headers={"Content-Type": "text/plain", "Accept": "text/plain"},
    )
    assert answer.headers["spillgate-outcome"] == "pass"
    assert answer.text == text


async def test_content_blocks_pass_as_they_came(client: httpx.AsyncClient) -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "image", "data": "aGk=", "mimeType": "image/png"}]
    told = (await post(client, blocks)).json()
    assert told["outcome"] == "pass"
    assert told["content"] == blocks


async def test_a_string_passes_in_the_json_that_it_came_in(client: httpx.AsyncClient) -> None:
    for size in (1, 300_000, 3_000_000):
        content = rb'"\u00e9\/ \ud83d\ude00 \u0041%b"' % (b"x" * size)
        body = b'{"content": %b, "tool_name": "t", "policy": {"max_bytes": 0}}' % content
        answer = await client.post("/results", content=body, headers={"Content-Type": "application/json"})
        assert b'"content":%b,' % content in answer.content


async def test_stored_content_blocks_keep_every_block_that_can_be_read(client: httpx.AsyncClient) -> None:
    link = {"type": "resource_link", "uri": "file:///a", "name": "a" * 16_000}
    told = (await post(client, [{"type": "text", "text": "first\nline"}, link])).json()
    assert told["trigger"] == "size_cap"
    body = (await client.get(f"/results/{told['handle']}/content")).text
    first, second, block = body.split("\n")
    assert [first, second] == ["first", "line"]
    assert json.loads(block) == link


async def test_a_picture_passes_and_the_text_beside_it_is_governed(client: httpx.AsyncClient) -> None:
    image = {"type": "image", "data": "aGk=" * 40_000, "mimeType": "image/png"}
    sound = {"type": "audio", "data": "aGk=" * 40_000, "mimeType": "audio/wav"}
    few, much = ({"type": "text", "text": text} for text in ("A chart.", "a line\n" * 3000))
    for blocks in ([image], [few, image], [image, few, sound]):
        told = (await post(client, blocks)).json()
        assert (told["outcome"], told["content"]) == ("pass", blocks)
    told = (await post(client, [image, much, few, sound])).json()
    message, *others = told["content"]
    assert message["text"].startswith(f"{TOO_LARGE} (21009 bytes, 3002 lines")
    assert others == [image, sound]
    assert told["complete"] is False
    body = (await client.get(f"/results/{told['handle']}/content")).text
    assert body == f"{much['text']}\n{few['text']}"
    text = await client.post(
        "/results", json={"tool_name": "t", "content": [image, much]}, headers={"Accept": "text/plain"}
    )
    assert text.text.startswith(TOO_LARGE)


async def test_only_surrogates_that_are_alone_are_replaced(client: httpx.AsyncClient) -> None:
    for sent, text in [
        (rb"\ud83d\ude00\ude00", "\U0001f600\ufffd"),
        (rb"\uD83D\uDE00 \uD83D", "\U0001f600 \ufffd"),
        (rb"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        (rb"\\ud800 \udfff", "\\ud800 \ufffd"),
        (rb"\\\\\ud800\\\\ud800", "\\\\\ufffd\\\\ud800"),
        (rb"\\\ud800\n\"\/", '\\\ufffd\n"/'),
    ]:
        body = b'{"tool_name": "t", "content": "%b"}' % sent
        answer = await client.post("/results", content=body, headers={"Content-Type": "application/json"})
        assert answer.json()["content"] == text
        assert answer.json()["complete"] is False


async def test_a_lone_surrogate_becomes_u_fffd_with_a_warning_in_a_body_of_any_size(
    client: httpx.AsyncClient,
) -> None:
    for size in [1, 20_000, 100_000, 700_000]:
        bad, good = (
            rb"a\ud83d b \\ud83d \ud83d\ude00" + b"x" * size,
            "a\ufffd b \\ud83d \U0001f600" + "x" * size,
        )
        blocks = rb'[{"type": "text", "text": "%b"}, {"type": "text", "text": "\udfff"}]' % bad
        long, short = (
            b'{"type": "text", "text": "%b"}' % (b"x" * size),
            rb'{"type": "text", "text": "x\udfff"}',
        )
        for tool, content, passed in (
            (b"t", b'"%b"' % bad, good),
            (
                b"t",
                b"[%b, %b]" % (long, short),
                [{"type": "text", "text": "x" * size}, {"type": "text", "text": "x\ufffd"}],
            ),
            (b"t", blocks, [{"type": "text", "text": good}, {"type": "text", "text": "\ufffd"}]),
            (rb"\ud800", b'"%b"' % (b"x" * size), "x" * size),
        ):
            body = b'{"policy": {"max_bytes": 0}, "tool_arguments": "", "tool_name": "%b", "content": %b}'
            headers = {"Content-Type": "application/json"}
            answer = await client.post("/results", content=body % (tool, content), headers=headers)
            assert answer.status_code == 200, answer.text
            told = answer.json()
            assert told["content"] == passed
            assert told["complete"] is False
            assert "surrogates" in told["warnings"][0]


async def test_the_idempotency_key_header_names_the_call_too(client: httpx.AsyncClient) -> None:
    url, headers = "/results?tool_name=t", {"Content-Type": "text/plain", "Idempotency-Key": "k"}
    first = await client.post(url, content=BIG.encode(), headers=headers)
    again = await client.post(url, content=BIG.encode(), headers=headers)
    assert first.json() == again.json()


@pytest.mark.parametrize("preference", ["return=minimal", 'return="minimal"', "wait=1, Return=Minimal"])
async def test_return_minimal_leaves_out_what_passed_and_only_that(
    client: httpx.AsyncClient, preference: str
) -> None:
    prefer = {"Prefer": preference}
    passed = await client.post("/results", json={"tool_name": "t", "content": "x"}, headers=prefer)
    stored = await client.post("/results", json={"tool_name": "t", "content": BIG}, headers=prefer)
    assert "content" not in passed.json()
    assert "content" in stored.json()


async def test_a_preview_follows_the_message_after_a_blank_line(client: httpx.AsyncClient) -> None:
    kinds = [("head", "line 0", 200), ("head-tail", "line 999", 200), ("sketch", "plain text", 200)]
    for kind, held, most in kinds:
        told = (await post(client, BIG, policy={"preview": kind, "preview_bytes": most})).json()
        message, preview = told["content"].split("\n\n", 1)
        assert message.endswith("reads it by query, pattern, lines or extract.")
        assert held in preview
        assert len(preview.encode()) <= most
    told = (await post(client, BIG, policy={"preview": "sketch", "preview_bytes": 0})).json()
    assert told["content"].endswith("reads it by query, pattern, lines or extract.")


ROW = "{},x,{}\n"
STAMPED = "2026-11-20 08:{:02}:00 INFO request {}\n"


def repeated(line: str, times: int = 900) -> str:
    return "".join(line.format(number % 60, number) for number in range(times))


@pytest.mark.parametrize(
    ("content", "path", "said"),
    [
        # Blank lines before rows, and quotes past the beginning.
        (
            "\n\nid,city,total\n" + repeated(ROW),
            None,
            "CSV; one row of data:\nid: 0, city: x, total: 0\nquery: data(900 rows), ",
        ),
        (
            "id,city,total\n" + repeated(ROW, 4000) + '1,"a\nb",2\n',
            None,
            "CSV; one row of data:\nid: 0, city: x, total: 0\nquery: data(4,001 rows), ",
        ),
        (json.dumps([{}, {"a": 1}] * 900), None, "JSON 1,800 × {a?: 1}"),
        (
            "<html><title></title><h1>List of <b>prices</b></h1>" + "<p>one</p>" * 900,
            None,
            "page “List of prices”",
        ),
        (
            repeated("{:08x}  00 01  |{:9}|\n"),
            None,
            "table, names are ours; one row of data:\ncolumn_1: 00000000  00 01, column_2: 0",
        ),
        (
            json.dumps([[{"a": 1, "b": 2}] * 2] * 900),
            None,
            "JSON; one row of data:\n_list: 1, a: 1, b: 2",
        ),
        (
            json.dumps({"a.md": [{"content": "x, y. " * 50_000}]}),
            None,
            'JSON {"a.md": [{content: "x, y. ',
        ),
        (
            repeated(STAMPED) + "2026-11-20 09:01:00 INFO the next is at 2027-01-01 00:00:00\n",
            None,
            "log; first time 2026-11-20 08:00:00, last 2026-11-20 09:01:00; INFO 901\n901: ",
        ),
        (
            repeated("[INFO] step {} of {}\n") + "[INFO] Finished at: 2026-11-20T10:00:00Z\n",
            None,
            "log; INFO 901\n901: [INFO] Finished at",
        ),
        (
            repeated("<34>1 2026-11-20T08:{:02}:00Z web app {}\n"),
            None,
            "log; first time 2026-11-20T08:00:00, last 2026-11-20T08:59:00\n900: ",
        ),
        (
            "".join(f"{hour:02}:00:00 INFO {'x' * 700}\n" for hour in range(20)),
            None,
            "log; first time 00:00:00, last 19:00:00; INFO 20\n20: ",
        ),
        (
            ".:\n" + repeated("src/a{}.py\nb{}.md\n\n"),
            None,
            "list of paths; its last lines:\n2699: src/a59.py\n",
        ),
        ("\n" + 'console.log("a", b);\n' * 900, "src/a.ts", "text; its last lines:\n900: "),
        (
            repeated("src/a.py:{}:3: too long: {}\n"),
            "src/a.py",
            "plain text; its last lines:\n899: src/a.py:58:3: too long: 898\n",
        ),
        (
            "--- a/a.js\n+++ b/a.js\n@@ -1,3 +1,3 @@\n function f() {\n-  return 1\n }\n" * 300,
            "a.js",
            "diff\n1796: a.js",
        ),
    ],
)
async def test_each_statement_about_a_stored_result_is_true(
    client: httpx.AsyncClient, content: str, path: str | None, said: str
) -> None:
    answer = await post(client, content, tool_arguments={"file": path or ""}, policy={"max_bytes": 4000})
    sketch = answer.json()["content"].partition("\n\n")[2]
    assert sketch.startswith(said)
    assert sketch.endswith("lines(line, text)")


async def test_the_time_that_a_log_covers_is_that_of_its_lines(client: httpx.AsyncClient) -> None:
    line = '1.1.1.1 - - [20/Nov/2026:08:{:02}:00 +0000] "GET /?from=2020-01-01T00:00:00&id={} HTTP/1.1" 200\n'
    told = (await post(client, repeated(line))).json()
    asked = {"handle": told["handle"], "extract": "Which period does the log cover, from when to when?"}
    answer = (await client.post("/extract", json=asked)).json()["text"]
    assert "log, from 20/Nov/2026:08:00:00 to 20/Nov/2026:08:59:00 (0:59:00); " in answer


async def test_the_outline_of_a_source_file_follows_the_ending_of_its_path(client: httpx.AsyncClient) -> None:
    source = "".join(
        f"    {n}\tfunc Get{n}() int {{\n" if n % 3 == 0 else f"    {n}\t}}\n" for n in range(3, 2000)
    )
    told = await post(
        client,
        source,
        tool_arguments={"path": "src/get.go"},
        policy={"preview": "outline", "preview_bytes": 200},
    )
    lines = told.json()["content"].split("\n\n", 1)[1].splitlines()
    assert lines[0].startswith("Outline (go")
    assert lines[1:3] == ["func Get3 (line 3)", "func Get6 (line 6)"]


async def test_the_answer_has_the_documented_shape(client: httpx.AsyncClient) -> None:
    for content in ("small", BIG):
        msgspec.json.decode((await post(client, content)).content, type=ResultOut, strict=True)


async def test_arguments_are_kept_verbatim(client: httpx.AsyncClient) -> None:
    body = b'{"tool_name":"t","tool_arguments": {"b" : 1,"a":[ ]},"content":"%b"}' % (b"x" * 13_000)
    answer = await client.post("/results", content=body, headers={"Content-Type": "application/json"})
    info = (await client.get(f"/results/{answer.json()['handle']}")).json()
    assert info["tool_arguments"] == '{"b" : 1,"a":[ ]}'


async def test_a_retry_of_a_call_whose_result_was_deleted_keeps_it_again(client: httpx.AsyncClient) -> None:
    first = (await post(client, BIG, tool_call_id="call-1")).json()
    assert (await client.delete(f"/results/{first['handle']}")).status_code == 204
    again = (await post(client, BIG, tool_call_id="call-1")).json()
    assert again["handle"] == first["handle"]
    assert (await client.get(f"/results/{first['handle']}/content")).text == BIG
    assert len((await client.get("/accounting/entries?type=tool")).json()["entries"]) == 1


async def test_text_is_answered_only_to_who_would_rather_have_it(client: httpx.AsyncClient) -> None:
    for accept, media in [
        ("text/plain", "text/plain; charset=utf-8"),
        ("Text/Plain", "text/plain; charset=utf-8"),
        ("text/plain, application/json;q=0.5", "text/plain; charset=utf-8"),
        ("application/json, text/plain, */*", "application/json"),
        ("application/json, text/plain;q=0", "application/json"),
        ("*/*", "application/json"),
        ("", "application/json"),
    ]:
        sent = {"tool_name": "t", "content": "x"}
        answer = await client.post("/results", json=sent, headers={"Accept": accept})
        assert answer.headers["content-type"] == media


async def test_what_passes_as_json_is_answered_as_text_to_who_asks_for_it(client: httpx.AsyncClient) -> None:
    cases: list[tuple[object, str]] = [
        ("a \u00e9\r\nb", "a \u00e9\r\nb"),
        ("", ""),
        ("wide " * 5000, "wide " * 5000),
        ("wide " * 700_000, "wide " * 700_000),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
    ]
    for content, text in cases:
        sent = {"tool_name": "t", "content": content, "policy": {"max_bytes": 0}}
        for prefer in ("", "return=minimal"):
            answer = await client.post(
                "/results", json=sent, headers={"Accept": "text/plain", "Prefer": prefer}
            )
            assert (answer.status_code, answer.headers["spillgate-outcome"]) == (200, "pass")
            assert answer.text == text


async def test_a_refused_policy_changes_nothing_of_the_session(client: httpx.AsyncClient) -> None:
    await post(client, "x", session_id="s", context={"used_tokens": 1, "turn": 1})
    before = (await client.get("/sessions/s")).json()["budget"]
    wrong = {"context": {"used_tokens": 9, "turn": 2}, "policy": {"max_bytes": -1}}
    assert (await post(client, "x", session_id="s", **wrong)).status_code == 422
    assert (await client.get("/sessions/s")).json()["budget"] == before


async def test_the_headers_of_a_text_answer_say_what_its_json_says(client: httpx.AsyncClient) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "short"),
        ({"on_oversize": "truncate"}, "x" * 20_000),
        ({"on_oversize": "cap", "max_bytes": 1000}, "x" * 20_000),
        ({"max_rows": 3}, "row\n" * 10),
        ({}, "\ud800 lone"),
    ]
    names = ("outcome", "trigger", "handle", "complete", "truncated_bytes", "truncated_total", "durability")
    headers = {"Content-Type": "application/json"}
    for number, (policy, content) in enumerate(cases):
        sent = {"tool_name": "read_file", "tool_call_id": f"c{number}", "content": content, "policy": policy}
        body = json.dumps(sent).encode()
        told = (await client.post("/results", content=body, headers=headers)).json()
        answer = await client.post("/results", content=body, headers=headers | {"Accept": "text/plain"})
        expected = {f"spillgate-{name.replace('_', '-')}": told[name] for name in names}
        expected |= {f"spillgate-{name}": told["measure"][name] for name in ("bytes", "lines", "tokens")}
        expected["spillgate-budget-remaining"] = told["budget"]["remaining_tokens"]
        given = {name: json.dumps(value).strip('"') for name, value in expected.items() if value is not None}
        shown = {name: value for name, value in answer.headers.items() if name.startswith("spillgate-")}
        assert shown == given


async def test_an_unknown_model_draws_one_warning(serve: Serve, tmp_path: Path, caplog: Any) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[models.ours]\ncontext_window = 50000\n")
    async with serve(storage_url="memory:", policy_file=policy) as client:
        for model in ("gtp-4o", "gtp-4o", "gpt-4o", "openai/gpt-4o", "claude-sonnet-4-5", "ours"):
            assert (await post(client, "short", model=model)).status_code == 200
        await client.put("/sessions/s", json={"model": "gtp-4o"})
        await post(client, "short", session_id="s")
    warned = [record for record in caplog.records if "not known" in record.message]
    assert [record.fields for record in warned] == [{"model": "gtp-4o"}]
