"""What became of the tool results of conversations that are sent again and again, kept in memory."""

from collections import OrderedDict
from typing import NamedTuple

SEEN_BYTES = 32 << 20
"""The most bytes of memory of what was seen, about. What was used last stays."""

_ENTRY_BYTES = 300


class SeenResult(NamedTuple):
    """`text` replaces the result; None if it passed. `is_kept`: it is stored. `tokens`: those it has, and
    `shown_tokens` those that the model reads. `call_id`: that of its call, as it was governed."""

    text: str | None
    is_kept: bool
    tokens: int
    shown_tokens: int
    call_id: str | None


class SeenMessages:
    """By a digest of session, call and content. Saves a step in the ledger for each message of a long
    history; the ledger gives the same answer again. An answer is forgotten when its `until` (Unix ms) has
    come: then the governor makes sure that the result is still stored."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, tuple[SeenResult, int]] = OrderedDict()
        self.size = 0
        """Approximate bytes of memory."""

    def find(self, key: str, now: int) -> SeenResult | None:
        entry = self._seen.get(key)
        if entry is None:
            return None
        answer, until = entry
        if until <= now:
            self._drop(key)
            return None
        self._seen.move_to_end(key)
        return answer

    def keep(self, key: str, seen: SeenResult, until: int) -> None:
        self._drop(key)
        self._seen[key] = seen, until
        self.size += _size(seen)
        while self.size > SEEN_BYTES:
            self._drop(next(iter(self._seen)))

    def _drop(self, key: str) -> None:
        entry = self._seen.pop(key, None)
        if entry is not None:
            self.size -= _size(entry[0])


def _size(seen: SeenResult) -> int:
    return _ENTRY_BYTES + 4 * len(seen.text or "")
