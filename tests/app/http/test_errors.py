"""Errors as problem+json: status, headers, `stored`, and never a piece of the input."""

import json

import httpx
import pytest

from app.http.api.problems import problem
from domain import errors
from tests.app.http.edge_support import edge_app, settings_of

pytestmark = pytest.mark.anyio

MARKER = "S3cretMarker"

STATUSES = {
    400: "bad_pattern host_not_allowed invalid_utf8 malformed",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found result_not_found session_not_found tenant_not_found",
    405: "method_not_allowed",
    408: "body_timeout header_timeout",
    409: "session_changed",
    410: "result_expired session_ended",
    413: "body_too_large",
    415: "unsupported_media_type",
    416: "range_not_satisfiable",
    422: "bad_query idempotency_key_reused invalid_field invalid_policy not_queryable query_too_costly",
    429: "spend_reached too_many_requests too_many_sessions",
    431: "headers_too_large",
    500: "internal_error",
    502: "incomplete",
    503: "draining issuer_unavailable overloaded store_unavailable",
    507: "store_full tenant_full",
}


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


async def test_a_failure_of_ours_is_a_problem_without_its_message() -> None:
    async with client_of(RuntimeError(MARKER)) as client:
        answer = await client.get("/results/x/content")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert MARKER not in answer.text
    # The server closes the connection then: another request on it would be lost.
    assert answer.headers["connection"] == "close"
