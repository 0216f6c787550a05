"""A service that answers with something else than it should, or never."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

DRIP_SECONDS = 0.05


@contextmanager
def answering(
    answer: bytes | list[bytes] | None, *, is_slow: bool = False, then: bytes = b""
) -> Iterator[str]:
    """The URL of a server that reads a request and answers with these bytes, or with the last of a list; with
    None, never. A slow one sends a byte at a time until the client closes the connection. `then` follows
    again and again until then."""
    done = threading.Event()

    def serve(connection: socket.socket) -> None:
        with closing(connection), suppress(OSError):
            _read_request(connection)
            if answer is None:
                done.wait()
            elif is_slow:
                for byte in answer:
                    connection.sendall(bytes([byte]))
                    if done.wait(DRIP_SECONDS):
                        break
            else:
                connection.sendall(answer[-1] if isinstance(answer, list) else answer)
                while then:
                    connection.sendall(then)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            done.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _read_request(connection: socket.socket) -> None:
    with connection.makefile("rb") as file:
        size = 0
        while line := file.readline().strip():
            name, _, value = line.partition(b":")
            size = int(value) if name.lower() == b"content-length" else size
        file.read(size)


def http(status: str, body: bytes = b"") -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status.encode(), len(body), body)


BAD_ANSWERS = {
    "4xx": http("404 Not Found", b'{"code": "not_found", "detail": "No."}'),
    "5xx": http("500 Internal Server Error"),
    "no HTTP": b"hello",
    "no JSON": http("200 OK", b"<html>"),
    "other JSON": http("200 OK", b'["pass"]'),
    "no outcome": http("200 OK", b'{"content": "x"}'),
    "no content": http("200 OK", b'{"outcome": "store"}'),
    "cut": b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
    "closed": b"",
    "huge length": b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999999\r\n\r\n{}",
    "length past any index": b"HTTP/1.1 200 OK\r\nContent-Length: %b\r\n\r\n{}" % (b"9" * 30),
    "huge chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffff\r\n{}",
    "negative chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n{}",
}

OF_THE_SERVICE = {
    name: BAD_ANSWERS[name] for name in ("5xx", "no JSON", "other JSON", "no outcome", "no content", "cut")
}
"""Those that a program tells apart. How the client that all programs share reads the others is tested in
tests/clients/test_python_client.py."""
