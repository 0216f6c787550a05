"""Errors as problem+json: status, headers, `stored`, and never a piece of the input."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.problems import problem
from domain import errors
from tests.app.edge_support import edge_app, settings_of

pytestmark = pytest.mark.anyio

MARKER = "S3cretMarker"

STATUSES = {
    400: "bad_pattern host_not_allowed invalid_utf8 malformed",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found result_not_found session_not_found",
    405: "method_not_allowed",
    408: "body_timeout header_timeout",
    409: "session_changed",
    410: "result_expired session_ended",
    413: "body_too_large",
    415: "unsupported_media_type",
    416: "range_not_satisfiable",
    422: "idempotency_key_reused invalid_field invalid_policy not_queryable query_too_costly",
    429: "spend_reached too_many_requests too_many_sessions",
    431: "headers_too_large",
    500: "internal_error",
    502: "incomplete",
    503: "draining overloaded store_unavailable",
    507: "store_full tenant_full",
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


APP = edge_app(settings_of())


def client_of(raising: Exception | None = None) -> httpx.AsyncClient:
    app = APP if raising is None else edge_app(settings_of(), raising=raising)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


def made(kind: type[errors.SpillgateError]) -> errors.SpillgateError:
    return kind("Do this.", 7) if issubclass(kind, errors.RangeNotSatisfiable) else kind("Do this.")


def test_every_error_has_a_status_a_title_and_advice() -> None:
    table: dict[int, list[str]] = {}
    for kind in errors.every_error():
        answer = problem(made(kind), "/results/{handle}")
        body = json.loads(answer.body)
        assert answer.status_code == body["status"]
        assert body["type"] == f"/docs/errors#{kind.code}"
        assert (body["code"], body["retryable"]) == (kind.code, kind.retryable)
        assert body["detail"] == "Do this."
        assert body["instance"] == "/results/{handle}"
        assert "stored" not in body
        assert answer.media_type == "application/problem+json"
        assert "title" in vars(kind) or "title" in vars(kind.__base__ or kind)
        assert kind.advice.endswith(".")
        table.setdefault(answer.status_code, []).append(kind.code)
    assert {status: " ".join(sorted(codes)) for status, codes in table.items()} == STATUSES


@pytest.mark.parametrize(
    ("error", "name", "value"),
    [
        (errors.Unauthorized("."), "www-authenticate", "Bearer"),
        (errors.RangeNotSatisfiable(".", 42), "content-range", "bytes */42"),
        (errors.Overloaded("."), "retry-after", "1"),
        (errors.Draining("."), "retry-after", "1"),
        (errors.StoreUnavailable("."), "retry-after", "1"),
    ],
)
def test_some_statuses_carry_a_header(error: errors.SpillgateError, name: str, value: str) -> None:
    assert problem(error, "").headers[name] == value


async def test_the_instance_is_the_routes_template() -> None:
    async with client_of(errors.ResultNotFound("No such result.")) as client:
        answer = await client.get(f"/results/session-{MARKER}/file-1/content")
    assert answer.status_code == 404
    assert answer.json()["instance"] == "/results/{handle}/content"
    assert MARKER not in answer.text


async def test_a_failed_write_says_that_nothing_was_stored() -> None:
    async with client_of() as client:
        large = await client.post("/results", content=b"", headers={"Content-Length": "999999999999"})
        typed = await client.post("/results", content=b"x", headers={"Content-Encoding": "gzip"})
        other = await client.post("/items", json={"count": 1})
    assert (large.status_code, large.json()["stored"]) == (413, False)
    assert (typed.status_code, typed.json()["stored"]) == (415, False)
    assert "stored" not in other.json()


async def test_an_unknown_route_and_a_wrong_method_are_problems() -> None:
    async with client_of() as client:
        unknown = await client.get(f"/{MARKER}")
        wrong = await client.delete("/hello")
    assert (unknown.status_code, unknown.json()["code"], unknown.json()["instance"]) == (404, "not_found", "")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "GET"


async def test_a_failure_of_ours_is_a_problem_without_its_message() -> None:
    async with client_of(RuntimeError(MARKER)) as client:
        answer = await client.get("/results/x/content")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert MARKER not in answer.text


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b'{"count": ', 400, "malformed"),
        (b'{"count": NaN}', 422, "invalid_field"),
        (b'{"count": 5, "when": Infinity}', 200, None),
        (b'{"count": 5, "label": "\\ud800"}', 422, "invalid_field"),
        (b'{"count": "\xff"}', 400, "malformed"),
        (b"[" * 15_000, 400, "malformed"),
        (b"[" * 100_000, 422, "invalid_field"),
        (b"", 422, "invalid_field"),
    ],
)
async def test_what_the_framework_answers_500_to_is_a_problem(
    content: bytes, status: int, code: str | None
) -> None:
    async with client_of() as client:
        answer = await client.post("/items", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    if code is not None:
        assert answer.json()["code"] == code


async def test_a_wrong_field_is_named_with_its_rule() -> None:
    async with client_of() as client:
        answer = await client.post("/items?limit=many", json={"count": 1, MARKER: 2})
    body = answer.json()
    assert body["detail"].startswith("query.limit: Input should be a valid integer")
    assert {"field": "body.count", "rule": "Input should be greater than 3"} in body["errors"]
    assert MARKER not in answer.text


NOISE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text().map(lambda text: MARKER + text),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.just(MARKER), inner, max_size=2),
    max_leaves=5,
)


@given(
    body=st.dictionaries(st.sampled_from(["count", "label", "when", "kind", MARKER]), NOISE) | NOISE,
    query=st.sampled_from(["", f"?limit={MARKER}", f"?{MARKER}=1"]),
)
async def test_an_error_never_repeats_the_input(body: Any, query: str) -> None:
    async with client_of() as client:
        sent = json.dumps(body).encode()
        answer = await client.post(
            f"/items{query}", content=sent, headers={"Content-Type": "application/json"}
        )
    assert answer.status_code in (200, 400, 422)
    assert MARKER not in answer.text
    assert all(MARKER not in value for value in answer.headers.values())
