"""What the start finds out about an object store, and refuses."""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest

from domain.errors import ConfigError
from storage import open_store
from tests.conftest import Serve
from tests.faults.service_process import Services

pytestmark = pytest.mark.anyio
Url = Callable[[int], str]


class _Bucket(BaseHTTPRequestHandler):
    """A small server of the S3 protocol. `honours`: the conditions that it knows."""

    protocol_version = "HTTP/1.1"
    honours: ClassVar[set[str]] = set()
    keeps: ClassVar[bool] = True
    held: ClassVar[dict[str, bytes]] = {}

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        before = self.held.get(self.path)
        must_not = "If-None-Match" in self.honours and self.headers["If-None-Match"] == "*"
        match = self.headers["If-Match"] if "If-Match" in self.honours else None
        if (must_not and before is not None) or (match and (before is None or match != _e_tag(before))):
            return self._answer(412)
        self.held[self.path] = body if self.keeps else b"other"
        return self._answer(200, e_tag=_e_tag(body))

    def do_GET(self) -> None:
        if "list-type" in self.path:
            return self._answer(200, b"<ListBucketResult><KeyCount>0</KeyCount></ListBucketResult>")
        body = self.held.get(self.path)
        return self._answer(404) if body is None else self._answer(200, body, _e_tag(body))

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        keys = b"".join(re.findall(rb"<Key>.*?</Key>", asked))
        self._answer(200, b"<DeleteResult><Deleted>%b</Deleted></DeleteResult>" % keys)

    def _answer(self, status: int, body: bytes = b"", e_tag: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Sat, 21 Nov 2026 00:00:00 GMT")
        self.send_header("ETag", e_tag)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


def _e_tag(body: bytes) -> str:
    return f'"{body.hex()[:32]}"'


@contextmanager
def _served(honours: set[str], keeps: bool = True) -> Iterator[int]:
    handler = type("Handler", (_Bucket,), {"honours": honours, "keeps": keeps, "held": {}})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


async def _opens(url: str) -> None:
    store = await open_store(url, clock=lambda: 0, retention_seconds=60, max_bytes=0)
    await store.check()
    await store.close()


@pytest.mark.parametrize(
    ("honours", "keeps", "refusal"),
    [
        (set(), True, "ignores conditional writes"),
        ({"If-None-Match"}, True, "ignores conditional writes"),
        ({"If-Match"}, True, "ignores conditional writes"),
        ({"If-None-Match", "If-Match"}, False, "ignores conditional|does not return what it was given"),
        ({"If-None-Match", "If-Match"}, True, None),
    ],
)
async def test_a_server_that_does_not_keep_its_promises_is_refused(
    url: Url, honours: set[str], keeps: bool, refusal: str | None
) -> None:
    with _served(honours, keeps) as port:
        if refusal is None:
            await _opens(url(port))
        else:
            with pytest.raises(ConfigError, match=refusal):
                await _opens(url(port))


async def test_a_bucket_that_is_not_there_and_a_server_that_is_away_are_refused(
    url: Url, s3_port: int
) -> None:
    with pytest.raises(ConfigError, match=r"has no such bucket\. Check bucket, endpoint"):
        await _opens(url(s3_port).replace("results/", "nothing/"))
    with pytest.raises(ConfigError, match=r"did not answer\. Check bucket, endpoint"):
        await _opens(url(1))


async def test_credentials_are_in_no_log_error_or_configuration(
    url: Url, s3_port: int, serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ledger = f"sqlite://{tmp_path}/ledger.db"
    async with serve(storage_url=url(s3_port), ledger_url=ledger) as client:
        shown = [await client.get(path) for path in ("/config", "/healthz", "/readyz", "/metrics")]
        shown.append(await client.post("/results", json={"tool_name": "t", "content": "line\n" * 9000}))
        assert [one.status_code for one in shown] == [200, 200, 200, 200, 201]
        assert shown[-1].json()["durability"] == "object"
        assert "unencrypted" in shown[2].text
        assert "endpoint=http://127.0.0.1" in shown[0].text
        told = caplog.text + "".join(one.text for one in shown)
    assert "hunter" not in told.lower()


async def test_a_process_whose_store_is_refused_ends_and_says_why(
    services: Services, url: Url, tmp_path: Path
) -> None:
    ledger = f"sqlite://{tmp_path}/ledger.db"
    with _served(set()) as port:
        service = services.spawn(tmp_path, storage_url=url(port), ledger_url=ledger)
        assert await service.ended() == 2
    assert "ignores conditional writes" in service.tail()
    assert "hunter" not in service.tail().lower()
    # Nothing listens at port 1: what the settings lack is said first.
    unnamed = services.spawn(tmp_path, storage_url=url(1))
    assert await unnamed.ended() == 2
    assert "SPILLGATE_LEDGER_URL is not set" in unnamed.tail()
