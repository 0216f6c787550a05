"""Exports the accounting: each entry that the ledger accepts, as a line of JSON in a file or on stdout."""

from app.operations.line_writer import JsonLines
from domain.accounting import AccountingEntry
from domain.ports import Charge, Ledger, Receipt
from domain.wrappers import LedgerAround

SETTING = "SPILLGATE_ACCOUNTING_EXPORT"


class ExportedLedger(LedgerAround):
    """The ledger, whose entries are exported once it has accepted them. An entry that cannot be
    written is still in the ledger."""

    def __init__(self, ledger: Ledger, export: JsonLines[AccountingEntry]) -> None:
        super().__init__(ledger)
        self._export = export

    async def reserve(self, charge: Charge) -> Receipt | None:
        return self._written(await self._inner.reserve(charge))

    async def settle(self, charge: Charge) -> Receipt:
        receipt = await self._inner.settle(charge)
        self._written(receipt)
        return receipt

    async def append(self, entry: AccountingEntry) -> None:
        await self._inner.append(entry)
        self._export.put_nowait(entry)

    def _written(self, receipt: Receipt | None) -> Receipt | None:
        if receipt is not None and not receipt.is_retry:
            self._export.put_nowait(receipt.entry)
        return receipt
