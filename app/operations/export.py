"""Exports the accounting: each entry that the ledger accepts, as a line of JSON in a file or on stdout."""

import msgspec

from app.operations.line_writer import LineWriter, Losses, opened
from domain.accounting import AccountingEntry
from domain.ports import Charge, Ledger, Receipt
from domain.wrappers import LedgerAround

SETTING = "SPILLGATE_ACCOUNTING_EXPORT"
CLOSE_SECONDS = 6.0
MOST_WAITING = 20_000
"""Entries in memory that are not written yet, of about 1 KB each. More are not exported, and counted."""


class Export:
    """An entry that cannot be written is counted: the request is still answered, and the ledger has it."""

    def __init__(self, target: str, max_bytes: int) -> None:
        """Raises ConfigError if the file cannot be opened."""
        output = opened(target, SETTING, max_bytes)
        self._losses = Losses(SETTING, target)
        self._lines = LineWriter[AccountingEntry](
            "accounting export", output, _line, MOST_WAITING, self._losses.note
        )

    @property
    def lost(self) -> int:
        return self._lines.dropped

    def write(self, entry: AccountingEntry) -> None:
        self._lines.put_nowait(entry)

    def close(self) -> None:
        """Returns when all entries are written, or after CLOSE_SECONDS."""
        if not self._lines.close(CLOSE_SECONDS):
            self._losses.note("they were not written before the end", self._lines.waiting)


def _line(entry: AccountingEntry) -> bytes:
    return msgspec.json.encode(entry) + b"\n"


def exported(ledger: Ledger, export: Export) -> Ledger:
    """The ledger, whose entries are exported once it has accepted them."""
    return _Exported(ledger, export)


class _Exported(LedgerAround):
    def __init__(self, ledger: Ledger, export: Export) -> None:
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
        self._export.write(entry)

    def _written(self, receipt: Receipt | None) -> Receipt | None:
        if receipt is not None and not receipt.is_retry:
            self._export.write(receipt.entry)
        return receipt
