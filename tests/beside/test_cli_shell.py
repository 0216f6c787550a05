"""The commands that speak to a running service: processes of their own, over a socket, against a service."""

import array
import asyncio
import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from machine.addresses import address_of
from policies.outcomes.store import TOO_LARGE
from tests.faults.forking import ROOT, run
from tests.faults.service_process import Services
from tests.keys import key_file
from tests.misbehaving_server import OF_THE_SERVICE, answering, http

KEY = "sk-shell-0123456789"
LOG = "".join(f"{n} INFO request {n} was served\n" for n in range(8_000)).replace(
    "4711 INFO request 4711 was served", "4711 ERROR disk /dev/sdb1 is full"
)
HEAVY = ("fastapi", "pydantic", "httpx", "asyncio", "app.settings", "msgspec")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """That of a service with a key."""
    place = tmp_path_factory.mktemp("service")
    keys = key_file(place / "keys", f"acme:{KEY}")
    with Services(place) as services:
        started = asyncio.run(services.start(place / "state", api_keys_file=str(keys)))
        yield "http://{}:{}".format(*started.address)


@pytest.fixture
def socket_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """That of a service without keys on a Unix socket."""
    place = tmp_path_factory.mktemp("socket")
    place.chmod(0o700)
    with Services(place) as services:
        asyncio.run(services.start(place / "state", ("-m", "beside.main", "serve"), uds=str(place / "s")))
        yield f"unix:{place / 's'}"


