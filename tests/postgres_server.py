"""A real PostgreSQL of a test's own, on a free loopback port, and replicas that follow it."""

import base64
import hashlib
import hmac
import os
import pwd
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pytest

from tests.redis_server import HOST, free_port

_STARTS_WITHIN = 60.0
# pytest takes away the right of others to its own directories.
_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
_LOCATIONS = ("/usr/lib/postgresql", "/opt/homebrew/opt", "/usr/local/opt")
USER = "spillgate"
PASSWORD = "p@ss/word?#"
PASSWORD_IN_URL = "p%40ss%2Fword%3F%23"


def postgres_bin() -> Path:
    """The directory of its programs. Skips the test where PostgreSQL is not installed."""
    if found := shutil.which("postgres"):
        return Path(found).resolve().parent
    places = sorted(one for place in _LOCATIONS for one in Path(place).glob("*/bin/initdb"))
    if not places:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql, or brew install postgresql.")
    return places[-1].parent


def other_user() -> list[str]:
    """The command that drops root: initdb and postgres refuse it."""
    if os.getuid() != 0:
        return []
    account = pwd.getpwnam(_account())
    return ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]


def _account() -> str:
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        return "nobody"
    return "postgres"


def give_away(path: Path) -> None:
    """To the account that PostgreSQL runs as."""
    if os.getuid() == 0:
        shutil.chown(path, _account())


def _run(name: str, *arguments: str, environment: dict[str, str] | None = None, given: str = "") -> None:
    done = subprocess.run(
        [*other_user(), str(postgres_bin() / name), *arguments],
        env={**os.environ, **(environment or {})},
        input=given,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr


@cache
def _template() -> tempfile.TemporaryDirectory[str]:
    """The output of initdb, made once and copied: a copy takes a tenth of the time."""
    made = tempfile.TemporaryDirectory(prefix="spillgate-postgres-", dir=_MEMORY)
    place = Path(made.name)
    give_away(place)
    with tempfile.NamedTemporaryFile("w", dir=_MEMORY) as secret:
        secret.write(PASSWORD)
        secret.flush()
        give_away(Path(secret.name))
        options = ("-U", USER, f"--pwfile={secret.name}", "--auth=scram-sha-256", "--no-sync")
        _run("initdb", "-D", made.name, *options)
    database = "CREATE DATABASE ledger TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
    password = f"ALTER USER {USER} PASSWORD '{_quick_secret()}'"
    _run("postgres", "--single", "-F", "-D", made.name, "postgres", given=f"{database}\n{password}\n")
    return made


def _quick_secret() -> str:
    """The password for SCRAM with one round of hashing: the usual 4096 take 10 ms of each connection."""
    salt = b"a salt of a test"
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), salt, 1)
    client, server = (hmac.digest(salted, name, "sha256") for name in (b"Client Key", b"Server Key"))
    kept = hashlib.sha256(client).digest()
    texts = [base64.b64encode(one).decode() for one in (salt, kept, server)]
    return f"SCRAM-SHA-256$1:{texts[0]}${texts[1]}:{texts[2]}"


