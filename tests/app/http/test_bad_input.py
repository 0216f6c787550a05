"""Bad input: each kind gets its problem, nothing is echoed, nothing is half-stored."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain"}
ROUTES = ("/results", "/check", "/extract", "/sessions/s/usage")

MALFORMED: dict[str, tuple[bytes, int]] = {
    "empty": (b"", 400),
    "cut off": (b'{"tool_name": "t", "content": "MARK', 400),
    "NaN": (b'{"tool_name": "t", "content": "MARK", "latency_ms": NaN}', 400),
    "deep": (b'{"tool_name": "t", "content": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", 400),
    "deep objects": (b'{"tool_name": "t", "policy": ' + b'{"a":' * 200_000 + b"1" + b"}" * 200_001, 400),
    "an object as content": (b'{"tool_name": "t", "content": {"MARK": "' + b"x" * 20_000 + b'"}}', 422),
    "invalid UTF-8": (b'{"tool_name": "t", "content": "MARK\xff"}', 400),
    "an encoded surrogate": (b'{"tool_name": "t", "content": "MARK\xed\xa0\x80"}', 400),
    "a raw control character": (b'{"tool_name": "t", "content": "MARK\n"}', 400),
    "an array": (b'["MARK"]', 422),
    "a number": (b"7", 422),
    "an unknown field": (b'{"tool_name": "t", "content": "x", "MARK": 1}', 422),
    "a wrong type": (b'{"tool_name": 7, "content": "MARK"}', 422),
    "no tool name": (b'{"content": "MARK"}', 422),
    "an empty tool name": (b'{"tool_name": "", "content": "MARK"}', 422),
    "no content": (b'{"tool_name": "t"}', 422),
    "a number as content": (b'{"tool_name": "t", "content": 7}', 422),
    "a block without text": (b'{"tool_name": "t", "content": [{"type": "text"}]}', 422),
    "a block that is none": (b'{"tool_name": "t", "content": ["MARK"]}', 422),
    "half a token": (b'{"tool_name": "t", "content": "x", "context": {"used_tokens": 5.5}}', 422),
    "negative usage": (b'{"tool_name": "t", "content": "x", "context": {"used_tokens": -1}}', 422),
    "unknown usage": (b'{"tool_name": "t", "content": "x", "context": {"MARK": 1}}', 422),
    "arguments that are a list": (b'{"tool_name": "t", "content": "x", "tool_arguments": []}', 422),
    "an unknown policy key": (b'{"tool_name": "t", "content": "x", "policy": {"MARK": 1}}', 422),
    "a policy value": (b'{"tool_name": "t", "content": "x", "policy": {"max_bytes": "MARK"}}', 422),
    "a deep policy": (
        b'{"tool_name": "t", "content": "x", "policy": ' + b"[" * 3000 + b"]" * 3000 + b"}",
        400,
    ),
    "a long call id": (b'{"tool_name": "t", "content": "x", "tool_call_id": "%b"}' % (b"MARK" * 300), 422),
    "a path as session": (b'{"tool_name": "t", "content": "x", "session_id": "../MARK"}', 422),
}


def told(answer: httpx.Response, status: int) -> dict[str, Any]:
    asked = answer.request.method, str(answer.request.url), answer.request.headers.get("content-type")
    assert answer.status_code == status, (asked, answer.text)
    assert answer.headers["content-type"] == "application/problem+json", asked
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == status
    assert problem["detail"]
    assert "MARK" not in answer.text
    return problem


async def test_malformed_json_gets_its_problem(disk_client: httpx.AsyncClient, tmp_path: Path) -> None:
    for name, (body, status) in MALFORMED.items():
        answer = await disk_client.post("/results", content=body, headers=JSON)
        # How deep a parser goes differs between Pythons; what it does not refuse, a later check refuses.
        expected = (400, 422) if "deep" in name else (status,)
        assert answer.status_code in expected, name
        assert told(answer, answer.status_code)["stored"] is False
    assert not list((tmp_path / "state").rglob("*file-*"))
    assert (await disk_client.get("/accounting/entries")).json()["entries"] == []


async def test_malformed_json_gets_its_problem_on_every_route(client: httpx.AsyncClient) -> None:
    for route in ROUTES[1:]:
        for name in ("empty", "cut off", "NaN", "deep", "invalid UTF-8", "an array"):
            answer = await client.post(route, content=MALFORMED[name][0], headers=JSON)
            assert answer.status_code in (400, 422), name
            assert "HTTP/1.1" not in told(answer, answer.status_code)["detail"]
    surrogate = await client.put("/sessions/s", content=b'{"model": "\\ud800"}', headers=JSON)
    assert told(surrogate, 422)["detail"] == "The body holds a lone surrogate. Send valid Unicode."


async def test_a_wrong_query_gets_its_problem(client: httpx.AsyncClient) -> None:
    for query in (
        "tool_name=t&MARK=1",
        "tool_name=t&tool_name=MARK",
        "tool_name=t&used_tokens=MARK",
        "tool_name=t&policy=MARK",
        "tool_name=t&session_id=..%2FMARK",
    ):
        told(await client.post(f"/results?{query}", content=b"x" * 20_000, headers=TEXT), 422)


async def test_text_that_is_not_utf8_leaves_nothing_behind(
    disk_client: httpx.AsyncClient, tmp_path: Path
) -> None:
    for body in [b"MARK\xff" + b"x" * 20_000, b"x" * 2_000_000 + b"\xe2\x82"]:
        answer = await disk_client.post("/results?tool_name=t", content=body, headers=TEXT)
        assert told(answer, 400)["code"] == "invalid_utf8"
        drafts = (tmp_path / "state" / "drafts").iterdir()
        assert not [draft for draft in drafts if not draft.name.startswith("probe")]
        assert (await disk_client.get("/healthz")).json()["stored_bytes"] == 0


async def test_what_is_not_json_or_text_is_415(client: httpx.AsyncClient) -> None:
    for headers in (
        {"Content-Type": "application/octet-stream"},
        {"Content-Type": "text/plain; charset=latin-1"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
        {"Content-Type": "multipart/form-data"},
    ):
        told(await client.post("/results?tool_name=t", content=b"MARK", headers=headers), 415)


async def test_an_unknown_route_or_method_is_a_problem_too(client: httpx.AsyncClient) -> None:
    unknown = told(await client.get("/MARK"), 404)
    assert (unknown["code"], unknown["instance"]) == ("not_found", "")
    assert told(await client.patch("/results"), 405)["code"] == "method_not_allowed"
    told(await client.get("/sessions/..%2FMARK"), 404)


@given(body=st.binary(max_size=200), route=st.sampled_from(ROUTES), media=st.sampled_from([JSON, TEXT]))
async def test_no_bytes_whatever_are_answered_by_a_500(
    client: httpx.AsyncClient, body: bytes, route: str, media: dict[str, str]
) -> None:
    answer = await client.post(f"{route}?tool_name=t", content=body, headers=media)
    assert answer.status_code < 500


_TEXTS = st.text().map("MARK{}".format)
_JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | _TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | _TEXTS, inner, max_size=3)
    ),
    max_leaves=8,
)
_FIELDS = (
    "tool_name",
    "content",
    "session_id",
    "tool_call_id",
    "tool_arguments",
    "context",
    "policy",
    "model",
    "MARK",
)


@given(fields=st.dictionaries(st.sampled_from(_FIELDS), _JSON_VALUES))
async def test_no_json_whatever_is_answered_by_a_500_or_repeated_by_an_error(
    client: httpx.AsyncClient, fields: dict[str, Any]
) -> None:
    body = json.dumps({"tool_name": "t", "content": "x", **fields}).encode()
    answer = await client.post(
        "/results?MARK=1" if "MARK" in fields else "/results", content=body, headers=JSON
    )
    assert answer.status_code < 500
    if answer.status_code >= 400:
        assert "MARK" not in f"{answer.text} {answer.headers}"


NEAREST = "is not known here; the nearest known name is"
X = {"tool_name": "t", "content": "x"}
NAMED: list[tuple[str, Any, str]] = [
    ("POST /results", {"content": "x"}, "The body lacks the field `tool_name`."),
    ("POST /results", ["x"], "The body: expected an object, got a list."),
    ("POST /results", X | {"tool_name": 7}, "`tool_name`: expected a string, got a whole number."),
    ("POST /results", X | {"tool_nam": "t"}, f"The body: `tool_nam` {NEAREST} `tool_name`."),
    ("POST /results", {"tool_name": "t", "contnet": "x"}, f"The body: `contnet` {NEAREST} `content`."),
    (
        "POST /extract",
        {"handle": "h", "extract": "x", "mode": "MARK"},
        "body.mode: must be 'auto', 'full-chunked', 'read-grep', 'truncate' or 'retrieve'.",
    ),
    ("POST /results", X | {"context": {"turn": 1}}, "`context` lacks the field `used_tokens`."),
    (
        "POST /results",
        X | {"context": {"used_token": 1}},
        f"`context`: `used_token` {NEAREST} `used_tokens`.",
    ),
    (
        "POST /results",
        X | {"content": [{"type": "text", "text": "x"}, {"MARK": 1}]},
        "`content[1]` must be an object with a `type`, a string.",
    ),
    (
        "POST /results",
        X | {"content": [{"type": "text"}]},
        "`content[0]` is of type text and lacks the field `text`, a string.",
    ),
    (
        "POST /results",
        X | {"policy": {"tools": {"MARK": {"max_byte": 1}}}},
        f"`policy.tools`: `max_byte` {NEAREST} `max_bytes`.",
    ),
    ("PUT /sessions/s", {"contxt_window": 1}, f"body: `contxt_window` {NEAREST} `context_window`."),
    (
        "PUT /sessions/s",
        {"MARK": 1},
        "body: a name is not known here; known are context_window, buffer_tokens, max_output_tokens, model, "
        "policy, reads.",
    ),
    (
        "POST /extract",
        {"handle": "h", "extract": "x", "ranges": [{"start": 0, "ends": 1, "end": 2}]},
        f"body.ranges.0: `ends` {NEAREST} `end`.",
    ),
    ("POST /check", {"bytes": 1}, "body.tool_name: is missing."),
    ("GET /sessions?limt=3", None, f"In the query, `limt` {NEAREST} `limit`."),
    ("GET /sessions?limit=MARK", None, "query.limit: must be a whole number."),
    (f"GET /sessions?limit={'9' * 5000}", None, "query.limit: is too large a number."),
    (
        "POST /extract",
        {"handle": "h", "extract": "x", "ranges": [{"start": 0, "end": 1}] * 1001},
        "body.ranges: must have at most 1000 items after validation, not 1001.",
    ),
    ("GET /tools?final_turn=MARK", None, "query.final_turn: must be true or false."),
    ("PUT /sessions/s", None, "body: must be a JSON object."),
    ("PUT /sessions/s", ["MARK"], "body: must be a JSON object."),
    ("PUT /sessions/s", {"policy": "MARK"}, "body.policy: must be a JSON object."),
    ("POST /extract", {"handle": "h", "extract": " "}, "body.extract: must hold more than white space."),
    (
        "POST /results",
        X | {"tool_name": "a\nMARK"},
        "`tool_name`: expected a string without control characters.",
    ),
    (
        "POST /results",
        X | {"context": {"used_tokens": True}},
        "`context.used_tokens`: expected a whole number, got true or false.",
    ),
    (
        "POST /results",
        X | {"door": "MARK"},
        "`door` must be one of claude-code, claude-code-plugin, codex, copilot, cursor, gemini, opencode, "
        "pi, pipe.",
    ),
]


async def test_an_error_names_the_object_and_the_key(client: httpx.AsyncClient) -> None:
    for route, sent, detail in NAMED:
        problem = told(await client.request(*route.split(), json=sent), 422)
        assert problem["detail"] == detail
        if route == "POST /check":
            assert problem["errors"] == [{"field": "body.tool_name", "rule": "is missing"}]


async def test_an_error_names_the_query_parameter(client: httpx.AsyncClient) -> None:
    for query, detail in (
        ("tool_nam=t", "The query: `tool_nam` is not known here; the nearest known name is `tool_name`."),
        ("session_id=s", "The query lacks the field `tool_name`."),
        ("tool_name=t&context=%7B%22turn%22:1%7D", "`context` lacks the field `used_tokens`."),
        (
            "tool_name=t&used_tokens=1&context=%7B%22used_tokens%22:2%7D",
            "Send `context`, or `used_tokens` and `turn`, not both.",
        ),
        ("tool_name=t&context=MARK", "In the query, `context` must be well-formed JSON."),
        ("tool_name=t&is_error=MARK", "`is_error`: expected true or false, got a string."),
    ):
        answer = await client.post(f"/results?{query}", content=b"x", headers=TEXT)
        assert told(answer, 422)["detail"] == detail


async def test_every_page_and_route_refuses_an_unknown_parameter_and_one_sent_twice(
    client: httpx.AsyncClient,
) -> None:
    for path in ("/", "/docs", "/docs/errors", "/openapi.json", "/ui", "/livez", "/metrics"):
        detail = told(await client.get(f"{path}?MARK=1"), 422)["detail"]
        assert detail == "This route takes no query parameters. Take them out of the URL."
    for path in ("accounting/entries?MARK=1", "tools?session=MARK", "results/x/lines?start=MARK"):
        told(await client.get(f"/{path}"), 422)
    twice = await client.get("/accounting/entries?tool_name=a&tool_name=b")
    assert told(twice, 422)["detail"] == "A query parameter is given twice. Send each once."


async def test_a_json_body_takes_no_query_parameters(client: httpx.AsyncClient) -> None:
    for query in ["MARK=1", "tool_name=t"]:
        answer = await client.post(f"/results?{query}", json={"tool_name": "t", "content": "x"})
        assert "put the fields into the body" in told(answer, 422)["detail"]
        assert (await client.get("/accounting/entries")).json()["entries"] == []


async def test_a_body_of_another_type_is_415_on_every_route(client: httpx.AsyncClient) -> None:
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/check", {"tool_name": "t", "bytes": 1}),
        ("POST", "/extract", {"handle": "h", "extract": "x"}),
        ("PUT", "/sessions/s", {"model": "gpt-4o"}),
        ("POST", "/sessions/s/usage", {"used_tokens": 1}),
    ]
    for method, url, sent in cases:
        body = json.dumps(sent).encode()
        for media in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            told(await client.request(method, url, content=body, headers={"Content-Type": media}), 415)
        for headers in ({}, JSON, {"Content-Type": "application/problem+json; charset=utf-8"}):
            answer = await client.request(method, url, content=body, headers=headers)
            assert answer.status_code == (404 if url == "/extract" else 200)


async def test_allow_names_the_methods_of_the_path(client: httpx.AsyncClient) -> None:
    for method, path, allowed in (
        ("PATCH", "/results", "GET, POST"),
        ("DELETE", "/sessions", "GET"),
        ("PATCH", "/sessions/s", "DELETE, GET, PUT"),
        ("POST", "/results/session-s/file-1/content", "GET, HEAD"),
        ("DELETE", "/results/session-s/file-1/lines", "GET"),
        ("DELETE", "/results/session-s/file-1/query", "GET"),
        ("DELETE", "/results/x/content", "GET, HEAD"),
        ("POST", "/results/session-s/file-1", "DELETE, GET"),
        ("POST", "/swagger/swagger-ui.css", "GET, HEAD"),
    ):
        answer = await client.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed), path


async def test_only_a_route_is_a_path_below_a_handle(client: httpx.AsyncClient) -> None:
    for path, code in (
        ("file-1", "result_not_found"),
        ("", "result_not_found"),
        ("file-1/other", "not_found"),
    ):
        assert told(await client.get(f"/results/session-s/{path}"), 404)["code"] == code, path


async def test_too_many_blocks_are_refused(client: httpx.AsyncClient) -> None:
    blocks = [{"type": "text", "text": "x"}] * 10_001
    told(await client.post("/results", json={"tool_name": "t", "content": blocks}), 422)
