"""Hosts that are answered, and web pages: those of another origin change nothing, on no route."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.http.api.routing import RouteTable, traits_of
from app.http.edge.sources import check_host, check_page
from app.main import create_app
from domain.errors import Forbidden, HostNotAllowed
from tests.app.http.edge_support import KEY, keys_file, settings_of
from tests.conftest import Serve
from tests.faults.service_process import Services

pytestmark = pytest.mark.anyio

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def test_a_loopback_host_is_answered() -> None:
    for host in [
        "localhost",
        "LOCALHOST:8377",
        "localhost.",
        "127.0.0.1:1",
        "[::1]:8377",
        "[::1]",
        "127.0.0.1:",
    ]:
        check_host(host, LOOPBACK)


OTHERS = [None, "", ".", "[]", "::1", "[::1", "evil.test", "localhost.evil.test", "localhost:80:80"]
ODD = [
    "localhost@evil.test",
    "localhost/",
    "localhost:port",
    "local\thost",
    "xn--localhost",
    "localhost,evil",
]


def test_another_host_is_not() -> None:
    for host in [*OTHERS, *ODD]:
        with pytest.raises(HostNotAllowed):
            check_host(host, LOOPBACK)


def test_without_a_list_every_host_is_answered() -> None:
    check_host(None, None)
    check_host("anything", None)


def test_a_list_may_be_written_with_ports_case_and_brackets() -> None:
    check_host("gate.test:9", ("Gate.Test:8377",))
    check_host("[fe80::1]", ("[FE80::1]",))


def may_call(origin: str, host: str, *allowed: str) -> bool:
    headers = {b"origin": origin.encode(), b"host": host.encode()}
    try:
        check_page(headers, allowed, is_any_origin=False, changes=True)
    except Forbidden:
        return False
    return True


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost:8377", "LOCALHOST:8377"),
        ("http://[::1]:8377", "[::1]:8377"),
        ("https://gate.test", "gate.test"),
        ("https://gate.test", "gate.test:443"),
        ("http://gate.test:80", "gate.test"),
    ],
)
def test_a_page_of_the_service_itself_may_call(origin: str, host: str) -> None:
    assert may_call(origin, host)


@pytest.mark.parametrize(
    "origin",
    [
        *("http://localhost", "http://localhost:3000", "https://localhost", "http://127.0.0.1:8377"),
        *(
            "null",
            "",
            "http://evil.test",
            "localhost:8377",
            "http://",
            "http://localhost:8377/x",
            "http://a b",
        ),
        *("http://localhost:8377.evil.test", "http://localhost:8377@evil.test", "vscode://localhost"),
    ],
)
def test_a_page_of_another_origin_may_not(origin: str) -> None:
    assert not may_call(origin, "localhost:8377", *LOOPBACK)


def test_an_origin_may_call_if_it_is_listed_with_its_port() -> None:
    for origin in ("http://localhost:3000", "https://localhost:3000"):
        assert may_call(origin, "localhost:8377", "localhost:3000")
    assert may_call("https://app.test", "localhost:8377", "localhost", "app.test:443")
    assert not may_call("https://app.test", "localhost:8377", "app.test")
    assert not may_call("http://localhost:3001", "localhost:8377", "localhost:3000")


ROUTES = RouteTable(create_app(settings_of()))


def changing() -> Iterator[tuple[str, str]]:
    """Method and path of every route that may change something, with something for each parameter."""
    for route in ROUTES.documented:
        for method in route.methods or ():
            if traits_of(route).changes(method):
                yield method, re.sub(r"\{[^}]+\}", "x", route.path)


CHANGING = sorted(changing())


def test_the_list_of_routes_is_not_empty() -> None:
    methods = {method for method, _ in CHANGING}
    assert {"POST", "PUT", "DELETE", "GET"} <= methods
    assert {("POST", "/results"), ("POST", "/mcp"), ("GET", "/v1/retrieve/x")} <= set(CHANGING)


REFUSED = [
    {"Origin": "http://localhost:3000"},
    {"Origin": "http://127.0.0.1:8377"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": "http://localhost:8377", "Sec-Fetch-Site": "same-site"},
]
TAKEN: list[dict[str, str]] = [
    {},
    {"Origin": "http://localhost:8377", "Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "http://localhost:4000", "Sec-Fetch-Site": "same-site"},
]


@pytest.mark.parametrize(("method", "path"), CHANGING)
async def test_pages_of_other_origins_are_refused_on_every_route_that_changes_something(
    serve: Serve, method: str, path: str
) -> None:
    async with serve(storage_url="memory:", allowed_hosts=("localhost", "localhost:4000")) as client:
        for headers in REFUSED:
            answer = await client.request(method, path, headers=headers, content=b"{}")
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), headers
        typed = {"Content-Type": "application/json"}
        for headers in TAKEN:
            answer = await client.request(method, path, headers=headers | typed, content=b"{}")
            assert answer.status_code not in (403, 415), headers
        for headers in [*TAKEN[1:], {"Sec-Fetch-Mode": "no-cors"}]:
            answer = await client.request(method, path, headers=headers, content=b"{}")
            assert answer.status_code == 415, headers
        assert (await client.request(method, path, content=b"{}")).status_code != 415


async def test_pages_of_other_sites_are_refused_with_keys_too(serve: Serve, tmp_path: Path) -> None:
    async with serve(storage_url="memory:", api_keys_file=keys_file(tmp_path / "keys")) as client:
        client.headers["Authorization"] = f"Bearer {KEY}"
        body = {"tool_name": "t", "content": "x"}
        for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200)):
            headers = {"Origin": "https://gate.test", "Sec-Fetch-Site": site}
            assert (await client.post("/results", json=body, headers=headers)).status_code == status


async def test_the_port_for_metrics_checks_the_host(services: Services, tmp_path: Path) -> None:
    service = await services.start(tmp_path / "state", metrics_address="127.0.0.1:0")
    listening = next(line for line in service.lines() if line["event"] == "listening")
    for host, status in (("localhost", 200), ("evil.test", 400)):
        answer = httpx.get(listening["metrics"], headers={"Host": host}, trust_env=False)
        assert answer.status_code == status
    assert await service.stop() == 0