def environment(**settings: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPILLGATE_")}
    given = {f"SPILLGATE_{name.upper()}": value for name, value in settings.items()}
    return kept | {"SPILLGATE_AUTO_START": "false"} | given | {"PYTHONWARNINGS": "error"}


def spillgate(*arguments: str, stdin: bytes = b"", **settings: str) -> subprocess.CompletedProcess[bytes]:
    return run(("-m", "beside.main", *arguments), environment(**settings), stdin)


def python(*options: str, stdin: bytes, **settings: str) -> subprocess.CompletedProcess[bytes]:
    """In an interpreter that has imported nothing yet."""
    given = environment(**settings)
    return subprocess.run([sys.executable, *options], input=stdin, cwd=ROOT, env=given, capture_output=True)


def test_a_large_output_is_replaced_and_asked_about(url: str) -> None:
    given = {"url": url, "key": KEY}
    piped = spillgate("pipe", "--tool", "journal", "--session", "s", stdin=LOG.encode(), **given)
    assert (piped.returncode, piped.stderr) == (0, b"")
    said = piped.stdout.decode()
    assert said.startswith(f"{TOO_LARGE} ({len(LOG)} bytes, 8000 lines, ")
    assert "spillgate query" in said
    handle = re.search(r"session-s/file-[0-9a-f-]{36}", said)
    assert handle is not None
    for arguments, found in (
        (("ask", handle[0], "Which disk is full?"), "4711 ERROR disk /dev/sdb1 is full"),
        (("ask", handle[0], "Which disk is full?", "--mode", "truncate"), "STRATEGY:truncate"),
        (("grep", handle[0], "error", "--ignore-case", "--context", "1"), "4711- 4710 INFO request 4710"),
        (("grep", handle[0], "INFO", "--offset", "4712"), "4713: 4712 INFO request 4712 was served"),
        (("lines", handle[0], "4712", "1"), "4711 ERROR disk /dev/sdb1 is full"),
    ):
        answer = spillgate(*arguments, **given)
        assert (answer.returncode, answer.stderr) == (0, b""), arguments
        assert found in answer.stdout.decode(), arguments


def test_a_query_selects_from_json(url: str) -> None:
    rows = ", ".join(f'{{"name": "n{n}", "price": {n}}}' for n in range(2000))
    piped = spillgate("pipe", stdin=f"[{rows}]".encode(), url=url, key=KEY, session="rows")
    handle = re.search(rb"session-rows/file-[0-9a-f-]{36}", piped.stdout)
    assert handle is not None
    answer = spillgate("query", handle[0].decode(), "[?price > `1998`].name", url=url, key=KEY)
    assert (answer.returncode, answer.stdout) == (0, b'["n1999"]\n')
    sql = "select count(*) as n, sum(price) from data where price > 1998"
    answer = spillgate("query", handle[0].decode(), sql, url=url, key=KEY)
    assert answer.returncode == 0
    assert answer.stdout.splitlines()[0] == b"n | sum(price)"
    answer = spillgate("query", handle[0].decode(), "[?", url=url, key=KEY)
    assert answer.returncode == 1
    assert b"expression" in answer.stdout


def test_what_fits_passes_byte_for_byte(url: str) -> None:
    for text in [b"", b"On branch main\n", b"no newline \xc3\xa9", b"x\0y\r\n"]:
        piped = spillgate("pipe", stdin=text, url=url, key=KEY)
        assert (piped.returncode, piped.stdout, piped.stderr) == (0, text, b"")


def test_a_unix_socket_is_spoken_to(socket_url: str) -> None:
    piped = spillgate("pipe", stdin=LOG.encode(), url=socket_url)
    assert piped.stdout.startswith(TOO_LARGE.encode())
    piped = spillgate("pipe", stdin=LOG.encode(), uds=socket_url.removeprefix("unix:"))
    assert piped.stdout.startswith(TOO_LARGE.encode())


def is_bounded(shown: bytes, sent: bytes) -> bool:
    """Whether it is all that was sent, or its ends about a line that says how much is missing."""
    if len(sent) <= 12_288:
        return shown == sent
    head, gone, tail = re.split(rb"\n\[(\d+) bytes not shown: the output could not be stored\]\n", shown)
    is_all = len(head) + int(gone) + len(tail) == len(sent) and len(head) == len(tail) == 6144
    return is_all and sent.startswith(head) and sent.endswith(tail)


def test_ctrl_c_prints_what_has_come_without_a_traceback(url: str) -> None:
    for target, sent in ((url, b"some lines\n"), ("http://127.0.0.1:1", LOG.encode()), (url, LOG.encode())):
        environ = {"PATH": os.environ["PATH"], "SPILLGATE_URL": target, "SPILLGATE_KEY": KEY}
        environ["SPILLGATE_AUTO_START"] = "false"
        command = [sys.executable, "-m", "beside.main", "pipe"]
        pipe = subprocess.PIPE
        # A shell starts its background jobs, such as these tests, with SIGINT ignored.
        heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        with subprocess.Popen(
            command, env=environ, stdin=pipe, stdout=pipe, stderr=pipe, preexec_fn=heed
        ) as piping:
            assert piping.stdin is not None
            piping.stdin.write(sent)
            piping.stdin.flush()
            # Once it sleeps in its read, with an empty pipe, it has all of it.
            while not is_reading(piping.pid, piping.stdin.fileno()):
                time.sleep(0.01)
            piping.send_signal(signal.SIGINT)
            shown, said = piping.communicate()
        assert piping.returncode == 130
        assert b"Traceback" not in said
        if target == url and sent == LOG.encode():
            assert shown.startswith(TOO_LARGE.encode())
        else:
            assert is_bounded(shown, sent)


def is_reading(process: int, pipe: int) -> bool:
    """Whether the pipe is empty, and the process sleeps in a read."""
    held = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, held)
    try:
        where = Path(f"/proc/{process}/wchan").read_text()
    except OSError:
        where = ""
    state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    return held[0] == 0 and state == "S" and (where in ("", "0") or "pipe" in where)


def test_whatever_fails_the_output_passes(url: str, tmp_path: Path) -> None:
    latin, large = b"caf\xe9\n" * 5000, b"0123456789abcde\n" * (70 << 16)
    silent = socket.create_server(("127.0.0.1", 0))
    closed = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_close_each, args=(closed,), daemon=True).start()
    with silent, closed:
        for stdin, given, why in (
            (latin, {"url": url, "key": KEY}, b"(400 invalid_utf8)"),
            (large, {"url": url, "key": KEY}, b"(413 body_too_large)"),
            (LOG.encode(), {"url": url, "key": "sk-wrong"}, b"take it from SPILLGATE_KEY"),
            (LOG.encode(), {"url": url, "key_file": str(tmp_path / "missing")}, b"KEY_FILE cannot be read"),
            (LOG.encode(), {"url": "ftp://x"}, b"SPILLGATE_URL must be"),
            (LOG.encode(), {"url": "http://127.0.0.1:1"}, b"correct SPILLGATE_URL"),
            (LOG.encode(), {"url": "http://a..b"}, b"no valid name"),
            (LOG.encode(), {"uds": f"{tmp_path}/none"}, b"or SPILLGATE_UDS"),
            (LOG.encode(), {"url": _url(closed)}, b"closed the connection"),
        ):
            piped = spillgate("pipe", stdin=stdin, **given)
            assert (piped.returncode, is_bounded(piped.stdout, stdin)) == (0, True), why
            assert why in piped.stderr
            assert piped.stderr.count(b"\n") == 1


