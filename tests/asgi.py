"""The scope of a request that a test sends to the app without a client, to choose what is received when."""

from typing import Any


def post_scope(path: str, body: bytes, **headers: str) -> dict[str, Any]:
    """`POST path` with this JSON body to http://localhost:8377."""
    sent = {"host": "localhost:8377", "content-type": "application/json", "content-length": str(len(body))}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in (sent | headers).items()],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 8377),
    }
