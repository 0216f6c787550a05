"""Whose service it is: without SPILLGATE_URL nothing is sent to what is not known to be the user's own."""

import asyncio
import fcntl
import hmac
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from policies.outcomes.store import TOO_LARGE
from spillgate import AsyncSpillgate, Spillgate
from tests.app.doors.payloads import LARGE, changed, payload
from tests.beside.squatter import (
    ANSWER,
    FORGED,
    NOBODY,
    OfAnotherUser,
    at_path,
    at_port,
    beside_a_squatter,
)
from tests.counts import FULL
from tests.faults.forking import ROOT, run
from tests.faults.service_process import SERVE, Service, Services
from tests.started_services import end_services

pytestmark = pytest.mark.anyio
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")

KEY = "sk-of-the-user"


class User:
    """Runs programs in a home of its own, whose path is short enough for a socket, and with a key. It starts
    no service unless it is told so."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.state = home / "user" / "spillgate"
        self.folder = self.state / "embedded"
        self.folder.mkdir(mode=0o700, parents=True)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            # As `Services` gives it to those that it starts.
            "XDG_STATE_HOME": str(self.home / "user"),
            "PYTHONPATH": f"{ROOT}:{ROOT / 'clients' / 'python'}",
            "SPILLGATE_KEY": KEY,
            "SPILLGATE_AUTO_START": "false",
            "SPILLGATE_HOOK_TIMEOUT_MS": "20000",
        }

    def run(self, command: list[str], stdin: str = "", **settings: str) -> str:
        """What it printed, stderr too."""
        given = {f"SPILLGATE_{name.upper()}": value for name, value in settings.items()}
        given = {**self.environment, **given}
        if command[0] == sys.executable:
            forked = run(tuple(command[1:]), given, stdin.encode(), self.home)
            return (forked.stdout + forked.stderr).decode()
        done = subprocess.run(
            command, input=stdin, env=given, cwd=self.home, capture_output=True, text=True, timeout=60
        )
        return done.stdout + done.stderr

    def announce(self, url: str, secret: str = "s" * 64, path: str = "") -> Path:
        """Writes an address file, as a service would."""
        file = self.folder / "address"
        file.write_text(json.dumps({"url": url, "socket": path, "secret": secret}))
        file.chmod(0o600)
        return file


@contextmanager
def at_home() -> Iterator[User]:
    with tempfile.TemporaryDirectory(prefix="own-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        home.chmod(0o755)
        yield User(home)
        end_services(home)


@pytest.fixture
def user() -> Iterator[User]:
    with at_home() as one:
        yield one


COMMAND = [sys.executable, "-m", "beside.main"]
CLIENT = """
import asyncio, sys
from spillgate import AsyncSpillgate, Spillgate

async def ask():
    async with AsyncSpillgate(patience=0.0, timeout=20.0) as client:
        return (await client.govern("t", "c", text)).outcome

text = sys.stdin.read()
with Spillgate(patience=0.0, timeout=20.0) as client:
    print(client.govern("t", "c", text).outcome, asyncio.run(ask()))
"""
TYPESCRIPT = """
import { readFileSync } from "node:fs"
const { Spillgate } = await import("CLIENT")
const client = new Spillgate({ patience: 0, timeout: 20000 })
console.log((await client.govern("t", "c", readFileSync(0, "utf8"))).content.slice(0, 100))
"""
OPENCODE = """
import { readFileSync } from "node:fs"
const hooks = await (await import("PLUGIN")).Spillgate()
const output = { output: readFileSync(0, "utf8"), metadata: {} }
await hooks["tool.execute.after"]({ tool: "bash", sessionID: "s", callID: "c" }, output)
console.log(output.output.slice(0, 100))
"""
PI = """
import { readFileSync } from "node:fs"
const on = {}
const plugin = await import("PLUGIN")
plugin.default({ on: (name, handle) => (on[name] = handle), registerTool() {} })
const content = [{ type: "text", text: readFileSync(0, "utf8") }]
const event = { toolName: "bash", toolCallId: "c", input: {}, content }
const told = await on.tool_result(event, { sessionManager: { getSessionId: () => "s" } })
console.log((told ?? event).content[0].text.slice(0, 100))
"""


class Door(NamedTuple):
    """A program that sends a result to the service, whose command may need files of the user's home."""

    command: Callable[[Path], list[str]]
    stdin: str


def hook(client: str, sent: Any) -> Door:
    return Door(lambda home: [*COMMAND, "hook", client], json.dumps(sent))


