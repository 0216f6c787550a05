"""Which other sessions' results a session may read: those that a PUT of the session names."""

from collections.abc import Sequence

import msgspec

from app.runtime import Runtime
from domain.budget import Session
from domain.errors import SessionNotFound
from domain.handles import Handle, SessionKey, checked_session_id, forgiven_handle, session_named_in

MOST_READS = 8
_NAME = "reads"


class ReadSession(msgspec.Struct, array_like=True):
    """One life of a session. Results that the session stores after it was ended and opened again are not
    included."""

    session_id: str
    epoch: int


async def check_reads(rt: Runtime, key: SessionKey, session_ids: Sequence[str]) -> list[ReadSession]:
    """Raises InvalidField, and SessionNotFound for a session that is not open."""
    reads = []
    for session_id in dict.fromkeys(session_ids):
        other = await rt.ledger.session(SessionKey(key.tenant, checked_session_id(session_id)))
        if other is None or other.ended_at is not None:
            raise SessionNotFound("A session that `reads` names is not open.")
        reads.append(ReadSession(session_id, other.epoch))
    return reads


async def keep_reads(rt: Runtime, session: Session, reads: list[ReadSession]) -> None:
    """Keeps the list with the session, for its present epoch."""
    text = msgspec.json.encode(reads).decode()
    await rt.ledger.keep_finding(session.key, session.epoch, _NAME, text)


async def reads_of(rt: Runtime, session: Session) -> list[str]:
    """Returns the listed sessions whose epoch is still the one that was named."""
    return [one.session_id for one in await _reads(rt, session) if await _is_alive(rt, session.key, one)]


async def reachable_handle(rt: Runtime, key: SessionKey, text: str) -> Handle:
    """Parses a handle that a model of the session wrote: a handle of its own session, or of a session that it
    may read. Raises ResultNotFound."""
    named = session_named_in(text, key.session_id)
    if named != key.session_id and (session := await rt.ledger.session(key)) is not None:
        for one in await _reads(rt, session):
            is_named = one.session_id.casefold() == named.casefold()
            if is_named and await _is_alive(rt, key, one):
                return forgiven_handle(text, SessionKey(key.tenant, one.session_id))
    return forgiven_handle(text, key)


async def _reads(rt: Runtime, session: Session) -> list[ReadSession]:
    text = await rt.ledger.finding(session.key, session.epoch, _NAME)
    return [] if text is None else msgspec.json.decode(text, type=list[ReadSession])


async def _is_alive(rt: Runtime, key: SessionKey, read: ReadSession) -> bool:
    other = await rt.ledger.session(SessionKey(key.tenant, read.session_id))
    return other is not None and other.ended_at is None and other.epoch == read.epoch
