"""Sessions of a ledger that several processes share. A process decides how a session changes; the server
writes the change if the session is still the same."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import msgspec

from domain.accounting import AccountingEntry
from domain.budget import Session
from domain.errors import SpillgateError
from domain.handles import SessionKey

_MOST_KNOWN = 10_000
"""The most sessions that a process remembers, so that it can change them without reading them first."""

W = TypeVar("W")


class CallRecord(msgspec.Struct, array_like=True):
    """The receipt of a named call. `text` is the text for the model."""

    entry: AccountingEntry
    fingerprint: str
    text: str | None


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session, None if it is unknown or damaged, and the receipt of a call. The server writes a change if
    `seal`, the mark of the session's last change, and `first`, the bytes of the receipt, are still the same
    there."""

    session: Session | None = None
    seal: bytes = b""
    first: bytes = b""
    receipt: CallRecord | None = None
    is_damaged: bool = False

    @property
    def epoch(self) -> int:
        return 0 if self.session is None else self.session.epoch


class Step(NamedTuple):
    """What `change` writes: the session after the change (None if it is unknown and stays unknown), and the
    records that belong to the change. `uses`: the change counts as a use of the session. `text` is a receipt
    or the text of a finding. `once`: does not replace an existing finding. `ends`: also deletes the session's
    findings."""

    session: Session | None
    entry: AccountingEntry | None = None
    uses: bool = True
    text: bytes = b""
    finding: str | None = None
    once: bool = False
    ends: bool = False


Decide = Callable[[SessionState], Step | None]
"""A pure function. Returns None if nothing is to be written; may raise SpillgateError."""

_UNKNOWN = SessionState()


class SteppedSessions(ABC, Generic[W]):
    """Reads and changes sessions, and remembers those seen last. `W` identifies the attempts to write one
    step."""

    def __init__(self) -> None:
        self._known: dict[SessionKey, SessionState] = {}
        self._locks: WeakValueDictionary[SessionKey, asyncio.Lock] = WeakValueDictionary()

    @abstractmethod
    async def _read(self, key: SessionKey, receipt: str) -> SessionState:
        """Reads the session and the receipt of that name at one moment."""

    @abstractmethod
    def _begun(self) -> W:
        """Returns the identification of a new step."""

    @abstractmethod
    async def _write(
        self, key: SessionKey, state: SessionState, step: Step, receipt: str, attempt: W
    ) -> SessionState | None:
        """Returns the session afterwards; None if the server has another state."""

    def forget(self, tenant: str) -> None:
        self._known = {key: state for key, state in self._known.items() if key.tenant != tenant}

    async def read(
        self, key: SessionKey, call_id: str | None = None, epoch: int | None = None
    ) -> SessionState:
        """Reads the session and the receipt of the call in `epoch`, by default the session's, both at one
        moment."""
        guess = self._known.get(key, _UNKNOWN).epoch if epoch is None else epoch
        state = await self._read(key, _field(call_id, guess))
        while call_id is not None and epoch is None and state.epoch != guess:
            guess = state.epoch
            state = await self._read(key, _field(call_id, guess))
        return self._learn(key, state)

    async def change(
        self, key: SessionKey, decide: Decide, call_id: str | None = None, epoch: int | None = None
    ) -> tuple[SessionState, Step | None]:
        """Calls `decide` with the session as this process last saw it, and writes the step that it returns.
        If it returns None or raises, or if the server has another state, reads the session and the receipt of
        the call and calls `decide` again. Returns the session afterwards, and the step written."""
        if self._known_step(key, decide) is None:
            # Not locked: most calls that only read the session end here.
            state = await self.read(key, call_id, epoch)
            if decide(state) is None:
                return state, None
        attempt = self._begun()
        # Changes in this process wait for each other; otherwise all but one would have to be decided again.
        async with self._locks.setdefault(key, asyncio.Lock()):
            while True:
                state, step = self._known.get(key, _UNKNOWN), self._known_step(key, decide)
                if step is None:
                    state = await self.read(key, call_id, epoch)
                    step = decide(state)
                if step is None:
                    return state, None
                receipt = _field(call_id, state.epoch if epoch is None else epoch)
                after = await self._write(key, state, step, receipt, attempt)
                if after is not None:
                    return self._learn(key, after), step
                self._known.pop(key, None)

    def _known_step(self, key: SessionKey, decide: Decide) -> Step | None:
        state = self._known.get(key)
        if state is None:
            return None
        try:
            return decide(state)
        except SpillgateError:
            # Another replica may have changed the session since: only a fresh state may raise.
            return None

    def _learn(self, key: SessionKey, state: SessionState) -> SessionState:
        self._known.pop(key, None)
        self._known[key] = replace(state, first=b"", receipt=None)
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return state


def _field(call_id: str | None, epoch: int) -> str:
    return "" if call_id is None else f"{epoch}:{call_id}"