def node(script: str, plugin: str = "") -> Door:
    def command(home: Path) -> list[str]:
        program = shutil.which("node")
        assert program is not None, "node is not installed"
        source = home / "plugin.mjs"
        if plugin:
            shutil.copy(ROOT / "integrations" / plugin / "spillgate.js", source)
        (home / "run.mjs").write_text(
            script.replace("PLUGIN", str(source)).replace(
                "CLIENT", str(ROOT / "clients/typescript/src/index.js")
            )
        )
        return [program, str(home / "run.mjs")]

    return Door(command, LARGE)


_BLOCKS = json.dumps({"content": [{"type": "text", "text": LARGE}]})
_CLAUDE_CODE = changed(payload("claude-code", "Bash"), ("tool_response", "stdout"), LARGE)
_COPILOT = changed(payload("copilot", "bash"), ("toolResult", "textResultForLlm"), LARGE)
_GEMINI = changed(payload("gemini", "shell"), ("tool_response", "llmContent"), LARGE)
DOORS = {
    "claude-code": hook("claude-code", _CLAUDE_CODE),
    "codex": hook("codex", changed(payload("codex", "mcp"), ("tool_response", "content", 0, "text"), LARGE)),
    "copilot": hook("copilot", _COPILOT),
    "cursor": hook("cursor", changed(payload("cursor", "mcp"), ("tool_output",), _BLOCKS)),
    "gemini": hook("gemini", _GEMINI),
    "opencode": node(OPENCODE, "opencode"),
    "pi": node(PI, "pi"),
    "pipe": Door(lambda home: [*COMMAND, "pipe"], LARGE),
    "python": Door(lambda home: [sys.executable, "-c", CLIENT], LARGE),
    "typescript": node(TYPESCRIPT),
}
EACH_DOOR = pytest.mark.parametrize("name", DOORS)
# The commands find the service by one code. Four other doors have a code of their own.
WAYS = list(DOORS) if FULL else ["codex", "opencode", "pi", "python", "typescript"]
EACH_WAY = pytest.mark.parametrize("name", WAYS)


def said(user: User, name: str, **settings: str) -> str:
    door = DOORS[name]
    return user.run(door.command(user.home), door.stdin, **settings)


def is_governed(printed: str) -> bool:
    return f"{TOO_LARGE} (" in printed or printed == "store store\n"


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """As a service holds it."""
    with file.open("rb") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield


@pytest.mark.repeated
def test_whoever_has_the_usual_port_gets_nothing_and_says_nothing(user: User) -> None:
    """No byte of a result, no key; and no model reads what it answers."""
    handle = "session-a/file-b"
    asking = [[*COMMAND, *one] for one in (["ask", handle, "q"], ["cat", handle], ["ls"], ["mcp", "--tools"])]
    commands = [
        {"command": one, "stdin": '{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n'} for one in asking
    ]
    for name in WAYS:
        home, door = user.home / name, DOORS[name]
        home.mkdir()
        commands.append({"command": door.command(home), "stdin": door.stdin})
    printed, received = beside_a_squatter(commands, user.environment, user.home / "told")
    assert received == b""
    assert len(printed) == len(commands)
    assert not [text for text in printed if FORGED in text or "forged" in text]


@asynccontextmanager
async def served(user: User) -> AsyncIterator[Service]:
    """As `make run` with another port. The store is the user's."""
    with Services(user.home) as services:
        yield await services.start(user.state, storage_url=f"disk://{user.state}")


@contextmanager
def served_at_home(store: str) -> Iterator[User]:
    """The store: a path in the home."""
    with at_home() as user, Services(user.home) as services:
        asyncio.run(services.start(user.state, storage_url=f"disk://{user.home / store}"))
        yield user


@pytest.fixture(scope="module")
def served_user() -> Iterator[User]:
    """For tests that leave the files of the service as they are."""
    with served_at_home("user/spillgate") as user:
        yield user


@pytest.fixture(scope="module")
def user_with_another_store() -> Iterator[User]:
    with served_at_home("store") as user:
        yield user


@EACH_DOOR
def test_each_door_finds_the_service_that_runs_at_any_port(served_user: User, name: str) -> None:
    assert is_governed(said(served_user, name))


@pytest.mark.repeated
@EACH_WAY
def test_each_door_finds_it_wherever_its_store_is(user_with_another_store: User, name: str) -> None:
    assert is_governed(said(user_with_another_store, name))


BY_PORT = [name for name in DOORS if name not in ("opencode", "pi", "typescript")]
"""The doors that ask for the proof. The others use the socket alone."""


