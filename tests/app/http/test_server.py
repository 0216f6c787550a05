"""Sockets, signals and the end of a process."""

import contextlib
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.http.edge import server as serving
from app.http.edge.sockets import open_sockets
from domain.errors import ConfigError
from tests.app.http.edge_support import head, problem_of, read_all, settings_of, wait_for
from tests.faults.forking import start_process

SERVICE = str(Path(__file__).with_name("edge_app.py"))


class Process:
    """A server in a process of its own. Its log is read from a file, so that it never blocks."""

    def __init__(self, log: Path, *arguments: str, **settings: str) -> None:
        self.log = log
        given = {f"SPILLGATE_{name.upper()}": value for name, value in settings.items()}
        given = {"SPILLGATE_PORT": "0", "SPILLGATE_STORAGE_URL": "memory:"} | given
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SPILLGATE_")}
        self._process = start_process((SERVICE, *arguments), kept | given, log)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def address(self) -> str:
        wait_for(lambda: '"listening"' in self.log.read_text() or not self._process.is_alive())
        return next(line["address"] for line in self.lines() if line["event"] == "listening")

    def connect(self) -> socket.socket:
        host, _, port = self.address().removeprefix("http://").rpartition(":")
        return socket.create_connection((host, int(port)), timeout=60)

    def has_read(self) -> None:
        """Returns when the server has read what was sent to it on connections before this one."""
        with self.connect() as sock:
            sock.sendall(head("GET", "/hello", "Connection: close"))
            assert read_all(sock).endswith(b"default")

    def refuses(self) -> bool:
        try:
            self.connect().close()
        except OSError:
            return True
        return False

    def stop(self, number: int = signal.SIGTERM) -> int:
        """The exit code, within less than GRACEFUL_SECONDS."""
        self.send_signal(number)
        return self.wait()

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()
        self.wait()

    def wait(self) -> int:
        """The exit code."""
        self._process.join(20)
        assert self._process.exitcode is not None
        return self._process.exitcode


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:

        def spawned(*arguments: str, **settings: str) -> Process:
            process = Process(tmp_path / f"log-{time.monotonic_ns()}", *arguments, **settings)
            stack.callback(process.kill)
            return process

        yield spawned


def test_a_shutdown_that_hangs_is_cut_off(spawn: Any) -> None:
    process = spawn("hang")
    process.address()
    began = time.monotonic()
    assert process.stop() == 1
    assert time.monotonic() - began > 0.9


def test_idle_and_half_said_connections_do_not_hold_up_the_end(spawn: Any) -> None:
    process = spawn()
    with process.connect(), process.connect() as half:
        half.sendall(b"GET /hello HTTP/1.1\r\n")
        process.has_read()
        assert process.stop(signal.SIGINT) == 0


def test_a_failed_start_exits_with_its_reason_on_one_line(spawn: Any) -> None:
    process = spawn("fail")
    assert process.wait() == 3
    assert "domain.errors.ConfigError: Set this to that." in [line["event"] for line in process.lines()]


def test_the_log_is_json_and_holds_no_message_of_an_exception(spawn: Any) -> None:
    process = spawn()
    answer = httpx.get(f"{process.address()}/results/S3cretMarker/content?S3cretMarker", trust_env=False)
    assert problem_of(b"HTTP/1.1 500 " + raw(answer))["code"] == "internal_error"
    assert process.stop() == 0
    assert "S3cretMarker" not in process.log.read_text()
    failed = [line for line in process.lines() if "error" in line]
    assert [line["error"]["type"] for line in failed] == ["RuntimeError"]
    assert "edge_support.py" in failed[0]["error"]["frames"][-1]


def raw(answer: httpx.Response) -> bytes:
    lines = b"".join(b"%b: %b\r\n" % header for header in answer.headers.raw)
    return lines + b"\r\n" + answer.content


def test_a_unix_socket_is_private_served_and_removed(spawn: Any, tmp_path: Path) -> None:
    path = tmp_path / "run" / "gate.sock"
    process = spawn(uds=str(path))
    assert process.address() == f"unix:{path}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://any") as client:
        assert client.get("/hello").text == "default"
    second = spawn(uds=str(path))
    assert second.wait() == 1
    assert "in use by another process" in second.log.read_text()
    assert process.stop() == 0
    assert not path.exists()


def test_a_killed_servers_socket_is_replaced(spawn: Any, tmp_path: Path) -> None:
    path = tmp_path / "run" / "gate.sock"
    first = spawn(uds=str(path))
    first.address()
    first.stop(signal.SIGKILL)
    assert path.exists()
    assert spawn(uds=str(path)).address() == f"unix:{path}"


def refusal_of(**settings: Any) -> str:
    with pytest.raises(ConfigError) as caught, open_sockets(settings_of(**settings)):
        pass
    return str(caught.value)


def test_a_directory_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    refusal = refusal_of(uds=tmp_path / "gate.sock")
    assert "and could reach the socket." in refusal
    assert refusal.endswith(f"chmod 700 {tmp_path}")
    # Others use this one, as /tmp.
    tmp_path.chmod(0o1777)
    refusal = refusal_of(uds=tmp_path / "gate.sock")
    assert refusal.endswith("could put a socket of theirs there. Choose a directory of your own.")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory away")
def test_a_directory_of_someone_else_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    os.chown(tmp_path, 12345, 12345)
    assert "directory of your own" in refusal_of(uds=tmp_path / "gate.sock")


def test_what_is_not_a_socket_is_left_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "gate.sock").write_text("precious")
    assert "not a socket" in refusal_of(uds=tmp_path / "gate.sock")
    assert (tmp_path / "gate.sock").read_text() == "precious"


def test_a_path_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    assert "shorter path" in refusal_of(uds=tmp_path / ("x" * 120))


def test_a_socket_that_is_not_ours_any_more_is_not_removed(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    path = tmp_path / "gate.sock"
    with open_sockets(settings_of(uds=path)):
        path.unlink()
        path.write_text("another's")
    assert path.exists()


def test_a_port_in_use_is_refused_with_what_to_do() -> None:
    with open_sockets(settings_of()) as sockets:
        port = sockets.listening[0].getsockname()[1]
        assert sockets.address == f"http://127.0.0.1:{port}"
        assert refusal_of(port=port).endswith("or set SPILLGATE_PORT to another one.")


def test_a_host_that_is_not_ours_is_refused() -> None:
    assert "SPILLGATE_HOST" in refusal_of(host="192.0.2.1")
    assert "SPILLGATE_HOST" in refusal_of(host="no such host")


def test_an_ipv6_address_is_written_in_brackets() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        with open_sockets(settings_of(host="::1")) as sockets:
            assert sockets.address.startswith("http://[::1]:")
    except ConfigError:
        pytest.skip("no IPv6 here")


LATER = {
    *("redis", "obstore", "cryptography", "opentelemetry.sdk", "httpx", "genai_prices", "duckdb"),
    *("extraction.ladder", "extraction.models.openai", "extraction.retrieve", "extraction.full_chunked"),
    *("content.formats", "content.describe"),
    *("splintr", "jmespath"),
}
"""What a start on disk and SQLite needs nothing of. It is imported where it is used."""


def test_a_start_imports_nothing_that_only_later_requests_or_other_settings_need() -> None:
    started = "import sys, app.cli.main, app.http.edge.server, app.main"
    code = f"{started}; print(*sorted({LATER!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
        assert serving.raise_open_files() == (sys.maxsize if hard == resource.RLIM_INFINITY else hard)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
