"""`spillgate service`: the files for systemd and launchd, and what governs results now."""

import os
import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from command import service
from domain.errors import ConfigError
from tests.app.test_user_service import User, user  # noqa: F401

SPILLGATE = str(Path(sys.executable).with_name("spillgate"))


def managed(user: User, script: str) -> dict[str, str]:  # noqa: F811
    """Settings with a `systemctl` in the PATH, which writes down how it was called."""
    tools = user.home / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {user.home}/called\n{script}\n')
    (tools / "systemctl").chmod(0o755)
    return {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(user.home), "SPILLGATE_URL": user.url}


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
    assert user.run("service", "start").returncode == 0
    assert "Results are governed now, by the service at unix:" in user.run("hook", "status", "codex").stdout
    assert user.run("service", "status").returncode == 0
    assert user.run("service", "stop").stdout == "Stopped.\n"
    assert user.run("service", "status").returncode == 1
    assert user.run("hook", "status", "claude-code").returncode == 1
