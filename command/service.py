"""`spillgate service install|status|uninstall|start|stop`: a service that the user's session manager runs."""

import argparse
import os
import plistlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from command import user_service
from command.addresses import OWN, state_folder
from command.client import ServiceClient, ServiceError, ServiceRequest
from command.files import replace_text
from command.uv_tool import install_tool, tool_path
from domain.errors import ConfigError

LABEL = "io.spillgate.service"

_UNIT = """\
[Unit]
Description=Spillgate, which keeps large tool results out of the context of AI agents

[Service]
ExecStart={program} serve
{environment}Restart=on-failure
RestartSec=2
TimeoutStopSec=35
NoNewPrivileges=true

[Install]
WantedBy=default.target
"""

_SECONDS = 5


class Manager(NamedTuple):
    """`text` makes the file at `path`. The commands load and unload it."""

    name: str
    path: Path
    text: Callable[[Sequence[str]], str]
    load: tuple[tuple[str, ...], ...]
    unload: tuple[tuple[str, ...], ...]


def main(arguments: Sequence[str]) -> int:
    """Exit status 0; for `status`, 1 if no service answers; 1 if a session manager refuses. Raises
    ConfigError."""
    parser = argparse.ArgumentParser(
        prog="spillgate service",
        description="Let the session manager of the user (systemd or launchd) run the service.",
        epilog="Without it, hooks and relays start a service themselves, which ends when it is idle.",
    )
    parser.add_argument(
        "action",
        choices=tuple(_ACTIONS),
        help="start and stop: the one that hooks start; `start` has it listen at a port, too",
    )
    options = parser.parse_args(arguments)
    try:
        return _ACTIONS[options.action]()
    except user_service.StartFailed as error:
        print(f"spillgate service: {error}", file=sys.stderr)
        return 1


def _install() -> int:
    manager = _manager()
    install_tool()
    user_service.stop()
    manager.path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(manager.path, manager.text(_program()), 0o600)
    print(f"written {manager.path}")
    return _run(manager, manager.load)


def _uninstall() -> int:
    manager = _manager()
    if not manager.path.exists():
        print(f"Nothing to remove: there is no {manager.path}.")
        return 0
    status = _run(manager, manager.unload)
    manager.path.unlink()
    print(f"removed {manager.path}")
    return status


def _status() -> int:
    manager = _manager()
    print(f"{'installed' if manager.path.exists() else 'not installed'}: {manager.path}")
    is_running, line = governing()
    print(line)
    return int(not is_running)


def _start() -> int:
    url = started_url()
    print(f"The service listens at {url}.")
    return 0


def started_url() -> str:
    """Where the user's own service listens at a port. If none does, the service that hooks start is started
    with one, in place of one that listens on its socket alone. Raises StartFailed."""
    address = user_service.port_address()
    if address is None:
        user_service.stop()
        user_service.start(at_port=True)
        address = user_service.port_address()
    if address is None:
        raise user_service.StartFailed("Another program has started the service without a port. Try again.")
    return str(address)


def _stop() -> int:
    print("Stopped." if user_service.stop() else "No service that a command has started runs.")
    return 0


_ACTIONS: dict[str, Callable[[], int]] = {
    "install": _install,
    "uninstall": _uninstall,
    "status": _status,
    "start": _start,
    "stop": _stop,
}


def governing() -> tuple[bool, str]:
    """Whether a service answers now, and a line that says so. Starts none. Raises ConfigError."""
    with closing(ServiceClient.from_environment(False)) as service:
        try:
            service.request(ServiceRequest("GET", "/readyz", seconds=_SECONDS))
        except ServiceError as error:
            if service.address == OWN and user_service.may_start():
                return False, "No service runs: the next result that a hook or relay gets starts one."
            return False, f"Results are not governed now. {error}"
        return True, f"Results are governed now, by the service at {service.reached}."


def _program() -> list[str]:
    """The command by its path: a session manager has no PATH of the user."""
    beside = os.path.join(os.path.dirname(sys.executable), "spillgate")
    path = tool_path() or (beside if os.access(beside, os.X_OK) else shutil.which("spillgate"))
    if path is None:
        raise ConfigError("The command `spillgate` is not in the PATH. Install the package.")
    return [os.path.abspath(path)]


def _environment() -> dict[str, str]:
    """The settings of this shell: those of the service are the same. None that holds a secret."""
    names = [name for name in os.environ if name.startswith("SPILLGATE_") or name == "XDG_STATE_HOME"]
    secret = sorted(name for name in names if name in ("SPILLGATE_KEY", "SPILLGATE_LLM_API_KEY"))
    if secret:
        raise ConfigError(f"{secret[0]} would be written to a file. Set {secret[0]}_FILE instead.")
    return {name: os.environ[name] for name in sorted(names)}


def _manager() -> Manager:
    """The session manager of this system. Raises ConfigError."""
    if sys.platform == "darwin":
        path = Path.home() / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        domain = f"gui/{os.getuid()}"
        load = ("launchctl", "bootstrap", domain, str(path))
        return Manager("launchd", path, plist, (load,), (("launchctl", "bootout", f"{domain}/{LABEL}"),))
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(Path.home(), ".config")
    path = Path(config) / "systemd" / "user" / "spillgate.service"
    user = ("systemctl", "--user")
    reload = (*user, "daemon-reload")
    return Manager(
        "systemd",
        path,
        unit,
        (reload, (*user, "enable", "--now", path.name)),
        ((*user, "disable", "--now", path.name), reload),
    )


def unit(program: Sequence[str]) -> str:
    """A systemd user unit."""
    settings = [f"Environment={_quoted(f'{name}={value}')}\n" for name, value in _environment().items()]
    return _UNIT.format(
        program=" ".join(_quoted(word).replace("$", "$$") for word in program), environment="".join(settings)
    )


def _quoted(text: str) -> str:
    """A word of a unit, in which `%` begins a specifier."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def plist(program: Sequence[str]) -> str:
    """A property list for launchd."""
    log = os.path.join(state_folder(), "service.log")
    content = {
        "Label": LABEL,
        "ProgramArguments": [*program, "serve"],
        "EnvironmentVariables": _environment(),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "StandardErrorPath": log,
    }
    return plistlib.dumps(content).decode()


def _run(manager: Manager, commands: Sequence[Sequence[str]]) -> int:
    """Runs the commands of the session manager. If it cannot be reached, says what to run later."""
    for number, command in enumerate(commands):
        why = "it is not installed"
        with suppress(FileNotFoundError):
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
            if done.returncode == 0:
                continue
            why = done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        rest = " && ".join(" ".join(one) for one in commands[number:])
        print(f"{manager.name} did not take it: {why}\nRun where it can: {rest}", file=sys.stderr)
        return 1
    return 0
