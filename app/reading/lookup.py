"""From a handle to what is stored under it, or to why there is nothing."""

from app.runtime import Runtime
from domain.errors import ResultExpired, ResultNotFound, SessionEnded
from domain.handles import Handle, SessionKey, parse_handle
from domain.results import StoredResult


async def look_up(rt: Runtime, tenant: str, text: str) -> StoredResult:
    """Starts its retention anew. Raises ResultNotFound, ResultExpired or SessionEnded."""
    handle = parse_handle(text)
    stored = await rt.store.find(tenant, handle)
    if stored is None:
        raise await _absence(rt, tenant, handle)
    return await rt.store.touch(stored)


async def _absence(rt: Runtime, tenant: str, handle: Handle) -> Exception:
    stored_at = await rt.ledger.stored_at(tenant, handle)
    if stored_at is not None:
        session = await rt.ledger.session(SessionKey(tenant, handle.session_id))
        if session is not None and session.ended_at is not None:
            return SessionEnded("The session of this result has ended, and its results with it.")
        if rt.clock() - stored_at >= rt.retention_ms:
            return ResultExpired("This result has expired. Run the tool again.")
        if session is not None and stored_at < session.created_at:
            return SessionEnded("The session of this result has ended, and its results with it.")
    return ResultNotFound("No stored result has this handle. Use it exactly as the handle message gave it.")
