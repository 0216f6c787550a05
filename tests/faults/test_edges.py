"""Whatever its size and however it arrives in pieces, what is kept is what was sent, to the last byte."""

from pathlib import Path

import pytest

from tests.faults import audit
from tests.faults.calls import Call, Kept, read_back
from tests.faults.service import Services

pytestmark = pytest.mark.anyio

PIECE = 1 << 18
EDGES = (1 << 14, PIECE, 1 << 20, 5 * PIECE, 8 * PIECE)


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_around_every_size_at_which_the_way_changes_the_last_bytes_are_kept(
    services: Services, tmp_path: Path, is_streamed: bool
) -> None:
    service = await services.start(tmp_path / "state")
    async with service.client() as client:
        kept, faults = [], []
        for edge in EDGES:
            for more in (-1, 0, 1, 1000, 1 << 14, (1 << 14) + 1):
                content = (b"0123456789abcde " * (edge // 16 + 2000))[: edge + more]
                call = Call("edges", content, None, is_streamed)
                answer = await call.send(client)
                measured = answer.json()["measure"]["bytes"]
                if measured != len(content):
                    faults.append(f"{len(content)} bytes were measured as {measured}")
                    continue
                kept.append(Kept.of(call, answer))
                faults += await read_back(client, kept[-1])
        assert faults == []
        assert audit.lost(service.state, kept) == []
    assert await service.stop() == 0