@pytest.mark.parametrize("name", OF_THE_SERVICE)
def test_after_an_answer_that_is_no_outcome_the_output_passes(name: str) -> None:
    with answering(OF_THE_SERVICE[name]) as url:
        piped = spillgate("pipe", stdin=LOG.encode(), url=url)
        assert (piped.returncode, is_bounded(piped.stdout, LOG.encode())) == (0, True)
        asked = spillgate("lines", "session-s/file-x", "1", url=url)
    assert piped.stderr.startswith(b"spillgate pipe: ")
    assert b"?" not in piped.stderr
    assert asked.stderr.startswith(b"spillgate lines: ")
    assert (asked.returncode, asked.stdout) == (1, b"")
    assert piped.stderr.count(b"\n") == asked.stderr.count(b"\n") == 1


def test_a_service_that_sends_a_byte_at_a_time_is_not_waited_for() -> None:
    impatient = (
        "import beside.client as client; from beside.main import main; sent = client.ServiceClient.request;"
        "client.ServiceClient.request = lambda one, request: sent(one, request._replace(seconds=0.3));"
        "main(['pipe'])"
    )
    with answering(http("200 OK", b" " * (1 << 20)), is_slow=True) as url:
        piped = python("-c", impatient, stdin=b"text", url=url)
    assert piped.stdout == b"text"
    assert b"timed out" in piped.stderr


def test_names_in_no_encoding_lose_nothing(url: str) -> None:
    for stdin, output in ((b"text", b"text"), (LOG.encode(), TOO_LARGE.encode())):
        piped = spillgate("pipe", "--tool", "\udcff", stdin=stdin, url=url, key=KEY)
        assert (piped.returncode, piped.stdout[: len(output)], piped.stderr) == (0, output, b"")


def _close_each(server: socket.socket) -> None:
    while True:
        try:
            server.accept()[0].close()
        except OSError:
            return


def _url(server: socket.socket) -> str:
    return "http://{}:{}".format(*server.getsockname()[:2])


def test_memory_is_bounded_also_on_a_full_disk() -> None:
    """Files of the process may have 4 MiB, as if the disk were full then."""
    limited = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20));"
        "from beside.main import main; main(['pipe'])"
    )
    unlimited = (
        "import re, sys; from beside.main import main; main(['pipe']);"
        "print(re.search('VmHWM:(.*) kB', open('/proc/self/status').read())[1], file=sys.stderr)"
    )
    sent = bytes(range(256)) * (30 << 12)
    for code in (limited, unlimited):
        piped = python("-c", code, stdin=sent, url="http://127.0.0.1:1")
        assert is_bounded(piped.stdout, sent)
        assert b"Its head and tail are shown." in piped.stderr
    assert int(piped.stderr.split()[-1]) < 30_000


def test_a_question_without_a_service_fails_with_one_line() -> None:
    asked = spillgate("ask", "session-s/file-x", "what?", url="http://127.0.0.1:1")
    assert (asked.returncode, asked.stdout) == (1, b"")
    assert asked.stderr.startswith(b"spillgate ask: No service answers at http://127.0.0.1:1: ")
    asked = spillgate("grep", "session-s/file-x", "what", url="http://127.0.0.1")
    assert asked.stderr.count(b"\n") == 1


def test_a_text_that_says_why_there_is_no_answer_is_status_1(url: str) -> None:
    asked = spillgate("lines", f"session-s/file-{'0' * 36}", "1", url=url, key=KEY)
    assert asked.returncode == 1
    assert b"handle" in asked.stdout