class PostgresServer:
    """Keeps its port and its directory over `kill` and `start`. `options` are lines of postgresql.conf."""

    def __init__(
        self, *, syncs: bool = True, options: Sequence[str] = (), under: str | None = _MEMORY
    ) -> None:
        self.port = free_port()
        self._home = tempfile.TemporaryDirectory(prefix="spillgate-postgres-", dir=under)
        self.directory = Path(self._home.name) / "data"
        self._log = Path(self._home.name) / "log"
        self._lines = [
            f"fsync = {'on' if syncs else 'off'}",
            f"listen_addresses = '{HOST}'",
            f"port = {self.port}",
            "unix_socket_directories = ''",
            "max_connections = 200",
            "shared_buffers = 64MB",
            "autovacuum_naptime = 10s",
            "password_encryption = 'scram-sha-256'",
            *options,
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._primary: PostgresServer | None = None

    @property
    def url(self) -> str:
        return self.url_at(self.port)

    def url_at(self, port: int) -> str:
        return f"postgresql://{USER}:{PASSWORD_IN_URL}@{HOST}:{port}/ledger"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        if self._primary is not None:
            self._follow(self._primary)
            self.start()
            return self
        self.make()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Without a checkpoint.
        self._end(signal.SIGQUIT)
        self._home.cleanup()

    def make(self) -> None:
        """Its directory, with an empty database `ledger`."""
        give_away(Path(self._home.name))
        # cp keeps the owner of the files; shutil takes three times as long.
        subprocess.run(["cp", "-a", _template().name, str(self.directory)], check=True)
        self.configure()

    def _own_directory(self) -> None:
        self.directory.mkdir(mode=0o700, exist_ok=True)
        give_away(Path(self._home.name))
        give_away(self.directory)

    def configure(self, *lines: str) -> None:
        with (self.directory / "postgresql.auto.conf").open("w") as file:
            file.write("\n".join([*self._lines, *lines]) + "\n")
        with (self.directory / "pg_hba.conf").open("a") as file:
            file.write(f"host replication {USER} {HOST}/32 scram-sha-256\n")

    def start(self) -> None:
        """Returns when it takes connections. Raises AssertionError with its log if it ends."""
        program = [*other_user(), str(postgres_bin() / "postgres"), "-D", str(self.directory)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(program, stdout=log, stderr=log)
        deadline = time.monotonic() + _STARTS_WITHIN
        while not self.answers():
            if (code := self._process.poll()) is not None:
                self._process = None
                raise AssertionError(f"postgres ended with {code}: {self.log()[-2000:]}")
            assert time.monotonic() < deadline, self.log()[-2000:]
            time.sleep(0.02)

    def answers(self) -> bool:
        """Returns whether the server asks for a password. While it starts, it answers with an error."""
        asked = b"\0\3\0\0user\0" + USER.encode() + b"\0\0"
        try:
            with socket.create_connection((HOST, self.port), timeout=_STARTS_WITHIN) as connection:
                connection.sendall(struct.pack("!i", 4 + len(asked)) + asked)
                return connection.recv(1) == b"R"
        except OSError:
            return False

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kills its processes with SIGKILL. Returns when all are gone: until then no server can start."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        children = psutil.Process(self.pid).children()
        self._signal_all(signal.SIGKILL)
        self._process.wait()
        self._process = None
        _, left = psutil.wait_procs(children, _STARTS_WITHIN)
        assert not left

    def pause(self) -> None:
        """From now on it accepts connections (the kernel does) and answers nothing."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, how: signal.Signals) -> None:
        """Signals the first process before its children: it would start new ones."""
        parent = psutil.Process(self.pid)
        children = parent.children()
        parent.send_signal(how)
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.send_signal(how)

    def sql(self, text: str, database: str = "ledger") -> str:
        """Runs statements, each on its own. Returns the rows as psql prints them, unaligned."""
        found = subprocess.run(
            [str(postgres_bin() / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", text],
            env={**os.environ, **self.environment(database)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.returncode == 0, found.stderr
        return found.stdout.strip()

    def environment(self, database: str = "ledger") -> dict[str, str]:
        """For psql, pg_dump and the like."""
        return {
            "PGHOST": HOST,
            "PGPORT": str(self.port),
            "PGUSER": USER,
            "PGPASSWORD": PASSWORD,
            "PGDATABASE": database,
        }

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def replica(self) -> "PostgresServer":
        """One that follows this server while it is a context."""
        made = PostgresServer()
        made._primary = self
        not_its = ("port", "synchronous")
        made._lines = [line for line in self._lines if not line.startswith(not_its)]
        made._lines += [f"port = {made.port}", "cluster_name = 'replica'"]
        return made

    def _follow(self, primary: "PostgresServer") -> None:
        self._own_directory()
        backup = ("pg_basebackup", "-D", str(self.directory), "-c", "fast", "-X", "stream")
        _run(*backup, environment=primary.environment())
        (self.directory / "standby.signal").touch()
        give_away(self.directory / "standby.signal")
        place = f"host={HOST} port={primary.port} user={USER}"
        self.configure(f"primary_conninfo = '{place} password=''{PASSWORD}'' application_name=replica'")

    def lag(self) -> None:
        """From now on it gets nothing from its primary."""
        self.configure()
        self.sql("SELECT pg_reload_conf()", "postgres")
        deadline = time.monotonic() + _STARTS_WITHIN
        while self.sql("SELECT count(*) FROM pg_stat_wal_receiver", "postgres") != "0":
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def promote(self) -> None:
        self.sql("SELECT pg_promote(true, 60)", "postgres")

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self.resume()
        self._process.send_signal(how)
        self._process.wait()
        self._process = None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with PostgresServer(syncs=False) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer, patient_redis: None) -> str:
    """The URL of the server that all tests share, emptied for this one."""
    postgres_server.sql("SET client_min_messages = warning; DROP SCHEMA IF EXISTS spillgate CASCADE")
    return postgres_server.url
