"""What the code leans on of other libraries that is not public: each has an upper bound in pyproject.toml.

A release beyond a bound may change what is listed here. Before a bound is raised, these tests and those of
the file at hand must pass with the new release.
"""

import asyncio
import tomllib
from typing import Any

import httpx
import pytest
import re2
import uvicorn
from fastapi import Body, FastAPI, Request
from fastapi.routing import APIRoute
from packaging.requirements import Requirement
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from app.http.api.request_body import write_whole
from app.http.api.routing import parameter_names
from tests.faults.forking import ROOT

pytestmark = pytest.mark.anyio

LEANED_ON = {
    "uvicorn": "app/http/edge/deadlines.py, app/http/api/request_body.py, app/http/edge/server.py",
    "google-re2": "content/patterns.py",
    "redis": "storage/redis/connection.py",
    "fastapi": "app/http/api/routing.py, app/http/api/problems.py",
}
"""The files that lean on each."""


@pytest.mark.parametrize("name", LEANED_ON)
def test_what_is_leaned_on_has_an_upper_bound(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = {one.name: one.specifier for one in map(Requirement, project["dependencies"])}
    assert any(bound.operator == "<" for bound in bounds[name]), bounds[name]
    for path in LEANED_ON[name].split(", "):
        module = name.removeprefix("google-")
        assert f"{module}" in (ROOT / path).read_text(), path


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass


async def test_uvicorn_tells_what_the_protocol_keeps_count_of() -> None:
    """deadlines: the callbacks, `cycle`, `pipeline`, `flow`, `connections`, `_start_asgi_task` and what
    `on_response_complete` counts. Of `cycle`: `disconnected`, `message_event`, `transport`."""
    started: list[Any] = []

    class Protocol(HttpToolsProtocol):
        def _start_asgi_task(self, cycle: Any, app: Any) -> None:
            started.append(cycle)

    protocol = Protocol(
        uvicorn.Config(lambda *_: None, log_config=None), ServerState(), {}, asyncio.get_running_loop()
    )
    transport = _Transport()
    assert (protocol.server_state.total_requests, protocol.timeout_keep_alive) == (0, 5)
    protocol.connection_made(transport)
    assert protocol in protocol.connections
    head = b"POST /a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"
    protocol.data_received(head)
    cycle = protocol.cycle
    assert started == [cycle]
    state = (cycle.waiting_for_100_continue, cycle.keep_alive, cycle.disconnected, protocol.flow.write_paused)
    assert state == (True, True, False, False)
    assert (cycle.scope["path"], cycle.response_started, cycle.response_complete) == ("/a", False, False)
    protocol.data_received(b"x" + head.replace(b"/a", b"/b"))
    assert (cycle.body, cycle.more_body) == (b"x", False)
    assert [one for one, _ in protocol.pipeline] == [protocol.cycle]
    assert protocol.flow.read_paused
    cycle.disconnected = True
    cycle.message_event.set()
    assert await cycle.receive() == {"type": "http.disconnect"}
    await cycle.send({"type": "http.response.start", "status": 200})
    assert transport.written == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert (protocol.url, protocol.parser.get_method()) == (b"/b", b"POST")
    assert (b"content-length", b"1") in protocol.headers


@pytest.mark.parametrize("state", ["", "slow", "last", "gone"])
async def test_a_whole_answer_is_written_at_once_or_left_to_uvicorn(state: str) -> None:
    """request_body: STATUS_LINE. Of `cycle` what it sets and reads, `default_headers` and `on_response`."""
    config = uvicorn.Config(lambda *_: None, log_config=None)
    protocol = HttpToolsProtocol(config, ServerState(), {}, asyncio.get_running_loop())
    transport = _Transport()
    protocol.connection_made(transport)
    end = "close" if state == "last" else "keep-alive"
    protocol.data_received(f"GET /a HTTP/1.1\r\nConnection: {end}\r\n\r\n".encode())
    cycle = protocol.cycle
    cycle.default_headers = [(b"date", b"today")]
    protocol.flow.write_paused, cycle.disconnected = state == "slow", state == "gone"
    is_written = write_whole(cycle, 201, [(b"content-length", b"2"), (b"x-one", b"1")], b"{}")
    assert is_written is (state == "") is cycle.response_started is cycle.response_complete
    assert protocol.server_state.total_requests == is_written
    if is_written:
        whole = b"HTTP/1.1 201 Created\r\ndate: today\r\ncontent-length: 2\r\nx-one: 1\r\n\r\n{}"
        assert transport.written == whole
        assert await cycle.receive() == {"type": "http.disconnect"}
    for task in list(protocol.tasks):
        task.cancel()


def test_re2_has_the_functions_below_its_module() -> None:
    """patterns: offsets in bytes, without the copies that the module's own functions make."""
    options = re2._re2.RE2.Options()
    options.max_mem, options.never_capture, options.never_nl = 1 << 20, True, True
    options.log_errors, options.case_sensitive = False, False
    compiled = re2._re2.RE2(b"B", options)
    assert compiled.ok()
    assert compiled.Match(re2._re2.RE2.Anchor.UNANCHORED, b"abc", 0, 3)[0] == (1, 2)


async def test_fastapi_takes_the_json_of_a_body_from_the_request() -> None:
    """routing: `JsonRequest` decodes for it. problems: what a route declares is in `dependant` and
    `body_field`."""

    class Decoding(Request):
        async def json(self) -> Any:
            return {"size": 7}

    class Route(APIRoute):
        def get_route_handler(self) -> Any:
            handle = super().get_route_handler()

            async def handled(request: Request) -> Any:
                return await handle(Decoding(request.scope, request.receive))

            return handled

    app = FastAPI()
    app.router.route_class = Route

    @app.post("/{name}")
    async def post(name: str, page: int, size: int = Body(embed=True)) -> int:
        return size

    (route,) = (one for one in app.routes if isinstance(one, APIRoute))
    assert parameter_names(route.dependant) == ["name", "page"]
    assert route.body_field is not None
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://a") as client:
        assert (await client.post("/a?page=1", json={})).json() == 7
