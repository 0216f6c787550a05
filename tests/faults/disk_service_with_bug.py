"""The service with one fault put in, to show that the tests would see it: `early` or `in-place`."""

import asyncio
import os
import sys
import time
from types import TracebackType

from app.cli.main import main
from domain.results import Durability, StoredResult
from storage.disk import store
from storage.disk.draft import DiskDraft
from storage.disk.layout import Info, body_name, info_name

EARLY_SECONDS = 5.0
IN_PLACE_SECONDS = 1.0
"""Longer than a kill takes to come, on a busy machine too."""


class EarlyDraft(DiskDraft):
    """Says that it is published before it is."""

    _later: asyncio.Task[None] | None = None

    async def publish(self, stored: StoredResult) -> Durability:
        self._later = asyncio.create_task(self._publish_later(stored))
        return Durability.DISK

    async def _publish_later(self, stored: StoredResult) -> None:
        await asyncio.sleep(EARLY_SECONDS)
        await super().publish(stored)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._later is None:
            await super().__aexit__(kind, error, trace)


class InPlaceDraft(DiskDraft):
    """Writes the body where readers look after its info says that it is whole."""

    async def publish(self, stored: StoredResult) -> Durability:
        await self._run(self._publish, stored)
        return Durability.DISK

    def _publish(self, stored: StoredResult) -> None:
        draft = self._open()
        self._spill()
        body = os.pread(draft, self._spilled, 0)
        self._write_info(Info(len(body), stored))
        published, handle = self._published, stored.handle
        published.dirs.make(stored.key)
        with published.dirs.opened(stored.key) as directory:
            os.rename(
                f"{self._name}.json", info_name(handle), src_dir_fd=published.drafts, dst_dir_fd=directory
            )
            fd = os.open(body_name(handle), os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=directory)
            try:
                os.write(fd, body[: len(body) // 2])
                time.sleep(IN_PLACE_SECONDS)
                os.write(fd, body[len(body) // 2 :])
            finally:
                os.close(fd)
        self._spilled = 0
        self._drop()


FAULTS: dict[str, type[DiskDraft]] = {"early": EarlyDraft, "in-place": InPlaceDraft}

if __name__ == "__main__":
    setattr(store, "DiskDraft", FAULTS[sys.argv[1]])  # noqa: B010
    sys.exit(main(["serve", "--port", "0"]))
