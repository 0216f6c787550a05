"""An httpx client whose ordinary requests take a fifth of the processor time: fault tests send thousands."""

import asyncio
import json
import re
from collections.abc import AsyncIterable
from types import TracebackType
from typing import Any

import httpx

_ORDINARY = re.compile(r"/[\w./~?=&,:-]*", re.ASCII)
_GIVEN = {"content", "json", "params", "headers"}


class QuickClient(httpx.AsyncClient):
    """Answers and errors are those of httpx, which sends what is not ordinary: streams that are read piece by
    piece, and paths that it must quote."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._idle: dict[tuple[str, int], list[_Connection]] = {}

    async def request(self, method: str, url: Any, **given: Any) -> httpx.Response:  # type: ignore[override]
        given = {
            name: value
            for name, value in given.items()
            if value is not None and value is not httpx.USE_CLIENT_DEFAULT
        }
        is_ordinary = (
            given.keys() <= _GIVEN
            and method != "HEAD"
            and isinstance(url, str)
            and _ORDINARY.fullmatch(url)
            and ".." not in url
            and not ("params" in given and "?" in url)
        )
        if not is_ordinary:
            return await super().request(method, url, **given)
        if given.get("params"):
            url = f"{url}?{httpx.QueryParams(given['params'])}"
        content = given.get("content")
        fields = {name.lower(): value for name, value in self.headers.items()}
        if "json" in given:
            content = json.dumps(given["json"], ensure_ascii=False, separators=(",", ":"), allow_nan=False)
            fields["content-type"] = "application/json"
        fields |= {name.lower(): value for name, value in dict(given.get("headers", {})).items()}
        if isinstance(content, str):
            content = content.encode()
        if isinstance(content, AsyncIterable):
            fields["transfer-encoding"] = "chunked"
        elif content or method in ("POST", "PUT", "PATCH"):
            fields["content-length"] = str(len(content or b""))
        host, port = self.base_url.host, self.base_url.port or 80
        fields = {"host": f"{host}:{port}"} | fields
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        head = f"{method} {url} HTTP/1.1\r\n{lines}\r\n".encode()
        try:
            async with asyncio.timeout(self.timeout.read):
                answer = await self._exchanged((host, port), head, content or b"")
        except TimeoutError:
            raise httpx.ReadTimeout("") from None
        answer.request = httpx.Request(method, f"http://{host}:{port}{url}")
        return answer

    async def _exchanged(
        self, place: tuple[str, int], head: bytes, content: bytes | AsyncIterable[bytes]
    ) -> httpx.Response:
        connection = await self._connected(place)
        try:
            answer = await connection.exchanged(head, content)
        except BaseException:
            connection.abort()
            raise
        if connection.is_idle and answer.headers.get("connection") != "close":
            self._idle.setdefault(place, []).append(connection)
        else:
            connection.abort()
        return answer

    async def _connected(self, place: tuple[str, int]) -> "_Connection":
        idle = self._idle.get(place, [])
        while idle:
            if (connection := idle.pop()).is_idle:
                return connection
        try:
            _, connection = await asyncio.get_running_loop().create_connection(_Connection, *place)
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        return connection

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self._drop()
        await super().__aexit__(kind, error, trace)

    async def aclose(self) -> None:
        self._drop()
        await super().aclose()

    def _drop(self) -> None:
        for connection in [one for idle in self._idle.values() for one in idle]:
            connection.abort()
        self._idle.clear()


class _Connection(asyncio.Protocol):
    """One answer at a time; one that comes before the end of its request counts."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._head = b""
        self._size: int | None = None
        self._parts: list[bytes] | None = None
        """Of a body in chunks."""
        self._answer: asyncio.Future[httpx.Response] | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._transport: Any = None
        self._is_over = self._is_cut = False

    @property
    def is_idle(self) -> bool:
        return not (self._is_over or self._is_cut or self._received or self._transport.is_closing())

    def abort(self) -> None:
        self._transport.abort()

    async def exchanged(self, head: bytes, content: bytes | AsyncIterable[bytes]) -> httpx.Response:
        self._answer = asyncio.get_running_loop().create_future()
        if isinstance(content, bytes):
            self._transport.write(head + content)
        else:
            self._transport.write(head)
            await self._send(content, self._answer)
        return await self._answer

    async def _send(self, content: AsyncIterable[bytes], answer: asyncio.Future[httpx.Response]) -> None:
        async for piece in content:
            if answer.done():
                self._is_cut = True
                return
            if piece:
                self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await asyncio.sleep(0)
            await self._room.wait()
        self._transport.write(b"0\r\n\r\n")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._read()

    def eof_received(self) -> None:
        self._ended(httpx.RemoteProtocolError("Server disconnected without sending a whole response."))

    def connection_lost(self, error: Exception | None) -> None:
        self._room.set()
        self._ended(httpx.ReadError(str(error or "")))

    def _ended(self, error: Exception) -> None:
        self._is_over = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def _read(self) -> None:
        while not self._head:
            head, found, _ = self._received.partition(b"\r\n\r\n")
            if not found:
                return
            del self._received[: len(head) + 4]
            if not head.startswith(b"HTTP/1.1 1"):
                self._begin(bytes(head))
        if self._parts is not None:
            self._read_chunks()
        elif self._size is not None and len(self._received) >= self._size:
            self._done(bytes(self._received[: self._size]), self._size)

    def _begin(self, head: bytes) -> None:
        self._head = head
        fields = head.lower()
        sized = re.search(rb"\r\ncontent-length: *(\d+)", fields)
        if b"\r\ntransfer-encoding: chunked" in fields:
            self._parts = []
        else:
            is_empty = head[9:12] in (b"204", b"304") or sized is None
            self._size = 0 if is_empty or sized is None else int(sized[1])

    def _read_chunks(self) -> None:
        assert self._parts is not None
        while (end := self._received.find(b"\r\n")) >= 0:
            size = int(self._received[:end].split(b";")[0], 16)
            if len(self._received) < end + 2 + size + 2:
                return
            self._parts.append(bytes(self._received[end + 2 : end + 2 + size]))
            if size == 0:
                return self._done(b"".join(self._parts), end + 4)
            del self._received[: end + 2 + size + 2]

    def _done(self, body: bytes, taken: int) -> None:
        del self._received[:taken]
        first, *lines = self._head.split(b"\r\n")
        fields = [(name, value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
        self._head, self._size, self._parts = b"", None, None
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(httpx.Response(int(first[9:12]), headers=fields, content=body))
