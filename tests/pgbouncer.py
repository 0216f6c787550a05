"""PgBouncer in transaction mode before a PostgreSQL of a test."""

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.postgres_server import PASSWORD, USER, PostgresServer, give_away, other_user
from tests.redis_server import HOST, free_port

_STARTS_WITHIN = 30.0


class PgBouncer:
    POOL = 3
    """Its connections to the server."""

    def __init__(self, server: PostgresServer) -> None:
        self.port = free_port()
        self._server = server
        self._home = tempfile.TemporaryDirectory(prefix="spillgate-pgbouncer-")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        found = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin")
        if found is None:
            pytest.skip("PgBouncer is not installed: apt-get install pgbouncer, or brew install pgbouncer.")
        self._program = found
        home = Path(self._home.name)
        (home / "users").write_text(f'"{USER}" "{PASSWORD}"\n')
        (home / "pgbouncer.ini").write_text(
            f"[databases]\nledger = host={HOST} port={self._server.port} dbname=ledger\n"
            f"[pgbouncer]\nlisten_addr = {HOST}\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = plain\nauth_file = {home}/users\npool_mode = transaction\nadmin_users = {USER}\n"
            f"default_pool_size = {self.POOL}\nmax_client_conn = 200\nlogfile = {home}/log\n"
        )
        for path in (home, *home.iterdir()):
            give_away(path)
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._home.cleanup()

    def restart(self) -> None:
        """All of its connections end."""
        self._stop()
        self._start()

    def most_servers(self) -> int:
        """How many connections of the ledger the server has."""
        text = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'spillgate'"
        return int(self._server.sql(text))

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [*other_user(), self._program, "-q", f"{self._home.name}/pgbouncer.ini"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + _STARTS_WITHIN
        while not self._answers():
            assert time.monotonic() < deadline
            assert self._process.poll() is None
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), timeout=5).close()
        except OSError:
            return False
        return True

    def _stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait()
            self._process = None
