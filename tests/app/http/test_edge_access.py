"""Admission: names, keys, sizes, what it holds of bodies, and what it adds to answers."""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from app.http.api.request_body import FREE_BYTES, BodyGate
from app.http.api.routing import RouteTable
from app.http.edge.access import Access
from app.http.edge.api_keys import ApiKeys
from app.http.edge.credentials import Credentials
from app.main import create_app
from domain.errors import BodyTooLarge, Overloaded
from tests.app.http.edge_support import KEY, keys_file, settings_of, state_of

pytestmark = pytest.mark.anyio

Message = dict[str, Any]
DISCONNECT: Message = {"type": "http.disconnect"}


def piece(body: bytes, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


ROUTES = RouteTable(create_app(settings_of()))


class Call:
    """One request through a access, before an app that reads all of it and answers how much that was."""

    def __init__(self, **given: Any) -> None:
        keys: Credentials | None = given.pop("keys", None)
        draining: bool = given.pop("draining", False)
        self.gate: BodyGate = given.pop("gate", BodyGate(100))
        self.refused: list[str] = []
        self.seen: list[str] = []
        self.tenant = ""
        self.most = 0
        self.answers: list[Message] = []
        app, settings = given.pop("app", self.app), settings_of(**given)
        state = state_of(settings, keys, self.gate)
        state.draining = draining
        self.access = Access(
            app,
            settings=settings,
            routes=ROUTES,
            state=state,
            refused=lambda error, method, path: self.refused.append(error.code),
        )

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.tenant = scope["tenant"]
        self.seen.append(scope["path"])
        size, more = 0, True
        while more:
            message = await receive()
            assert message["type"] == "http.request"
            size += len(message["body"])
            self.most = max(self.most, self.gate.in_flight)
            if scope["path"] == "/streamed":
                scope["request_body"].let_go(len(message["body"]))
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"%d" % size})

    async def __call__(
        self,
        method: str = "GET",
        path: str = "/hello",
        *headers: tuple[str, str],
        body: Iterable[Message] = (),
    ) -> tuple[int, dict[str, str], Any]:
        named = {name.lower() for name, _ in headers}
        sent = [*headers] if "host" in named else [("host", "localhost"), *headers]
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": path,
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent if value != "-"],
        }
        self.answers.clear()
        pieces = iter(list(body) or [piece(b"")])

        async def receive() -> Message:
            return next(pieces, DISCONNECT)

        async def send(message: Message) -> None:
            self.answers.append(message)

        await self.access(scope, receive, send)
        if not self.answers:
            return 0, {}, None
        top = {name.decode(): value.decode() for name, value in self.answers[0]["headers"]}
        return self.answers[0]["status"], top, json.loads(self.answers[1]["body"])


def chunked(size: int, count: int) -> list[Message]:
    return [piece(b"x" * size, more=True) for _ in range(count)] + [piece(b"")]


TE = ("transfer-encoding", "chunked")


async def test_headers_are_judged_before_the_app_sees_them() -> None:
    cases: list[tuple[list[tuple[str, str]], int, str | None]] = [
        ([], 200, None),
        ([("host", "evil.test")], 400, "host_not_allowed"),
        ([("host", "-")], 400, "host_not_allowed"),
        ([("host", "localhost"), ("host", "localhost")], 400, "malformed"),
        ([("origin", "http://localhost")], 200, None),
        ([("origin", "http://localhost:3000")], 403, "forbidden"),
        ([("origin", "http://evil.test")], 403, "forbidden"),
        ([("origin", "null")], 403, "forbidden"),
        ([("content-length", "1"), ("content-length", "1")], 400, "malformed"),
        ([("content-length", "1"), ("content-encoding", "gzip")], 415, "unsupported_media_type"),
        ([("content-length", "1"), ("content-encoding", "Identity")], 200, None),
        ([("transfer-encoding", "gzip, chunked")], 415, "unsupported_media_type"),
        ([("content-length", "+1")], 400, "malformed"),
        ([("content-length", "101")], 413, "body_too_large"),
        ([("content-length", "9" * 30)], 400, "malformed"),
    ]
    for headers, status, code in cases:
        call = Call(max_body_bytes=100)
        answered, _, body = await call("POST", "/results", *headers)
        assert answered == status
        assert bool(call.seen) == (code is None)
        if code is not None:
            assert (body["code"], body["stored"]) == (code, False)
            assert call.refused == [code]


PATHS = [
    "/",
    "/livez",
    "/readyz",
    "/healthz",
    "/docs",
    "/openapi.json",
    "/swagger/swagger-ui.css",
    "/ui",
    "/ui/main.js",
]
CLOSED = ["/metrics", "/results", "/swagger", "/livez/", "/livezz", "//livez", "/sessions"]


async def test_all_but_the_open_paths_needs_a_key(tmp_path: Path) -> None:
    for path in PATHS + CLOSED:
        for given in ["none", "wrong", "right", "basic"]:
            call = Call(keys=Credentials(ApiKeys(keys_file(tmp_path / "keys"))), allowed_hosts=("localhost",))
            value = {"none": "-", "wrong": "Bearer nope", "right": f"bearer {KEY}", "basic": f"Basic {KEY}"}[
                given
            ]
            status, headers, _ = await call("GET", path, ("authorization", value))
            assert status == (200 if path in PATHS or given == "right" else 401)
            if status == 401:
                assert headers["www-authenticate"] == "Bearer"
            else:
                assert call.tenant == ("default" if path in PATHS else "acme")


