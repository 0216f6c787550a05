"""What an extraction leaves behind: a line for each model call, and its findings."""

from app.runtime import Runtime
from domain.accounting import AccountingEntry, EntryDetails, EntryStatus, EntryType, split_tool_name
from domain.handles import SessionKey
from domain.llm import LlmCall
from domain.ports import Ledger
from domain.results import StoredResult


async def book_call(rt: Runtime, stored: StoredResult, call: LlmCall) -> None:
    """Its tokens lessen what was saved, whichever model they were spent on."""
    server, tool = split_tool_name(stored.tool_name)
    tokens = call.tokens.input + call.tokens.output
    rt.metrics.called(call)
    await rt.ledger.append(
        AccountingEntry(
            id=rt.new_entry_id(),
            type=EntryType.LLM,
            timestamp=call.timestamp,
            tenant=stored.tenant,
            session_id=stored.handle.session_id,
            tool_name=stored.tool_name,
            status=EntryStatus.OK if call.error is None else EntryStatus.FAILED,
            latency=call.latency,
            mcpServer=server,
            command=tool,
            tokens_in=call.tokens.input,
            tokens_out=call.tokens.output,
            tokens_saved=-tokens,
            model=call.model,
            provider=call.provider,
            stop_reason=call.stop_reason,
            tokens=call.tokens,
            cost_usd=call.cost_usd,
            error=call.error,
            details=EntryDetails(tool_output_handle=str(stored.handle)),
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
