"""What an extraction leaves behind: a line for each model call, and its findings."""

from dataclasses import replace

from app.reading.entries import entry_about
from app.runtime import Runtime
from domain.accounting import EntryStatus, EntryType
from domain.handles import SessionKey
from domain.llm import LlmCall
from domain.ports import Ledger
from domain.results import StoredResult


async def book_call(rt: Runtime, stored: StoredResult, extract_id: str, call: LlmCall) -> None:
    """Writes the entry of one call of the extraction `extract_id`. Its tokens are subtracted from what was
    saved, whichever model they were spent on."""
    tokens = call.tokens.input + call.tokens.output
    rt.metrics.called(call)
    await rt.ledger.append(
        replace(
            entry_about(rt, stored, EntryType.LLM, call.timestamp),
            status=EntryStatus.OK if call.error is None else EntryStatus.FAILED,
            latency=call.latency,
            tokens_in=call.tokens.input,
            tokens_out=call.tokens.output,
            tokens_saved=-tokens,
            model=call.model,
            provider=call.provider,
            stop_reason=call.stop_reason,
            tokens=call.tokens,
            cost_usd=call.cost_usd,
            error=call.error,
            extract_id=extract_id,
        )
    )


class SessionFindings:
    """The findings of one life of one session."""

    def __init__(self, ledger: Ledger, key: SessionKey, epoch: int) -> None:
        self._ledger = ledger
        self._key = key
        self._epoch = epoch

    async def find(self, key: str) -> str | None:
        return await self._ledger.finding(self._key, self._epoch, key)

    async def keep(self, key: str, finding: str) -> None:
        await self._ledger.keep_finding(self._key, self._epoch, key, finding)
