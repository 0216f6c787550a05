"""A store and a ledger of a process without keys: what others keep encrypted is refused, and never shown."""

from collections.abc import Awaitable
from typing import Any

from domain.handles import Handle, SessionKey
from domain.ports import Call, Charge, Entered, Ledger, Receipt, ResultStore
from domain.results import StoredResult
from storage.sealed.keys import UnknownKey, is_sealed


class KeylessStore:
    """Has all else as `inner` has it."""

    def __init__(self, inner: ResultStore) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def find(self, tenant: str, handle: Handle) -> StoredResult | None:
        """Raises UnknownKey."""
        found = await self._inner.find(tenant, handle)
        if found is not None and is_sealed(found.tool_arguments):
            raise UnknownKey
        return found


class KeylessLedger:
    """Has all else as `inner` has it. Raises UnknownKey for a text that is sealed."""

    def __init__(self, inner: Ledger) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def enter(self, call: Call) -> Awaitable[Entered]:
        # Without an id there is no receipt of an earlier call.
        return self._inner.enter(call) if call.call_id is None else self._entered(call)

    async def _entered(self, call: Call) -> Entered:
        entered = await self._inner.enter(call)
        if entered.receipt is not None:
            _readable(entered.receipt.text)
        return entered

    def reserve(self, charge: Charge) -> Awaitable[Receipt | None]:
        return self._inner.reserve(charge) if charge.call_id is None else self._reserved(charge)

    async def _reserved(self, charge: Charge) -> Receipt | None:
        receipt = await self._inner.reserve(charge)
        return None if receipt is None else _first(receipt)

    async def settle(self, charge: Charge) -> Receipt:
        return _first(await self._inner.settle(charge))

    async def finding(self, key: SessionKey, epoch: int, name: str) -> str | None:
        return _readable(await self._inner.finding(key, epoch, name))


def _first(receipt: Receipt) -> Receipt:
    # The text of a call that is charged now is this process's own, whatever it begins with.
    if receipt.replayed:
        _readable(receipt.text)
    return receipt


def _readable(text: str | None) -> str | None:
    if is_sealed(text):
        raise UnknownKey
    return text