def test_the_newest_stored_result_is_named_last(url: str) -> None:
    given = {"url": url, "key": KEY, "session": "newest"}
    asked = spillgate("ask", "@last", "Which disk is full?", **given)
    assert (asked.returncode, asked.stdout) == (1, b"")
    assert b"Nothing is stored" in asked.stderr
    empty = spillgate("ask", "@last", " ", **given)
    assert (empty.returncode, empty.stdout) == (2, b"")
    assert b'The question is empty. Say what you look for: spillgate ask @last "' in empty.stderr
    assert spillgate("ls", **given).stdout == b"Nothing is stored.\n"
    for number in (1, 2):
        spillgate("pipe", "--tool", f"tool-{number}", stdin=f"{LOG}end {number}\n".encode(), **given)
    shown = spillgate("cat", "@last", **given)
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert shown.stdout == f"{LOG}end 2\n".encode()
    for command, *arguments in (("ask", "Which disk is full?"), ("grep", "disk"), ("lines", "4712", "1")):
        answer = spillgate(command, "@last", *arguments, **given)
        assert (answer.returncode, answer.stderr) == (0, b"")
        assert b"4711 ERROR disk /dev/sdb1 is full" in answer.stdout


def test_stored_results_are_listed_newest_first(url: str) -> None:
    given = {"url": url, "key": KEY, "session": "listed"}
    for number in range(3):
        spillgate("pipe", "--tool", f"tool-{number}", stdin=LOG.encode(), **given)
    head, *rows, more = spillgate("ls", "--limit", "2", **given).stdout.decode().splitlines()
    assert head.split() == ["STORED", "BYTES", "TOOL", "COMMAND", "HANDLE"]
    assert [row.split()[2:4] for row in rows] == [[f"{len(LOG):,}", f"tool-{n}"] for n in (2, 1)]
    handle = rows[0].split()[-1]
    assert spillgate("cat", handle, **given).stdout == LOG.encode()
    assert more == "Older ones are stored, too: spillgate ls --limit 20"
    all_of_them = spillgate(*more.partition(": ")[2].split()[1:], **given).stdout.decode().splitlines()
    assert len(all_of_them) == 4
    wrong = spillgate("ls", "--limit", "0", **given)
    assert (wrong.returncode, wrong.stdout) == (2, b"")


def test_what_was_kept_out_is_shown_by_tool(url: str) -> None:
    given = {"url": url, "key": KEY, "session": "counted"}
    spillgate("pipe", "--tool", "journal", stdin=LOG.encode(), **given)
    spillgate("grep", "@last", "nowhere", **given)
    head, row, total = spillgate("stats", **given).stdout.decode().splitlines()
    assert head.split("  ")[-1] == "NET TOKENS KEPT OUT"
    assert row.split()[:-1] == ["journal", "1", "1", "1", "0"]
    assert int(row.split()[-1].replace(",", "")) > 50_000
    assert total.split()[1:] == row.split()[1:]


def test_no_line_found_is_status_1(url: str) -> None:
    given = {"url": url, "key": KEY, "session": "nothing"}
    spillgate("pipe", stdin=LOG.encode(), **given)
    for arguments in (("grep", "@last", "nowhere"), ("lines", "@last", "99999")):
        answer = spillgate(*arguments, **given)
        assert (answer.returncode, answer.stderr) == (1, b"")
        assert answer.stdout != b""


def test_the_program_alone_prints_its_help() -> None:
    alone = spillgate()
    assert (alone.returncode, alone.stderr) == (0, b"")
    assert alone.stdout.startswith(b"usage: spillgate COMMAND ...")


def test_the_commands_import_nothing_heavy() -> None:
    asked = python("-X", "importtime", "-m", "beside.main", "pipe", stdin=b"x", url="http://127.0.0.1:1")
    imported = {line.rpartition(b"|")[2].strip().decode() for line in asked.stderr.splitlines()}
    assert "http.client" in imported
    assert imported.isdisjoint(HEAVY)


