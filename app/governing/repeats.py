"""Results that are byte-equal to an earlier one of their session, by fingerprints that the ledger keeps."""

from contextlib import suppress
from typing import NamedTuple

import msgspec

from app.governing.body import MeasuredResult
from app.runtime import Runtime
from domain.errors import StorageError
from domain.handles import Handle, parse_handle
from domain.outcomes import OutcomeKind, Trigger
from domain.ports import Receipt
from policies.repeat import Earlier, may_repeat


class Repetition(NamedTuple):
    """`handle`: where the content is stored, None if it is not."""

    earlier: Earlier
    handle: Handle | None


class Repeats(NamedTuple):
    """Finds and keeps the repeats of one result. A fingerprint is a finding of the session: it survives a
    restart, replicas share it, and it ends with the session. Only calls with an id take part: without one a
    call may be sent twice because its answer was lost."""

    measured: MeasuredResult
    rt: Runtime

    @property
    def _may_repeat(self) -> bool:
        result = self.measured.result
        return result.call_id is not None and may_repeat(
            self.measured.measure, self.measured.policy, result.door
        )

    @property
    def _name(self) -> str:
        return f"repeat {self.measured.body.sha256}"

    async def find(self) -> Repetition | None:
        """Returns None if no earlier call of the session returned the same bytes, or if the text that the
        model got for them was deleted."""
        if not self._may_repeat:
            return None
        key, epoch = self.measured.result.key, self.measured.session.epoch
        earlier = _decoded(await self.rt.ledger.finding(key, epoch, self._name))
        if earlier is None:
            return None
        if earlier.handle is not None:
            stored = await self.rt.store.find(key.tenant, parse_handle(earlier.handle))
            if stored is not None:
                await self.rt.store.touch(stored)
                return Repetition(earlier, stored.handle)
        return Repetition(earlier, None) if earlier.was_shown else None

    async def remember(self, receipt: Receipt, repetition: Repetition | None) -> None:
        """Remembers the result by its fingerprint, if the model saw it or was given its handle."""
        entry, text = receipt.entry, receipt.text
        handle = entry.details.tool_output_handle
        if not self._may_repeat or receipt.is_retry:
            return
        earlier = Earlier(entry.tool_name, entry.tool_call_id, handle, entry.outcome is OutcomeKind.PASS)
        if repetition is not None and entry.trigger is Trigger.REPEAT and handle is not None:
            first = repetition.earlier
            earlier = Earlier(first.tool_name, first.call_id, handle, first.was_shown)
        if earlier.was_shown or (handle is not None and handle in (text or "")):
            key, epoch = self.measured.result.key, self.measured.session.epoch
            # The call is settled, so its answer must not fail because of a later call.
            with suppress(StorageError):
                kept = msgspec.json.encode(earlier).decode()
                await self.rt.ledger.keep_finding(key, epoch, self._name, kept)


def _decoded(text: str | None) -> Earlier | None:
    """Also None for a damaged finding."""
    try:
        return None if text is None else msgspec.json.decode(text, type=Earlier)
    except msgspec.DecodeError:
        return None
