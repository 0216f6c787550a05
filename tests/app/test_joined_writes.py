"""What one step of the event loop writes is sent at once, and nothing of it is lost at the end."""

import asyncio
from collections.abc import Callable

import pytest

from app.edge.joined_writes import JOINED_BYTES, JoinedWrites

pytestmark = pytest.mark.anyio


class Socket(asyncio.Transport):
    """Notes what is sent and what ends it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes | str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent.append(bytes(data))

    def write_eof(self) -> None:
        self.sent.append("eof")

    def close(self) -> None:
        self.sent.append("closed")

    def abort(self) -> None:
        self.sent.append("aborted")

    def get_write_buffer_size(self) -> int:
        return 5


def joined() -> tuple[JoinedWrites, list[bytes | str]]:
    socket = Socket()
    return JoinedWrites(socket, asyncio.get_running_loop()), socket.sent


async def test_head_and_body_are_one_write() -> None:
    transport, sent = joined()
    transport.write(b"head")
    transport.write(b"body")
    assert sent == []
    assert transport.get_write_buffer_size() == 13
    await asyncio.sleep(0)
    assert sent == [b"headbody"]
    transport.write(b"next")
    await asyncio.sleep(0)
    assert sent == [b"headbody", b"next"]
    assert transport.get_write_buffer_size() == 5


async def test_what_is_large_does_not_wait() -> None:
    transport, sent = joined()
    transport.write(b"head")
    transport.write(b"x" * JOINED_BYTES)
    assert sent == [b"head" + b"x" * JOINED_BYTES]
    await asyncio.sleep(0)
    assert len(sent) == 1


@pytest.mark.parametrize(
    ("end", "left"),
    [
        (JoinedWrites.close, [b"head", "closed"]),
        (JoinedWrites.write_eof, [b"head", "eof"]),
        (JoinedWrites.abort, ["aborted"]),
    ],
)
async def test_an_end_sends_what_was_written_before_and_an_abort_drops_it(
    end: Callable[[JoinedWrites], None],
    left: list[bytes | str],
) -> None:
    transport, sent = joined()
    transport.write(b"head")
    end(transport)
    await asyncio.sleep(0)
    assert sent == left
