"""`spillgate service`: starts, ends and looks at the user's own service."""

import re
import socket
from pathlib import Path

import pytest

from tests import plain_http
from tests.beside.test_embedded import User, handle_in, user  # noqa: F401
from tests.faults.service_process import SERVE, Services
from tests.redis_server import free_port


def test_the_status_says_whether_results_are_governed_now(user: User) -> None:  # noqa: F811
    user.run("hook", "install", "claude-code")
    status = user.run("hook", "status", "claude-code")
    assert (status.returncode, "the next result that a hook or relay gets starts one" in status.stdout) == (
        0,
        True,
    )
    status = user.run("hook", "status", "claude-code", auto_start="false")
    assert (status.returncode, "Results are not governed now." in status.stdout) == (1, True)
    assert not (user.state / "embedded").exists()
    started = user.run("service", "start", port=str(free_port()))
    assert started.returncode == 0, started.stderr
    assert (
        "Results are governed now, by the service at unix:"
        in user.run("hook", "status", "claude-code").stdout
    )
    assert user.run("service", "status").returncode == 0
    assert user.run("service", "stop").stdout == "Stopped.\n"
    assert user.run("service", "status").returncode == 1
    assert user.run("hook", "status", "gemini").returncode == 1


def test_a_person_has_the_service_of_the_hooks_listen_at_a_port_too(user: User) -> None:  # noqa: F811
    """One that listens on its socket alone gives way, and what it has stored is found again."""
    handle = handle_in(user.hook())
    first, _ = user.service()
    port = str(free_port())
    for _ in range(2):
        started = user.run("service", "start", port=port, auto_start="false")
        url = f"http://127.0.0.1:{port}"
        told = f"The service listens at {url}. Its dashboard: {url}/ui\n"
        assert (started.stdout, started.stderr) == (told, "")
        health = plain_http.get(f"{url}/healthz").json()
        assert health["address"] == url
    second, _ = user.service()
    assert second != first
    assert user.services() == [second]
    answer = plain_http.get(f"http://127.0.0.1:{port}/readyz", headers={"Host": "rebound.example"})
    assert (answer.status_code, "Host" in answer.text) == (400, True)
    assert "session-" in user.hook(2)
    assert user.run("lines", handle, "1").returncode == 0
    assert user.service()[0] == second


def test_a_port_that_another_program_has_is_told(user: User) -> None:  # noqa: F811
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        started = user.run("service", "start", port=port)
        served = [user.run("serve", port=port), user.run("serve", "--port", port)]
    assert started.returncode == 1
    assert f"Port {port} is in use. Stop what listens there, or set SPILLGATE_PORT" in started.stderr
    # Each says the line that works.
    shown = re.search(r"SPILLGATE_PORT=(\d+) spillgate service start$", started.stderr.strip())
    assert shown
    assert user.run("service", "start", port=shown[1]).returncode == 0
    assert re.search(r"SPILLGATE_PORT=\d+ spillgate serve$", served[0].stderr.strip())
    assert re.search(r"or set --port to .*: spillgate serve --port \d+$", served[1].stderr.strip())
    # Hooks need no port, and need not wait.
    assert "session-" in user.hook()


@pytest.mark.anyio
async def test_a_port_that_the_users_own_service_has_is_told(services: Services, tmp_path: Path) -> None:
    """A store has one service: with another port alone a second one would not start."""
    store = tmp_path / "store"
    host, port = (await services.start(store)).address
    second = services.spawn(store, (*SERVE, "--port", str(port)))
    assert await second.ended() == 2
    assert f"It is your own Spillgate, http://{host}:{port}/ui: a second one needs" in second.tail()
    assert "For example" not in second.tail()


def test_the_dashboard_is_opened_where_the_users_service_listens(user: User) -> None:  # noqa: F811
    browser = user.home / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {user.home}/opened\n')
    browser.chmod(0o755)
    given = {"port": str(free_port())}
    page = f"http://127.0.0.1:{given['port']}/ui\n"
    shown = user.run("ui", **given)
    assert (shown.stdout, shown.stderr, shown.returncode) == (page, "", 0)
    assert re.search("<title>.*Spillgate", plain_http.get(page.strip()).text)
    # What a page is opened with, if there is a screen.
    opening = {"browser": str(browser), **given}
    assert user.run("ui", "--no-browser", **opening).stdout == page
    assert not (user.home / "opened").exists()
    assert user.run("ui", **opening).stdout == page
    assert (user.home / "opened").read_text() == page
    elsewhere = user.run("ui", "--no-browser", url="https://spillgate.example/a/")
    assert elsewhere.stdout == "https://spillgate.example:443/a/ui\n"
    refused = user.run("ui", url="unix:/run/s")
    assert (refused.returncode, "A browser cannot use a Unix socket." in refused.stderr) == (2, True)
