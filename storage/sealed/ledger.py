"""Seals the texts that a ledger keeps: those that a model was given, and the findings of extractions."""

from dataclasses import replace
from typing import Any

from domain.errors import StoreUnavailable
from domain.handles import SessionKey
from domain.ports import Call, Charge, Entered, Ledger, Receipt
from storage.sealed.keys import KeyRing, is_sealed
from storage.sealed.seals import DamagedSeal, Seals


class SealedLedger:
    """Has all else as `inner` has it. Texts that were kept before encryption are read as they are. Raises
    StoreUnavailable for a text that cannot be opened, and UnknownKey."""

    def __init__(self, inner: Ledger, ring: KeyRing) -> None:
        self._inner = inner
        self._seals = Seals(ring)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def enter(self, call: Call) -> Entered:
        entered = await self._inner.enter(call)
        if entered.receipt is None:
            return entered
        return replace(entered, receipt=self._opened(entered.receipt, call.key, call.call_id))

    async def reserve(self, charge: Charge) -> Receipt | None:
        receipt = await self._inner.reserve(self._sealed(charge))
        return None if receipt is None else self._opened(receipt, charge.key, charge.call_id)

    async def settle(self, charge: Charge) -> Receipt:
        receipt = await self._inner.settle(self._sealed(charge))
        return self._opened(receipt, charge.key, charge.call_id)

    async def keep_finding(self, key: SessionKey, epoch: int, name: str, text: str) -> None:
        sealed = self._seals.seal(text.encode(), *_of_finding(key, epoch, name))
        await self._inner.keep_finding(key, epoch, name, sealed)

    async def finding(self, key: SessionKey, epoch: int, name: str) -> str | None:
        return self._open(await self._inner.finding(key, epoch, name), *_of_finding(key, epoch, name))

    def _sealed(self, charge: Charge) -> Charge:
        if charge.text is None:
            return charge
        sealed = self._seals.seal(charge.text.encode(), *_of_call(charge.key, charge.call_id))
        return replace(charge, text=sealed)

    def _opened(self, receipt: Receipt, key: SessionKey, call_id: str | None) -> Receipt:
        return replace(receipt, text=self._open(receipt.text, *_of_call(key, call_id)))

    def _open(self, text: str | None, *about: str) -> str | None:
        if text is None or not is_sealed(text):
            return text
        try:
            return self._seals.open(text, *about).decode()
        except DamagedSeal:
            raise StoreUnavailable(
                "The text that was kept for this call is damaged. Send the result under another tool_call_id."
            ) from None


def _of_call(key: SessionKey, call_id: str | None) -> tuple[str, ...]:
    return "text", *key, call_id or ""


def _of_finding(key: SessionKey, epoch: int, name: str) -> tuple[str, ...]:
    return "finding", *key, str(epoch), name
