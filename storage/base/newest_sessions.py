"""Pages of sessions, the most recently used first: ordered by last use, then by id."""

from collections.abc import Iterable
from heapq import nsmallest

from domain.budget import Session
from domain.ports import SessionPage
from storage.base import cursors

_END_OF_TIME = (1 << 63) - 1


def position_of(cursor: str | None) -> tuple[int, str]:
    """Parses the time (Unix ms) and the id after which the page begins. Raises InvalidField."""
    if cursor is None:
        return _END_OF_TIME, ""
    used_at, _, session_id = cursors.decode("used", cursor).partition(" ")
    return cursors.number_in(used_at), session_id


def cursor_after(used_at: int, session_id: str) -> str:
    return cursors.encode("used", f"{used_at} {session_id}")


def newest_page(live: Iterable[Session], limit: int, cursor: str | None) -> SessionPage:
    """Returns the live sessions after the cursor. Raises InvalidField."""
    used_at, session_id = position_of(cursor)
    after = (-used_at, session_id)
    newest = nsmallest(limit + 1, (one for one in live if _order(one) > after), key=_order)
    page, last = newest[:limit], newest[limit - 1 : limit]
    more = cursor_after(last[0].last_used_at, last[0].key.session_id) if len(newest) > limit else None
    return SessionPage(page, more)


def _order(session: Session) -> tuple[int, str]:
    return -session.last_used_at, session.key.session_id
