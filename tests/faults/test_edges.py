"""Whatever its size and however it arrives in pieces, what is kept is what was sent, to the last byte."""

import itertools
from pathlib import Path

import pytest

from tests.faults import audit
from tests.faults.calls import Call, Kept, read_back
from tests.faults.service_process import Services

pytestmark = pytest.mark.anyio

PIECE = 1 << 18
EDGES = (1 << 14, PIECE, 1 << 20, 5 * PIECE, 8 * PIECE)


async def test_around_every_size_at_which_the_way_changes_the_last_bytes_are_kept(
    services: Services, tmp_path: Path
) -> None:
    service = await services.start(tmp_path / "state")
    sizes = [edge + more for edge in EDGES for more in (-1, 0, 1, 1000, 1 << 14, (1 << 14) + 1)]
    text = b"0123456789abcde " * (max(sizes) // 16 + 1)
    async with service.client() as client:
        kept, faults = [], []
        for size, is_streamed in itertools.product(sizes, (True, False)):
            call = Call("edges", text[:size], None, is_streamed)
            answer = await call.send(client)
            measured = answer.json()["measure"]["bytes"]
            if measured != size:
                faults.append(f"{size} bytes were measured as {measured}")
                continue
            kept.append(Kept.of(call, answer))
            faults += await read_back(client, kept[-1])
        assert faults == []
        assert audit.lost(service.state, kept) == []
    assert await service.stop() == 0
