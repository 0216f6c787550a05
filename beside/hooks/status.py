"""`spillgate hook status CLIENT`: whether an agent's settings hold what `install` adds, and whether it works.

What the agent would run is run, with a probe in place of a payload.
"""

import json
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from hashlib import sha256
from typing import Any, NamedTuple

from beside.client import ServiceClient, ServiceError, ServiceRequest, api_key, own_path
from beside.hooks.answer import PROBE
from beside.hooks.entries import at, is_own_hook, is_own_plugin, items, read, value_in
from beside.hooks.files import INSTALLED, SettingsFile
from beside.hooks.jsonc import Malformed
from machine.addresses import address_of

PROBE_SECONDS = 30
"""The longest wait for what an agent would run. A busy machine is not a fault of the settings."""

_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "spillgate-hook-status", "version": "1"},
    },
}
_KEY_EVENTS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class InstalledPart(NamedTuple):
    """One thing that the agent runs, and the service that it asks. `fails` says why it does not work, "" if
    it does. `starts`: no service runs, and one starts by itself."""

    name: str
    asks: str
    fails: str = ""
    starts: bool = False

    def __str__(self) -> str:
        if self.starts:
            state = "none runs: the next result that a hook or relay gets starts one"
        else:
            state = self.fails or "it answers"
        return f"{self.name}: the service at {self.asks}: {state}" if self.asks else f"{self.name}: {state}"


def status(client: str, files: Sequence[SettingsFile], is_current: Callable[[SettingsFile], bool]) -> int:
    """Exit status 0 if all is set up and answers, or starts by itself; else 1. `is_current`: `install` would
    not change the file. Raises ConfigError."""
    is_missing, is_old, parts, untrusted = False, False, list[InstalledPart](), ""
    for file in files:
        if not (file.entries or file.whole):
            continue
        current = is_current(file)
        value, is_there = (None, True) if current and file.whole else _found(client, file)
        is_missing, is_old = is_missing or not is_there, is_old or (is_there and not current)
        print(f"{'ok      ' if is_there else 'missing '} {file.path}")
        if is_there:
            parts += _parts(client, file, value)
        if is_there and client == "codex" and file.kind == "json":
            untrusted = _untrusted(file, value, files)
    for part in parts:
        print(part)
    if is_missing:
        # Whether a service runs says nothing then of the results of this agent.
        print(f"Not all is set up. Run: spillgate hook install {client}")
        return 1
    if is_old:
        print(f"`spillgate hook install {client}` would write other addresses or settings now.")
    if untrusted:
        print(untrusted)
        return 1
    failing = [part for part in parts if part.fails and not part.starts]
    if failing:
        print(f"Results are not governed now. {failing[0].name}: {failing[0].fails}")
    elif any(part.starts for part in parts):
        print("No service runs: the next result that a hook or relay gets starts one.")
    else:
        print(f"Results are governed now, by the service at {parts[0].asks}.")
    return int(bool(failing))


def _found(client: str, file: SettingsFile) -> tuple[Any, bool]:
    """The settings in the file, and whether what `install` adds is among them, for whatever service. Raises
    ConfigError."""
    with suppress(OSError, UnicodeDecodeError, Malformed, tomllib.TOMLDecodeError):
        text = read(file)
        if text is None:
            return None, False
        if file.whole:
            return None, is_own_plugin(file, text)
        value = value_in(file, text)
        return value, all(_holds(client, value, keys, entry) for keys, entry in file.entries)
    return None, False


def _holds(client: str, value: Any, keys: tuple[str, ...], entry: Any) -> bool:
    setting = at(value, keys)
    if isinstance(entry, list):
        return any(is_own_hook(item, client) for item in items(setting))
    return isinstance(setting, dict)


def _parts(client: str, file: SettingsFile, value: Any) -> Iterator[InstalledPart]:
    """Yields each program that the agent runs, once."""
    if file.whole:
        yield _plugin(client, read(file) or "")
        return
    seen = set()
    for keys, entry in file.entries:
        if isinstance(entry, dict):
            yield from _servers(client, at(value, keys))
        elif keys[-1].lower() in ("posttooluse", "aftertool"):
            for hook in _hooks(client, items(at(value, keys))):
                if (told := json.dumps(hook)) not in seen:
                    seen.add(told)
                    yield _hook(client, hook)


