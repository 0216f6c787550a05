"""What every line of the accounting says about the stored result that it is about."""

from app.runtime import Runtime
from domain.accounting import AccountingEntry, EntryDetails, EntryType, split_tool_name
from domain.results import StoredResult


def entry_about(rt: Runtime, stored: StoredResult, kind: EntryType, timestamp: int) -> AccountingEntry:
    """A new line, to be filled with what was done and what it cost."""
    server, tool = split_tool_name(stored.tool_name, stored.tool_namespace)
    return AccountingEntry(
        id=rt.new_entry_id(),
        type=kind,
        timestamp=timestamp,
        tenant=stored.tenant,
        session_id=stored.handle.session_id,
        tool_name=stored.tool_name,
        mcpServer=server,
        command=tool,
        details=EntryDetails(tool_output_handle=str(stored.handle)),
    )
