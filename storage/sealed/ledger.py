"""Seals the texts that a ledger keeps: those that a model was given, and the findings of extractions."""

from dataclasses import replace
from typing import Any

from domain.errors import StoreUnavailable
from domain.handles import SessionKey
from domain.ports import Call, Charge, Entered, Ledger, Receipt
from storage.sealed.checks import KeyChecks
from storage.sealed.keys import is_sealed
from storage.sealed.seals import DamagedSeal, key_id_of


class SealedLedger:
    """Has all else as `inner` has it. Texts that were kept before encryption are read as they are. Raises
    StoreUnavailable for a text that cannot be opened, or sealed, and UnknownKey."""

    def __init__(self, inner: Ledger, checks: KeyChecks) -> None:
        self._inner = inner
        self._checks = checks
        self._seals = checks.seals

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def enter(self, call: Call) -> Entered:
        entered = await self._inner.enter(call)
        if entered.receipt is None:
            return entered
        return replace(entered, receipt=await self._opened(entered.receipt, call.key, call.call_id))

    async def reserve(self, charge: Charge) -> Receipt | None:
        receipt = await self._inner.reserve(await self._sealed(charge))
        return None if receipt is None else await self._opened(receipt, charge.key, charge.call_id)

    async def settle(self, charge: Charge) -> Receipt:
        receipt = await self._inner.settle(await self._sealed(charge))
        return await self._opened(receipt, charge.key, charge.call_id)

    async def keep_finding(self, key: SessionKey, epoch: int, name: str, text: str) -> None:
        sealed = await self._seal(text, *_of_finding(key, epoch, name))
        await self._inner.keep_finding(key, epoch, name, sealed)

    async def finding(self, key: SessionKey, epoch: int, name: str) -> str | None:
        return await self._open(await self._inner.finding(key, epoch, name), *_of_finding(key, epoch, name))

    async def _sealed(self, charge: Charge) -> Charge:
        if charge.text is None:
            return charge
        return replace(charge, text=await self._seal(charge.text, *_of_call(charge.key, charge.call_id)))

    async def _opened(self, receipt: Receipt, key: SessionKey, call_id: str | None) -> Receipt:
        return replace(receipt, text=await self._open(receipt.text, *_of_call(key, call_id)))

    async def _seal(self, text: str, *about: str) -> str:
        return self._seals.seal(text.encode(), *about, key=await self._checks.writing())

    async def _open(self, text: str | None, *about: str) -> str | None:
        if text is None or not is_sealed(text):
            return text
        try:
            opened = self._seals.open(text, *about).decode()
        except DamagedSeal:
            raise StoreUnavailable(
                "The text that was kept for this call is damaged. Send the result under another tool_call_id."
            ) from None
        await self._checks.note_opened(key_id_of(text))
        return opened


def _of_call(key: SessionKey, call_id: str | None) -> tuple[str, ...]:
    return "text", *key, call_id or ""


def _of_finding(key: SessionKey, epoch: int, name: str) -> tuple[str, ...]:
    return "finding", *key, str(epoch), name