def _hooks(client: str, entries: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for entry in entries:
        if is_own_hook(entry, client):
            yield from entry.get("hooks") or [entry]


def _hook(client: str, hook: Mapping[str, Any]) -> InstalledPart:
    url = hook.get("url")
    if isinstance(url, str):
        return _at_url("hook", url, b"{}", has_key="headers" in hook)
    return _run("hook", ["sh", "-c", str(hook.get("command") or hook.get("bash"))], {})


def _plugin(client: str, text: str) -> InstalledPart:
    """The plugin asks by the variables of the agent, else by those that `install` wrote."""
    given: dict[str, str] = {}
    line = next((one for one in text.splitlines() if one.startswith(INSTALLED)), "")
    with suppress(ValueError):
        given, _ = json.JSONDecoder().raw_decode(line.removeprefix(INSTALLED))
    is_named = os.environ.get("SPILLGATE_URL") or os.environ.get("SPILLGATE_UDS")
    return _run("plugin", [own_path(), "hook", client], {} if is_named else given)


def _servers(client: str, server: Any) -> Iterator[InstalledPart]:
    """The MCP server: at a URL, or a program that the agent starts."""
    name = "MCP server"
    url = server.get("url") or server.get("httpUrl")
    if isinstance(url, str):
        has_key = bool({"headers", "bearer_token_env_var"} & server.keys())
        yield _at_url(name, url, json.dumps(_INITIALIZE).encode(), has_key=has_key)
        return
    command = server.get("command")
    program = [*command] if isinstance(command, list) else [command, *items(server.get("args"))]
    variables: Any = server.get("env") or server.get("environment") or {}
    given: dict[str, Any] = variables if isinstance(variables, dict) else {"": None}
    # The agent puts the value of SPILLGATE_KEY there by itself.
    given = {key: value for key, value in given.items() if key != "SPILLGATE_KEY"}
    if not (program and all(isinstance(word, str) for word in (*program, *given.values()))):
        yield InstalledPart(name, "", "its command is no list of words, or its variables are no texts")
        return
    part = _run(name, [program[0], "hook", client], given)
    yield part if part.fails else _initialized(part, program, given)


def _initialized(part: InstalledPart, program: Sequence[str], given: Mapping[str, str]) -> InstalledPart:
    """Starts the MCP server as the agent does, and reads its first answer."""
    done = _ran(program, given, json.dumps(_INITIALIZE) + "\n")
    if isinstance(done, str):
        return part._replace(fails=done)
    with suppress(ValueError):
        if "result" in json.loads(done.stdout.partition("\n")[0]):
            return part
    return part._replace(fails=f"`{shlex.join(program)}` does not answer: {_last_line(done.stderr)}")


def _at_url(name: str, url: str, body: bytes, *, has_key: bool) -> InstalledPart:
    try:
        address = address_of(url.partition("?")[0])
    except ValueError as error:
        return InstalledPart(name, url, str(error))
    with closing(ServiceClient(address._replace(prefix=""), api_key() if has_key else None)) as service:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        asked = ServiceRequest("POST", address.prefix, body, headers, seconds=PROBE_SECONDS)
        try:
            service.request(asked)
        except ServiceError as error:
            return InstalledPart(name, str(service.address), str(error))
    return InstalledPart(name, str(service.address))


def _run(name: str, program: Sequence[str], given: Mapping[str, str]) -> InstalledPart:
    """What the hook answers to the probe."""
    done = _ran(program, given, json.dumps(PROBE))
    if isinstance(done, str):
        return InstalledPart(name, "", done)
    with suppress(ValueError):
        match json.loads(done.stdout):
            case {"spillgate": {"asks": str(asks), "fails": str(fails), "starts": bool(starts)}}:
                return InstalledPart(name, asks, fails, starts)
    said = _last_line(done.stderr) or "it does not know the probe: is it another version?"
    return InstalledPart(name, "", f"`{shlex.join(program)}` does not work: {said}")


def _ran(
    program: Sequence[str], given: Mapping[str, str], stdin: str
) -> subprocess.CompletedProcess[str] | str:
    """Returns the ended process, or why it could not be run."""
    try:
        return subprocess.run(  # noqa: S603
            program,
            input=stdin,
            env={**os.environ, **given},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_SECONDS,
            check=False,
        )
    except OSError as error:
        return f"`{program[0]}` does not run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"`{shlex.join(program)}` does not answer within {PROBE_SECONDS} s"


def _last_line(text: str) -> str:
    return next(reversed(text.strip().splitlines()), "")


def _untrusted(file: SettingsFile, value: Any, files: Sequence[SettingsFile]) -> str:
    """What to do before Codex runs the hooks, "" for nothing. It keeps in its own settings which hooks its
    user has trusted, with a digest of each, or has switched off."""
    settings = next(one for one in files if one.kind == "toml")
    home = os.environ.get("CODEX_HOME") or os.path.expanduser("~/.codex")
    with suppress(OSError, ValueError):
        with open(os.path.join(home, settings.path.name), "rb") as opened:
            states = at(tomllib.load(opened), ("hooks", "state"))
        hooks = [one for keys, entry in file.entries for one in _identities(str(file.path), keys[-1], value)]
        known = states if isinstance(states, dict) else {}
        if any(at(known, (name, "enabled")) is False for name, _ in hooks):
            return "Set up, and switched off in Codex: type /hooks there."
        if all(at(known, (name, "trusted_hash")) == digest for name, digest in hooks):
            return ""
    return "Set up, not trusted yet: type /hooks in Codex, which runs a new hook only then."


def _identities(path: str, event: str, value: Any) -> Iterator[tuple[str, str]]:
    """The names of Spillgate's hooks of an event, as Codex gives them, and their digests."""
    name = _KEY_EVENTS.sub("_", event).lower()
    for number, group in enumerate(items(at(value, ("hooks", event)))):
        if not is_own_hook(group, "codex"):
            continue
        for at_hook, hook in enumerate(group["hooks"]):
            told = {"type": "command", "command": hook.get("command"), "timeout": hook.get("timeout", 600)}
            whole = {"event_name": name, "matcher": group.get("matcher"), "hooks": [{**told, "async": False}]}
            text = json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            yield f"{path}:{name}:{number}:{at_hook}", f"sha256:{sha256(text.encode()).hexdigest()}"
