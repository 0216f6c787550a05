"""Reading the accounting: Redis filters and sums up its tenants' lists, piece by piece.

An entry's place in the list holds its time, so `since` and `until` cut the list, and the span of a session
cuts it to where that session's entries are. The rest is looked through by Redis in pieces of 1 to 2 ms,
between which it answers others: a million entries take 4 s of its time, 5 to 8 s to sum up.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from domain.accounting import AccountingEntry, EntryFilter
from domain.handles import SessionKey, is_name
from storage.redis_client import RedisClient, script
from storage.redis_ledger_keys import tenant_keys
from storage.redis_outboxes import RedisOutboxes
from storage.redis_rows import Sums, decode_entry, decode_sums, merge, pack

START = "0-0"
PIECE = 300


class RedisEntries:
    def __init__(self, redis: RedisClient, outboxes: RedisOutboxes) -> None:
        self._redis = redis
        self._outboxes = outboxes

    async def page(self, wanted: EntryFilter, most: int, after: str) -> list[tuple[str, AccountingEntry]]:
        """Those after a place in the list, each with its own. Outboxes are collected only when the list does
        not fill the page: what they hold comes later in it."""
        if not is_possible(wanted):
            return []
        found, place = await self._found(wanted, most, after)
        if len(found) < most:
            await self.collect(wanted)
            found += (await self._found(wanted, most - len(found), place))[0]
        return found

    async def sums(
        self, wanted: EntryFilter, fields: Sequence[str], after: str = START, upto: str | None = None
    ) -> list[Sums]:
        """Of those after a place and up to another, by the values of the fields. Collects nothing."""
        groups: dict[tuple[str, ...], Sums] = {}
        async for _, (rows,) in self._pieces(wanted, after, {"group_by": fields, "upto": upto}):
            merge(groups, decode_sums(rows))
        return list(groups.values())

    async def collect(self, wanted: EntryFilter) -> None:
        """Lists what is wanted and was written before this began."""
        if wanted.session_id is None:
            await self._outboxes.collect(wanted.tenant)
        else:
            await self._outboxes.collect_session(SessionKey(wanted.tenant, wanted.session_id))

    async def _found(
        self, wanted: EntryFilter, most: int, after: str
    ) -> tuple[list[tuple[str, AccountingEntry]], str]:
        """And the place up to which was looked."""
        found: list[tuple[str, AccountingEntry]] = []
        reached = after
        async for place, items in self._pieces(wanted, after, {"need": min(most, PIECE)}):
            reached = place
            pairs = zip(items[::2], items[1::2], strict=True)
            found += [(at.decode(), decode_entry(packed)) for at, packed in pairs]
            if len(found) >= most:
                break
        return found[:most], reached

    async def _pieces(
        self, wanted: EntryFilter, after: str, asked: dict[str, object]
    ) -> AsyncIterator[tuple[str, list[Any]]]:
        """Each with the place up to which it looked."""
        where = tenant_keys(wanted.tenant)
        keys = [where.entries, where.waited]
        if wanted.session_id is not None:
            keys.append(where.span(wanted.session_id))
        asked = {**asked, **_terms(wanted), "most": PIECE}
        more = True
        while more:
            step = script("entry_scan", keys, [pack({**asked, "after": after})])
            place, more, *items = await self._redis.run(step)
            after = place.decode()
            yield after, items


def is_possible(wanted: EntryFilter) -> bool:
    """False for a session that none can be called: it is not safe in a key."""
    return wanted.session_id is None or is_name(wanted.session_id)


def _terms(wanted: EntryFilter) -> dict[str, object]:
    fields = {
        "session_id": wanted.session_id,
        "type": wanted.type,
        "tool_name": wanted.tool_name,
        "trigger": wanted.trigger,
        "outcome": wanted.outcome,
        "status": wanted.status,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    return {"wanted": given, "since": wanted.since, "until": wanted.until}
