"""The shelf: published results in Redis, one hash each. A method is one round trip, but where it says so."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from domain.errors import InvalidField, StorageError, StoreUnavailable
from domain.handles import Handle, SessionKey
from domain.results import Durability, StoredResult
from storage.redis_client import RedisClient, command, script
from storage.redis_count import RedisCount
from storage.redis_keys import ResultKeys, index_key, keys_of_count, result_keys
from storage.redis_segments import SEGMENT

GRACE_MS = 60_000
"""How long the rest of a body waits for a reader that has begun."""

_BATCH = 100
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(StoredResult).decode


@dataclass(frozen=True, slots=True)
class Source:
    """A draft as it is published: `sent` segments stand under `key`, `last` comes along. `size` is that of
    the whole body, `uncounted` how much of it waited to be counted."""

    draft: str
    key: str
    sent: int
    last: bytes | None
    size: int
    uncounted: int


@dataclass(frozen=True, slots=True)
class Leftover:
    """What a draft that was not published may have left: keys, its count, that of the result it was to be."""

    keys: tuple[str, ...]
    draft: str
    count_name: str | None


@dataclass(frozen=True, slots=True)
class Body:
    """A published body for a reader: `first` is the segment that it asked for, None where there is none."""

    keys: ResultKeys
    draft: bytes
    size: int
    segment_bytes: int
    first: bytes | None


class Shelf:
    """Times are Unix ms by the caller's clock; Redis expires by its own, at the same time."""

    def __init__(self, client: RedisClient, count: RedisCount, retention_ms: int) -> None:
        self.client = client
        self.count = count
        self._retention_ms = retention_ms
        self._left: list[Leftover] = []

    async def place(self, keys: ResultKeys, stored: StoredResult, source: Source) -> Durability:
        """Two round trips in a cluster. Raises StoreUnavailable when segments have expired on their way."""
        counting = self.count.counting(
            keys.count_name, source.size, stored.stored_at + self._retention_ms, source.draft
        )
        publishing = script(
            "result_publish",
            (keys.result, keys.index, source.key, keys.grave),
            (
                source.draft,
                keys.file_id,
                stored.stored_at,
                self._retention_ms,
                GRACE_MS,
                _encoded(stored),
                stored.sha256,
                source.size,
                SEGMENT,
                source.sent,
                *(() if source.last is None else (source.last,)),
            ),
        )
        written = await self.client.write(counting, publishing)
        total, is_placed = written.replies
        self.count.learn(total, source.uncounted if is_placed else 0)
        if not is_placed:
            raise StoreUnavailable("This result was too long on its way and is not kept. Send it again.")
        return written.durability

    async def find(self, tenant: str, handle: Handle) -> tuple[StoredResult, int] | None:
        """With its last use. None, too, for what is not an info of ours."""
        keys = result_keys(tenant, handle)
        info, used_at = await self.client.run(command("HMGET", keys.result, "stored", "used_at"))
        if info is None or used_at is None:
            return None
        try:
            return _decode(info), int(used_at)
        except msgspec.DecodeError:
            return None

    async def touch(self, tenant: str, handle: Handle, now: int) -> int | None:
        """Its last use, which is `now` or later; None where it is gone. Counts it anew from time to time."""
        keys = result_keys(tenant, handle)
        touching = script("result_touch", (keys.result, keys.index), (keys.file_id, now, self._retention_ms))
        found = await self.client.run(touching)
        if found is None:
            return None
        used_at, size = found
        if size >= 0:
            counting = self.count.counting(keys.count_name, size, used_at + self._retention_ms)
            self.count.learn(await self.client.run(counting))
        return int(used_at)

    async def open_body(self, tenant: str, handle: Handle, start: int) -> Body | None:
        """With the segment that holds byte `start`."""
        keys = result_keys(tenant, handle)
        fields = ("draft", "bytes", "segment_bytes", start // SEGMENT)
        draft, size, segment_bytes, first = await self.client.run(command("HMGET", keys.result, *fields))
        if draft is None:
            return None
        # Cut otherwise by another version, the first one is another.
        return Body(
            keys, draft, int(size), int(segment_bytes), first if int(segment_bytes) == SEGMENT else None
        )

    async def segment(self, body: Body, number: int) -> bytes | None:
        """None where the body is gone; it stays for a while to whoever reads it when it is deleted."""
        keys = body.keys
        segment: bytes | None = await self.client.run(
            script("result_segment", (keys.result, keys.grave), (body.draft, number, GRACE_MS))
        )
        return segment

    async def delete(self, tenant: str, handle: Handle) -> int | None:
        """Its last use; None where nothing was. Two round trips where something was."""
        keys = result_keys(tenant, handle)
        (used_at,) = await self._deleted([keys])
        if used_at is not None:
            await self.count.forget([keys.count_name])
        return used_at

    async def delete_session(self, key: SessionKey, epoch: int) -> list[int]:
        """The last uses of its results of epochs before `epoch`. A few round trips a hundred."""
        files = [file.decode() for file in await self.client.run(command("ZRANGE", index_key(key), 0, -1))]
        found: list[int] = []
        for start in range(0, len(files), _BATCH):
            handles = [Handle(key.session_id, file) for file in files[start : start + _BATCH]]
            infos = await self.client.pipeline(
                *[command("HGET", result_keys(key.tenant, one).result, "stored") for one in handles]
            )
            named = zip(handles, infos, strict=True)
            batch = [result_keys(key.tenant, one) for one, info in named if not _is_since(epoch, info)]
            if not batch:
                continue
            found += [used_at for used_at in await self._deleted(batch) if used_at is not None]
            await self.count.forget([keys.count_name for keys in batch])
        return found

    async def used_after(self, keys: Sequence[SessionKey], moment: int) -> list[int]:
        """How many results of each session. A round trip a hundred."""
        steps = [command("ZCOUNT", index_key(key), f"({moment}", "+inf") for key in keys]
        batches = [steps[start : start + _BATCH] for start in range(0, len(steps), _BATCH)]
        return [found for batch in batches for found in await self.client.pipeline(*batch)]

    async def clear(self, left: Leftover, now: int) -> None:
        """Where Redis cannot be reached, the next `expire` tries again; at last it expires there."""
        try:
            await self.client.pipeline(*[command("UNLINK", key) for key in left.keys])
            await self.count.forget([left.draft])
            if left.count_name is not None:
                await self.settle([left.count_name], now, None)
        except StorageError:
            self._left.append(left)

    async def expire(self, now: int) -> int:
        """Deletes what has expired; answers how many results. A few round trips a hundred."""
        left, self._left = self._left, []
        for one in left:
            await self.clear(one, now)
        deleted = 0
        while names := await self.count.due(now, _BATCH):
            deleted += await self.settle(names, now, now)
        return deleted

    async def settle(self, names: Sequence[str], now: int, due_by: int | None) -> int:
        """Deletes those that have expired, counts those in use anew, forgets drafts and what is not there;
        with `due_by` only if it was due by then. Answers how many results it forgot."""
        named = {name: keys for name in names if (keys := keys_of_count(name)) is not None}
        expired_by = now - self._retention_ms
        uses = await self._deleted(list(named.values()), expired_by) if named else []
        in_use = {
            name: used_at
            for name, used_at in zip(named, uses, strict=True)
            if used_at is not None and used_at > expired_by
        }
        if in_use:
            retention_ms = self._retention_ms
            counting = [self.count.counting(name, None, use + retention_ms) for name, use in in_use.items()]
            self.count.learn((await self.client.pipeline(*counting))[-1])
        drafts = [name for name in names if name not in named]
        if drafts:
            await self.count.forget(drafts, due_by)
        gone = [name for name in named if name not in in_use]
        return await self.count.forget(gone, due_by) if gone else 0

    async def _deleted(self, batch: Sequence[ResultKeys], expired_by: int | None = None) -> list[int | None]:
        """The last use of each; None where nothing was. With `expired_by` spares those used later."""
        terms = (secrets.token_hex(8), "") if expired_by is None else ("", expired_by)
        steps = [
            script("result_delete", (keys.result, keys.index, keys.grave), (keys.file_id, GRACE_MS, *terms))
            for keys in batch
        ]
        return await self.client.pipeline(*steps)


def _is_since(epoch: int, info: bytes | None) -> bool:
    try:
        return info is not None and _decode(info).epoch >= epoch
    except msgspec.DecodeError:
        return False


def _encoded(stored: StoredResult) -> bytes:
    try:
        return _encode(stored)
    except UnicodeEncodeError:
        raise InvalidField("tool_name or tool_arguments is not valid Unicode. Mend it.") from None