@pytest.mark.repeated
async def test_without_its_socket_it_is_found_by_the_port_once_it_has_proved_its_secret(user: User) -> None:
    doors = BY_PORT if FULL else ["codex", "python"]
    async with served(user):
        (user.folder / "socket").unlink()
        for name in doors:
            assert is_governed(await asyncio.to_thread(said, user, name)), name
        # Others could know the secret.
        (user.folder / "address").chmod(0o644)
        for name in doors:
            assert not is_governed(await asyncio.to_thread(said, user, name)), name


async def test_where_the_path_is_too_long_for_a_socket_the_port_is_enough(user: User) -> None:
    far = user.home / ("x" * 100)
    far.mkdir()
    other = User(far)
    async with served(other) as service:
        (line,) = [line for line in service.lines() if line["event"] == "listening"]
        assert line["hooks"] == f"find it by {other.folder}/address"
        assert not (other.folder / "socket").exists()
        for name in ("codex", "python"):
            assert is_governed(await asyncio.to_thread(said, other, name))


@pytest.mark.repeated
@AS_ROOT
@EACH_WAY
def test_a_socket_of_another_user_gets_nothing(user: User, name: str) -> None:
    """However it has come into the folder of the user."""
    foreign = user.home / "foreign"
    foreign.mkdir(mode=0o777)
    foreign.chmod(0o777)
    with OfAnotherUser(foreign / "socket") as squatter:
        (foreign / "socket").rename(user.folder / "socket")
        assert not is_governed(said(user, name))
        assert squatter.received == b""
        # Nor in a folder to which others may write, even if the socket is the user's.
        (user.folder / "socket").unlink()
        user.folder.chmod(0o777)
        with at_path(user.folder / "socket") as own:
            assert not is_governed(said(user, name))
            assert own.connections == 0
            # Where a user has named the socket by SPILLGATE_UDS, it is still to be the user's.
            assert not is_governed(said(user, name, uds=str(user.folder / "socket")))
            assert own.connections == 0


@pytest.mark.repeated
@AS_ROOT
@EACH_WAY
def test_a_folder_of_another_user_is_not_used(user: User, name: str) -> None:
    with at_path(user.folder / "socket") as squatter:
        os.chown(user.folder, NOBODY, NOBODY)
        assert not is_governed(said(user, name))
        assert squatter.connections == 0


@pytest.mark.repeated
@EACH_WAY
def test_a_stale_address_file_leads_nowhere(user: User, name: str) -> None:
    """A service that was killed has left it, and another user has the port now."""
    with at_port() as squatter:
        user.announce(squatter.url)
        assert not is_governed(said(user, name))
        assert squatter.connections == 0


UNFIT = {
    "for others to read": lambda file: file.chmod(0o640),
    "of another user": lambda file: os.chown(file, NOBODY, NOBODY),
    "a link": lambda file: file.symlink_to(file.rename(file.with_name("elsewhere"))),
}


@AS_ROOT
@pytest.mark.parametrize("unfit", UNFIT.values(), ids=UNFIT)
@pytest.mark.parametrize("name", ["codex", "python"])
def test_an_address_file_that_is_not_the_users_alone_is_not_believed(
    user: User, name: str, unfit: Callable[[Path], Any]
) -> None:
    with at_port() as squatter:
        file = user.announce(squatter.url)
        unfit(file)
        with locked(file):
            assert not is_governed(said(user, name))
        assert squatter.connections == 0


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b'{"url": 1}', b'{"url": "x", "socket": "", "secret": "s"}']
)
def test_an_address_file_that_is_being_written_is_not_read(user: User, content: bytes) -> None:
    file = user.announce("")
    file.write_bytes(content)
    with locked(file):
        assert not is_governed(said(user, "codex"))
        assert said(user, "python").startswith("unreached unreached\nNo service of this user runs. Start one")


FALSE_PROOFS = {
    "a service without the secret": ANSWER,
    "no JSON": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno",
    "a number": b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"proof":1}',
    "no HTTP": b"220 mail.example ESMTP\r\n",
    "without an end": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n" + b"x" * 100_000,
    "closed at once": b"",
}


@pytest.mark.parametrize("answer", FALSE_PROOFS.values(), ids=FALSE_PROOFS)
@pytest.mark.parametrize("name", ["codex", "python"])
def test_who_does_not_prove_the_secret_gets_the_challenge_alone(user: User, name: str, answer: bytes) -> None:
    with at_port(answer=lambda request: answer) as squatter:
        with locked(user.announce(squatter.url)):
            printed = said(user, name)
        assert not is_governed(printed)
        assert FORGED not in printed
        assert CHALLENGES.fullmatch(squatter.received), squatter.received[:500]