async def test_two_keys_at_once_are_refused(tmp_path: Path) -> None:
    call = Call(keys=Credentials(ApiKeys(keys_file(tmp_path / "keys"))))
    key = ("authorization", f"Bearer {KEY}")
    assert (await call("GET", "/hello", key, key))[0] == 400


async def test_a_call_has_one_name() -> None:
    names = [("idempotency-key", name) for name in ("one", "other")]
    assert (await Call()("POST", "/results", *names))[0] == 400


async def test_a_key_file_opens_every_host_but_http_1_1_must_name_one(tmp_path: Path) -> None:
    call = Call(api_keys_file=keys_file(tmp_path / "keys"))
    assert (await call("GET", "/hello", ("host", "gate.internal")))[0] == 200
    assert (await call("GET", "/hello", ("host", "-")))[0] == 400


async def test_while_draining_only_reads_are_answered() -> None:
    for method, path, status in [
        ("GET", "/results/x", 200),
        ("HEAD", "/results/x/content", 200),
        ("POST", "/check", 200),
        ("POST", "/results", 503),
        ("POST", "/extract", 503),
        ("PUT", "/sessions/x", 503),
        ("DELETE", "/results/x", 503),
    ]:
        call = Call(draining=True)
        answered, headers, body = await call(method, path)
        assert answered == status
        if status == 503:
            assert (body["code"], body["retryable"], headers["retry-after"]) == ("draining", True, "1")


async def test_a_body_of_just_the_cap_passes() -> None:
    call = Call(max_body_bytes=100)
    status, headers, read = await call("POST", "/results", TE, body=chunked(50, 2))
    assert (status, read) == (200, 100)
    assert "connection" not in headers


async def test_answers_are_not_cached_or_sniffed() -> None:
    call = Call()
    headers = (await call())[1]
    assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
    headers = (await call("GET", "/hello", ("host", "evil.test")))[1]
    assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")


async def test_the_gate_is_given_back_what_was_taken_however_a_request_ends() -> None:
    gate = BodyGate(1 << 20)
    call = Call(gate=gate, max_body_bytes=1 << 20)
    assert (await call("POST", "/results", TE, body=chunked(FREE_BYTES, 3)))[0] == 200
    assert call.most == 2 * FREE_BYTES
    assert gate.in_flight == 0
    await call("POST", "/results", TE, body=[*chunked(FREE_BYTES, 3)[:3], DISCONNECT])
    assert gate.in_flight == 0
    assert (await call("POST", "/results", TE, body=chunked(FREE_BYTES, 17)))[0] == 413
    assert gate.in_flight == 0


async def test_a_streamed_body_lets_go_of_what_was_written_down() -> None:
    call = Call(max_body_bytes=1 << 20)
    assert (await call("POST", "/streamed", TE, body=chunked(2 * FREE_BYTES, 4)))[0] == 200
    assert call.most == FREE_BYTES
    assert call.gate.in_flight == 0


async def test_an_empty_pool_refuses_at_once_and_small_bodies_still_pass() -> None:
    gate = BodyGate(100)
    gate.take(gate.capacity)
    call = Call(gate=gate, max_body_bytes=1 << 20)
    status, headers, body = await call("POST", "/results", TE, body=chunked(FREE_BYTES, 2))
    assert (status, body["code"], body["retryable"]) == (503, "overloaded", True)
    assert headers["retry-after"] == "1"
    assert (await call("POST", "/results", TE, body=chunked(FREE_BYTES, 1)))[0] == 200
    assert gate.in_flight == gate.capacity


def test_the_pool_is_at_least_256_mib_and_four_bodies() -> None:
    assert BodyGate(1).capacity == 256 << 20
    assert BodyGate(1 << 30).capacity == 4 << 30
    with pytest.raises(Overloaded):
        BodyGate(1).take((256 << 20) + 1)


async def test_a_request_cut_off_by_the_shutdown_is_told_so() -> None:
    async def forever(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(60)

    call = Call(app=forever, draining=True)
    task = asyncio.create_task(call("GET", "/slow"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    start, body = call.answers
    assert (start["status"], json.loads(body["body"])["code"]) == (503, "draining")


async def test_only_http_and_the_lifespan_pass() -> None:
    seen: list[str] = []
    sent: list[Message] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError

    access = Call(app=app).access
    await access({"type": "lifespan"}, receive, send)
    await access({"type": "websocket"}, receive, send)
    with pytest.raises(ValueError, match="Only HTTP"):
        await access({"type": "other"}, receive, send)
    assert seen == ["lifespan"]
    assert [message["type"] for message in sent] == ["websocket.close"]


async def test_what_fails_after_the_answer_began_is_left_to_the_server() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise BodyTooLarge("Too late.")

    with pytest.raises(BodyTooLarge):
        await Call(app=app)()
