"""`spillgate service`: the files for systemd and launchd, and what governs results now."""

import os
import plistlib
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from command import service
from domain.errors import ConfigError
from tests.app.test_user_service import User, handle_in, user  # noqa: F401
from tests.redis_server import free_port

SPILLGATE = str(Path(sys.executable).with_name("spillgate"))


def managed(user: User, script: str) -> dict[str, str]:  # noqa: F811
    """Settings with a `systemctl` in the PATH, which writes down how it was called."""
    tools = user.home / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {user.home}/called\n{script}\n')
    (tools / "systemctl").chmod(0o755)
    return {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(user.home)}


def ran(environment: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [SPILLGATE, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )


def test_a_unit_is_written_loaded_and_removed(user: User) -> None:  # noqa: F811
    environment = {**managed(user, "exit 0"), "SPILLGATE_MAX_BYTES": "20000"}
    path = user.home / ".config/systemd/user/spillgate.service"
    done = ran(environment, "service", "install")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"written {path}\n", "")
    unit = path.read_text()
    assert f'ExecStart="{SPILLGATE}" serve\n' in unit
    assert 'Environment="SPILLGATE_MAX_BYTES=20000"\n' in unit
    assert "installed: " in ran(environment, "service", "status").stdout
    assert ran(environment, "service", "uninstall").returncode == 0
    assert not path.exists()
    assert (user.home / "called").read_text().splitlines() == [
        "--user daemon-reload",
        "--user enable --now spillgate.service",
        "--user disable --now spillgate.service",
        "--user daemon-reload",
    ]
    assert "Nothing to remove" in ran(environment, "service", "uninstall").stdout


def test_systemd_accepts_the_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verify = shutil.which("systemd-analyze")
    assert verify is not None, "apt-get install systemd"
    monkeypatch.setenv("SPILLGATE_POLICY_FILE", '/a "b" \\c 100%$HOME')
    path = tmp_path / "spillgate.service"
    path.write_text(service.unit([SPILLGATE]))
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run([verify, "--user", "verify", path], env=environment, capture_output=True, text=True)
    # It may complain of other units of the user, too.
    assert (done.returncode, path.name in done.stderr) == (0, False), done.stderr
    path.write_text(service.unit(["/nowhere/spillgate"]))
    done = subprocess.run([verify, "--user", "verify", path], env=environment, capture_output=True, text=True)
    assert "/nowhere/spillgate is not executable" in done.stderr


def test_the_plist_starts_the_service_and_starts_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPILLGATE_POLICY_FILE", "/a&b<c>")
    read = plistlib.loads(service.plist([SPILLGATE]).encode())
    assert read["ProgramArguments"] == [SPILLGATE, "serve"]
    assert read["EnvironmentVariables"]["SPILLGATE_POLICY_FILE"] == "/a&b<c>"
    assert (read["RunAtLoad"], read["KeepAlive"]) == (True, {"SuccessfulExit": False})


def test_a_secret_is_not_written_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPILLGATE_LLM_API_KEY", "secret")
    with pytest.raises(ConfigError, match="Set SPILLGATE_LLM_API_KEY_FILE instead"):
        service.unit([SPILLGATE])


def test_without_a_session_manager_it_says_what_to_run_later(user: User) -> None:  # noqa: F811
    environment = managed(user, "echo 'Failed to connect to bus: No medium found' >&2; exit 1")
    done = ran(environment, "service", "install")
    assert done.returncode == 1
    assert "systemd did not take it: Failed to connect to bus" in done.stderr
    assert "systemctl --user daemon-reload && systemctl --user enable --now spillgate.service" in done.stderr


def test_the_service_of_systemd_takes_the_place_of_one_that_a_hook_started(user: User) -> None:  # noqa: F811
    assert "session-" in user.hook()
    process, _ = user.service()
    assert ran(managed(user, "exit 0"), "service", "install").returncode == 0
    user.until_gone(process)


def test_the_status_says_whether_results_are_governed_now(user: User) -> None:  # noqa: F811
    user.run("hook", "install", "codex")
    status = user.run("hook", "status", "codex")
    assert (status.returncode, "the next result that a hook or relay gets starts one" in status.stdout) == (
        0,
        True,
    )
    status = user.run("hook", "status", "codex", auto_start="false")
    assert (status.returncode, "Results are not governed now." in status.stdout) == (1, True)
    assert not (user.state / "embedded").exists()
    started = user.run("service", "start", port=str(free_port()))
    assert started.returncode == 0, started.stderr
    assert "Results are governed now, by the service at unix:" in user.run("hook", "status", "codex").stdout
    assert user.run("service", "status").returncode == 0
    assert user.run("service", "stop").stdout == "Stopped.\n"
    assert user.run("service", "status").returncode == 1
    assert user.run("hook", "status", "claude-code").returncode == 1


def test_a_person_has_the_service_of_the_hooks_listen_at_a_port_too(user: User) -> None:  # noqa: F811
    """One that listens on its socket alone gives way, and what it has stored is found again."""
    handle = handle_in(user.hook())
    first, _ = user.service()
    port = str(free_port())
    for _ in range(2):
        started = user.run("service", "start", port=port, auto_start="false")
        assert (started.stdout, started.stderr) == (f"The service listens at http://127.0.0.1:{port}.\n", "")
    second, _ = user.service()
    assert second != first
    assert user.services() == [second]
    answer = httpx.get(
        f"http://127.0.0.1:{port}/readyz", trust_env=False, headers={"Host": "rebound.example"}
    )
    assert (answer.status_code, "Host" in answer.text) == (400, True)
    assert "session-" in user.hook(2)
    assert user.run("lines", handle, "1").returncode == 0
    assert user.service()[0] == second


def test_a_port_that_another_program_has_is_told(user: User) -> None:  # noqa: F811
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        started = user.run("service", "start", port=port)
    assert started.returncode == 1
    assert f"Port {port} is in use. Stop what listens there, or set SPILLGATE_PORT" in started.stderr
    # Hooks need no port, and need not wait.
    assert "session-" in user.hook()


def test_the_dashboard_is_opened_where_the_users_service_listens(user: User) -> None:  # noqa: F811
    browser = user.home / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {user.home}/opened\n')
    browser.chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(user.home), "SPILLGATE_PORT": str(free_port())}
    page = f"http://127.0.0.1:{environment['SPILLGATE_PORT']}/ui\n"
    shown = ran(environment, "ui")
    assert (shown.stdout, shown.stderr, shown.returncode) == (page, "", 0)
    assert re.search("<title>.*Spillgate", httpx.get(page.strip(), trust_env=False).text)
    # What a page is opened with, if there is a screen.
    environment["BROWSER"] = str(browser)
    assert ran(environment, "ui", "--no-browser").stdout == page
    assert not (user.home / "opened").exists()
    assert ran(environment, "ui").stdout == page
    assert (user.home / "opened").read_text() == page
    elsewhere = ran({**environment, "SPILLGATE_URL": "https://spillgate.example/a/"}, "ui", "--no-browser")
    assert elsewhere.stdout == "https://spillgate.example:443/a/ui\n"
    refused = ran({**environment, "SPILLGATE_URL": "unix:/run/s"}, "ui")
    assert (refused.returncode, "A browser cannot use a Unix socket." in refused.stderr) == (2, True)