CHALLENGES = re.compile(
    rb"(?:GET /proof\?challenge=[0-9a-f]{64} HTTP/1\.1\r\n(?:(?!Authorization)[^\r\n]+\r\n)+\r\n)+"
)


async def test_a_proof_that_was_got_from_the_service_is_of_no_use_at_another_port(user: User) -> None:
    """The squatter passes the challenge on to the service, whose secret is the right one."""
    async with served(user) as service:
        (user.folder / "socket").unlink()
        (host, port) = service.address
        secret = json.loads((user.folder / "address").read_text())["secret"]

        def passed_on(request: bytes) -> bytes:
            answered = b""
            with socket.create_connection((host, port)) as connection:
                connection.sendall(request)
                while not answered.endswith(b"}"):
                    answered += connection.recv(1 << 16)
            return answered

        with at_port(answer=passed_on) as squatter:
            # The file is still the one that the service holds.
            user.announce(squatter.url, secret)
            for name in ("codex", "python"):
                assert not is_governed(await asyncio.to_thread(said, user, name))
            assert CHALLENGES.fullmatch(squatter.received)
            user.announce(f"http://{host}:{port}", secret)
            assert is_governed(await asyncio.to_thread(said, user, "codex"))


async def test_a_connection_that_was_kept_is_not_replaced_by_one_to_another_listener(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service is gone, and a squatter has its port."""
    for name, value in user.environment.items():
        monkeypatch.setenv(name, value)
    client, waiting = Spillgate(patience=0.0), AsyncSpillgate(patience=0.0)
    async with served(user) as service:
        (user.folder / "socket").unlink()
        assert client.govern("t", "c1", LARGE).outcome == "store"
        assert (await waiting.govern("t", "c2", LARGE)).outcome == "store"
        service.kill()
        with at_port(service.address[1]) as squatter:
            assert client.govern("t", "c3", LARGE).outcome == "unreached"
            assert (await waiting.govern("t", "c4", LARGE)).outcome == "unreached"
            assert squatter.connections == 0
    client.close()
    await waiting.aclose()


async def test_users_of_one_machine_each_find_their_own(user: User) -> None:
    with tempfile.TemporaryDirectory(prefix="own-") as folder:
        other = User(Path(folder))
        async with served(user), served(other):
            for one in (user, other, other):
                assert is_governed(await asyncio.to_thread(said, one, "pipe"))
            listed = [await asyncio.to_thread(one.run, [*COMMAND, "ls"]) for one in (user, other)]
    assert [text.count("session-") for text in listed] == [1, 2]


async def test_the_first_of_two_services_of_a_user_is_the_one_that_is_found(user: User) -> None:
    """The second says what those who mean it have to set."""
    with Services(user.home) as services:
        first = await services.start(user.home / "one")
        command = (*SERVE, "--uds", str(user.home / "private" / "s"))
        second = await services.start(user.home / "two", command)
        (line,) = [line for line in second.lines() if line["event"] == "listening"]
        assert line["hooks"].startswith(f"need SPILLGATE_URL=unix:{user.home}/private/s: ")
        assert line["hooks"].endswith("another service of this user holds it")
        assert is_governed(await asyncio.to_thread(said, user, "codex"))
        async with first.client() as client:
            assert (await client.get("/accounting/entries")).json()["entries"] != []


TRIES = """
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
except OSError as error:
    print(type(error).__name__)
"""


@AS_ROOT
def test_no_other_user_reaches_the_service_that_a_hook_starts(user: User) -> None:
    assert is_governed(said(user, "codex", auto_start="true"))
    path = user.folder / "socket"
    assert path.is_socket()
    assert user.run([sys.executable, "-c", TRIES, str(path)]) == "PermissionError\n"
    process = psutil.Process(int((user.folder / "lock").read_text().split()[0]))
    assert process.net_connections("inet") == []


async def test_the_proof_is_open_and_needs_a_challenge(user: User) -> None:
    async with served(user) as service, service.client() as client:
        said = json.loads((user.folder / "address").read_text())
        challenge = "0123456789abcdef" * 4
        keyed = hmac.new(said["secret"].encode(), f"spillgate {said['url']} {challenge}".encode(), "sha256")
        answer = await client.get("/proof", params={"challenge": challenge})
        assert answer.json() == {"proof": keyed.hexdigest()}
        for wrong in ({}, {"challenge": "x"}, {"challenge": challenge[:31]}, {"challenge": challenge * 9}):
            assert (await client.get("/proof", params=wrong)).status_code == 422
        assert await service.stop() == 0
    assert (user.folder / "address").read_bytes() == b""
