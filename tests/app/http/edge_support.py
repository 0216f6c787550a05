"""A small app behind `Access`, served by our server on a free port, and clients that misbehave."""

import asyncio
import contextlib
import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
from fastapi import FastAPI, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from app.http.api.problems import install
from app.http.api.request_body import BodyGate, cancel_on_disconnect
from app.http.api.routing import RouteTable, Traits
from app.http.edge import server as serving
from app.http.edge.access import Access
from app.http.edge.api_keys import ApiKeys
from app.http.edge.credentials import Credentials
from app.http.edge.sockets import open_sockets
from app.http.edge.state import ServiceState
from app.operations.logs import RequestLog
from app.operations.supervisor import Supervisor
from app.settings import Settings
from domain.errors import SpillgateError
from domain.quotas import unbounded
from tests import conftest

KEY = "sk-edge-0123456789"


def settings_of(**given: Any) -> Settings:
    return conftest.settings_of(**{"storage_url": "memory:", "port": 0, **given})


def keys_file(path: Path, tenant: str = "acme", key: str = KEY) -> Path:
    path.write_text(f"# keys\n\n{tenant}:{hashlib.sha256(key.encode()).hexdigest()}\n")
    return path


def state_of(settings: Settings, keys: Credentials | None, gate: BodyGate) -> Any:
    """Of a service without a runtime, quotas and an audit."""
    state: Any = ServiceState(settings)
    state.runtime = SimpleNamespace(observer=RequestLog(), quota_of=unbounded)
    state.supervisor = Supervisor()
    state.keys, state.gate = keys, gate
    return state


class EdgeApp(FastAPI):
    """Behind `Access`, as the service itself is."""

    def __init__(
        self, settings: Settings, keys: ApiKeys | None, gate: BodyGate, raising: Exception | None
    ) -> None:
        super().__init__(docs_url=None, redirect_slashes=False)
        self.state = state_of(settings, None if keys is None else Credentials(keys), gate)
        self.state.events = []
        self.state.codes = []
        self.state.raising = raising
        routes = RouteTable(self)
        install(self, routes, self.refused)
        self._access = Access(
            super().__call__, settings=settings, routes=routes, state=self.state, refused=self.refused
        )

    def refused(self, error: SpillgateError, method: str, path: str) -> None:
        self.state.codes.append(error.code)
        self.state.runtime.observer.refused(error, method, carries_result=False)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._access(scope, receive, send)


def edge_app(
    settings: Settings,
    keys: ApiKeys | None = None,
    gate: BodyGate | None = None,
    raising: Exception | None = None,
) -> FastAPI:
    app = EdgeApp(settings, keys, gate or BodyGate(settings.max_body_bytes), raising)
    _add_routes(app)
    return app


def _add_routes(app: FastAPI) -> None:
    for path in ("/hello", "/livez", "/metrics"):
        app.add_api_route(path, _hello, methods=["GET"])
    app.add_api_route("/results", _results, methods=["POST"])
    app.add_api_route("/let_go", _let_go, methods=["POST"])
    app.add_api_route("/held", _held, methods=["POST"])
    app.add_api_route("/early", _early, methods=["POST"])
    app.add_api_route("/results/{handle:path}/content", _fail, methods=["GET"])
    app.add_api_route("/big", _big, methods=["GET"])
    app.add_api_route("/slow", _slow, methods=["GET"])
    app.add_api_route("/costly", _costly, methods=["GET"])


async def _hello(request: Request) -> Response:
    return PlainTextResponse(request.scope["tenant"])


@Traits(carries_results=True)
async def _results(request: Request) -> Response:
    events: list[str] = request.app.state.events
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
    except Exception as error:
        events.append(type(error).__name__)
        raise
    events.append(f"read {size}")
    return PlainTextResponse(str(size))


@Traits(carries_results=True)
async def _let_go(request: Request) -> Response:
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        request.scope["request_body"].let_go(len(chunk))
    return PlainTextResponse(str(size))


@Traits(carries_results=True)
async def _held(request: Request) -> Response:
    await request.body()
    return PlainTextResponse(str(request.app.state.gate.in_flight))


async def _early() -> Response:
    return PlainTextResponse("early")


async def _fail(handle: str, request: Request) -> Response:
    error: Exception = request.app.state.raising
    raise error


async def _big() -> Response:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b"x" * 65536

    return StreamingResponse(chunks())


async def _slow(request: Request, seconds: float = 1.0) -> Response:
    request.app.state.events.append("slow began")
    await asyncio.sleep(seconds)
    return PlainTextResponse("slow but whole")


async def _costly(request: Request) -> Response:
    events: list[str] = request.app.state.events
    await request.body()

    async def work() -> None:
        events.append("work began")
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            events.append("work cancelled")
            raise

    await cancel_on_disconnect(request, work())
    return PlainTextResponse("done")


class Served:
    """A running server's address and its app."""

    def __init__(self, app: FastAPI, server: serving.Server, host: str, port: int) -> None:
        self.app = app
        self.server = server
        self.host = host
        self.port = port
        self.url = f"http://{host}:{port}"

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=60)

    def talk(self, *pieces: bytes) -> bytes:
        """Sends the pieces, answers all that comes until the server closes."""
        with self.connect() as sock:
            for piece in pieces:
                sock.sendall(piece)
            return read_all(sock)

    def hello(self) -> float:
        """Seconds that an ordinary request takes."""
        began = time.monotonic()
        assert httpx.get(f"{self.url}/hello", trust_env=False).status_code == 200
        return time.monotonic() - began


@contextlib.contextmanager
def served(app: FastAPI, settings: Settings | None = None) -> Iterator[Served]:
    """In a thread of its own; signals are tested with processes."""
    settings = settings or settings_of()
    with open_sockets(settings) as sockets:
        server = serving.Server(serving._config(app, 4096, app.refused), app, settings, sockets)
        thread = threading.Thread(target=server.run, kwargs={"sockets": sockets.listening})
        thread.start()
        try:
            wait_for(lambda: server.started)
            yield Served(app, server, *sockets.listening[0].getsockname()[:2])
        finally:
            server.should_exit = True
            thread.join(serving.GRACEFUL_SECONDS + 10)
            assert not thread.is_alive()


def wait_for(claim: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)


def read_all(sock: socket.socket) -> bytes:
    data = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while piece := sock.recv(65536):
            data += piece
    return bytes(data)


def read_answer(sock: socket.socket) -> bytes:
    """One answer with a Content-Length."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += sock.recv(1)
    length = int(data.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while length:
        piece = sock.recv(length)
        assert piece, "closed within an answer"
        data += piece
        length -= len(piece)
    return data


def head(method: str = "GET", path: str = "/hello", *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def problem_of(answer: bytes) -> dict[str, Any]:
    """The last answer's problem, checked for its shape."""
    last = list(re.finditer(rb"HTTP/1\.1 \d{3} ", answer))[-1].start()
    top, _, body = answer[last:].partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in top.lower()
    found: dict[str, Any] = json.loads(body)
    assert {"type", "title", "status", "detail", "instance", "code", "retryable"} <= found.keys()
    assert top.startswith(f"HTTP/1.1 {found['status']} ".encode())
    return found