def test_urls_of_a_service() -> None:
    for url, shown in [
        ("http://127.0.0.1:8377", "http://127.0.0.1:8377"),
        ("http://localhost/", "http://localhost:80"),
        ("https://host/spill/", "https://host:443"),
        ("http://[::1]:9", "http://[::1]:9"),
        ("unix:/run/s", "unix:/run/s"),
        ("unix:///run/s", "unix:/run/s"),
    ]:
        assert str(address_of(url)) == shown


def test_a_wrong_url_is_refused() -> None:
    for url in ["", "8377", "ftp://h", "http://", "http://h:x", "http://h?q", "http://[::1"]:
        with pytest.raises(ValueError, match=r"URL|[Pp]ort|IPv6"):
            address_of(url)


def test_cat_writes_a_result_a_part_of_it_or_where_it_is(url: str, socket_url: str, tmp_path: Path) -> None:
    given = {"url": url, "key": KEY, "session": "cat"}
    spillgate("pipe", stdin=LOG.encode(), **given)
    handle = spillgate("ls", **given).stdout.decode().split()[-1]
    for name in (handle, f"spillgate://{handle}"):
        assert spillgate("cat", name, **given).stdout == LOG.encode()
    line = b"4711 ERROR disk /dev/sdb1 is full\n"
    for part in ("lines=4712", "pattern=ERROR", "pattern=disk%20"):
        shown = spillgate("cat", f"{handle}#{part}", **given)
        assert (shown.returncode, shown.stdout, shown.stderr) == (0, line, b"")
    assert spillgate("cat", "@last#lines=-1", **given).stdout == LOG.encode().splitlines(keepends=True)[-1]
    wrong = spillgate("cat", f"{handle}#rows=1", **given)
    assert (wrong.returncode, wrong.stdout) == (1, b"")
    assert wrong.stderr.startswith(b"spillgate cat: After the handle comes nothing, #lines=")
    assert b"did not run" not in wrong.stderr
    unknown = spillgate("cat", handle[:-1] + ("0" if handle[-1] != "0" else "1"), **given)
    assert (unknown.returncode, unknown.stdout) == (1, b"")
    counted = spillgate("stats", **given).stdout.decode().splitlines()
    assert counted[1].split()[:3] == ["execute_shell", "1", "0"]
    # With keys, a caller may be on another machine.
    assert spillgate("cat", "--path", handle, **given).returncode == 1
    spillgate("pipe", "--session", "cat", stdin=LOG.encode(), url=socket_url)
    path = spillgate("cat", "--path", "@last", url=socket_url).stdout.decode().strip()
    assert Path(path).read_bytes() == LOG.encode()


def test_what_a_full_disk_leaves_of_the_output_fails_the_command(url: str, tmp_path: Path) -> None:
    """A limit of the shell stands for the full disk: it takes the first 512 bytes of a write."""
    given = {"url": url, "key": KEY, "session": "full"}
    spillgate("pipe", stdin=LOG.encode(), **given)
    for command in ("pipe", "cat '@last#lines=1-500'"):
        confined = f"ulimit -f 1; exec {sys.executable} -m beside.main {command} > {tmp_path / 'out'}"
        for unbuffered in ("", "1"):
            ran = subprocess.run(
                ["sh", "-c", confined],
                cwd=ROOT,
                env=environment(**given) | {"PYTHONUNBUFFERED": unbuffered},
                input=b"no large output, buffer %s\n" % unbuffered.encode() * 50,
                capture_output=True,
            )
            told = b"spillgate: The output cannot be written: File too large.\n"
            assert (ran.returncode, ran.stderr) == (1, told), (command, unbuffered)


def test_cat_holds_no_large_result_whole() -> None:
    """150 MiB come through a process that may take 100 MiB."""
    size = 150 << 20
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size
    confined = f"ulimit -v {100 << 10}; exec {sys.executable} -m beside.main cat session-a/file-b | wc -c"
    with answering(head, then=b"x" * (1 << 20)) as url:
        ran = subprocess.run(
            ["sh", "-c", confined], cwd=ROOT, env=environment(url=url), capture_output=True, timeout=120
        )
    assert (int(ran.stdout), ran.stderr) == (size, b"")
