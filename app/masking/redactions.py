"""What a model is shown of a stored result: its bytes, with masks in place of what the policy redacts."""

import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b

from app.masking.result_masks import ResultMasks
from app.masking.search_threads import SearchThreads
from content.greppable import needs_view
from content.redaction.detector import Detector
from content.redaction.masks import Masked, Masks
from domain.budget import Session, SessionChange
from domain.doors import Door
from domain.errors import StorageError
from domain.handles import SessionKey
from domain.ports import BodyReader, Ledger, ResultStore
from domain.results import StoredResult, ToolResult
from policies.book import PolicyBook
from policies.policy import Policy

_NAME = "redaction key"
_KEY_BYTES = 16
_MOST_KEYS = 10_000
_MOST_RESULTS = 1_000
_MOST_MASKS = 200_000
"""The most masks that a process keeps in memory: 10 MB. The result that was read last may have more."""


@dataclass(frozen=True, slots=True)
class ShownResult:
    """A stored result as a model may see it: `result` has the size of the bytes that `store` reads, and a
    SHA-256 of its own if there are masks. `redaction`: what may not be shown of it."""

    result: StoredResult
    store: BodyReader
    has_masks: bool = False
    redaction: "Redaction | None" = None

    @property
    def needs_view(self) -> bool:
        """True for one-line data: it is searched and read in its greppable view."""
        return needs_view(self.result.measure.bytes, self.result.measure.lines)


class SessionKeys:
    """The keys that number the masks of sessions. The ledger keeps them, so that replicas have the same and a
    restart changes no number."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._keys: OrderedDict[tuple[SessionKey, int], bytes] = OrderedDict()

    async def key_of(self, session: Session) -> bytes:
        about = session.key, session.epoch
        if about not in self._keys:
            with suppress(StorageError):
                self._keys[about] = await self._kept(session)
            while len(self._keys) > _MOST_KEYS:
                self._keys.popitem(last=False)
        return self._keys.get(about) or secrets.token_bytes(_KEY_BYTES)

    async def _kept(self, session: Session) -> bytes:
        about, made = (session.key, session.epoch, _NAME), secrets.token_hex(_KEY_BYTES)
        key = await self._ledger.finding(*about)
        if key is None:
            if await self._ledger.session(session.key) is None:
                # A session is opened when its first result is charged, which happens later.
                await self._ledger.put_session(session.key, SessionChange(frozenset()))
            await self._ledger.keep_finding(*about, made, once=True)
            # Another replica may have been first. A full ledger keeps no key.
            key = await self._ledger.finding(*about) or made
        return key.encode()[: 2 * _KEY_BYTES]


@dataclass(frozen=True, slots=True)
class Redaction:
    """Masks the texts that a session reads."""

    detector: Detector
    session: Session
    searches: SearchThreads
    keys: SessionKeys

    async def masked(self, data: bytes) -> bytes:
        masks = await self.searches.masks_of(self.session.key.tenant, self.detector, data)
        if not len(masks):
            return data
        masked = Masked(masks, len(data), await self.keys.key_of(self.session))
        return b"".join([piece async for piece in masked.pieces(data, 0)])

    async def masked_text(self, text: str | None) -> str | None:
        """Masks a text that was shown before, perhaps under a policy with fewer redactions."""
        return None if text is None else (await self.masked(text.encode())).decode()

    async def masked_json(self, data: bytes, *, keeps_numbers: bool = False) -> bytes:
        """The JSON of a value with masks; `data` itself if it has none."""
        tenant = self.session.key.tenant
        masks = await self.searches.masks_of(tenant, self.detector, data)
        if not masks:
            return data
        key = await self.keys.key_of(self.session)
        return await self.searches.masked_json(tenant, data, masks, key, keeps_numbers=keeps_numbers)


class ReadMasks:
    """The masks of the results that were read most recently."""

    def __init__(self, store: BodyReader, searches: SearchThreads) -> None:
        self._store, self._searches = store, searches
        self._masks: OrderedDict[tuple[str, str, Detector], Masks] = OrderedDict()
        self._count = 0

    async def of(self, stored: StoredResult, detector: Detector) -> Masks:
        """Searches the whole body at the first read."""
        about = stored.tenant, str(stored.handle), detector
        if (known := self._masks.get(about)) is not None:
            self._masks.move_to_end(about)
            return known
        masks = await self._searches.masks(stored.tenant, detector, self._store.read(stored))
        self._count += len(masks)
        self._masks[about] = masks
        while len(self._masks) > _MOST_RESULTS or (self._count > _MOST_MASKS and len(self._masks) > 1):
            self._count -= len(self._masks.popitem(last=False)[1])
        return masks


class Redactions:
    """Knows which secrets the policies in force redact, and for which reader."""

    def __init__(self, policies: PolicyBook, store: ResultStore, ledger: Ledger) -> None:
        self._policies, self._store, self._ledger = policies, store, ledger
        self.searches = SearchThreads()
        self.keys = SessionKeys(ledger)
        self._masks = ReadMasks(store, self.searches)

    def revised(self, policies: PolicyBook) -> "Redactions":
        """Returns a copy with the same threads, keys and masks under other policies."""
        fresh = copy(self)
        fresh._policies = policies
        return fresh

    def detector(self, policy: Policy, stored: StoredResult | None = None) -> Detector | None:
        """Returns the detector of secrets for a result; None if the policy redacts nothing."""
        names = policy.redact if stored is None else (*policy.redact, *stored.redact)
        return self._policies.detector(frozenset(names)) if names else None

    def masks_of(self, result: ToolResult, policy: Policy) -> ResultMasks:
        """Returns the masks of a result that is not governed yet. There are none."""
        return ResultMasks(self.detector(policy), self.searches, result.key.tenant)

    def of_result(
        self, session: Session, policy: Policy, stored: StoredResult | None = None
    ) -> Redaction | None:
        """Returns what masks the texts of a result for the session that reads it; None if the policy redacts
        nothing."""
        detector = self.detector(policy, stored)
        return None if detector is None else Redaction(detector, session, self.searches, self.keys)

    def of_tool(self, session: Session, tool_name: str, door: Door | None) -> Redaction | None:
        """Returns what masks the parts of a tool's results that are not governed; None if the policy redacts
        nothing."""
        return self.of_result(session, self._policies.policy(tool_name, session.policy, None, door))

    async def shown(self, stored: StoredResult, policy: Policy, session: Session) -> ShownResult:
        """`session`: that of the reader, which numbers the masks. Raises StorageError, ResultExpired."""
        redaction = self.of_result(session, policy, stored)
        if redaction is None:
            return ShownResult(stored, self._store)
        masks = await self._masks.of(stored, redaction.detector)
        if not len(masks):
            return ShownResult(stored, self._store, redaction=redaction)
        key = await self.keys.key_of(session)
        masked = Masked(masks, stored.measure.bytes, key)
        digest = blake2b(stored.sha256.encode(), key=key, digest_size=32).hexdigest()
        measure = replace(stored.measure, bytes=masked.size)
        result = replace(stored, measure=measure, sha256=digest)
        return ShownResult(result, _MaskedBody(self._store, stored, masked), True, redaction)

    async def handed_on(self, stored: StoredResult, tool_name: str) -> ShownResult:
        """What another tool is given of a result that no model reads: with masks, unless the policy file says
        `reveal` of that tool."""
        if self._policies.policy(tool_name).reveal:
            return ShownResult(stored, self._store)
        return await self.shown_to_people(stored)

    async def shown_to_people(self, stored: StoredResult) -> ShownResult:
        """What a person is shown: the same as the model of the result's session."""
        session, policy = await self._of_people(stored)
        return await self.shown(stored, policy, session)

    async def given_to_people(self, stored: StoredResult) -> Redaction | None:
        """Returns what masks the texts that models were given of a result; None if the policy redacts
        nothing."""
        session, policy = await self._of_people(stored)
        return self.of_result(session, policy, stored)

    async def _of_people(self, stored: StoredResult) -> tuple[Session, Policy]:
        session = await self._ledger.session(stored.key) or new_session(stored.key, stored.epoch)
        return session, self._policies.policy(stored.tool_name, session.policy)


class _MaskedBody:
    """Reads one stored result with its masks."""

    def __init__(self, store: BodyReader, stored: StoredResult, masked: Masked) -> None:
        self._store, self._stored, self._masked = store, stored, masked

    async def read(
        self, stored: StoredResult, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        """`stored` is the one result."""
        until = self._masked.size if end is None else end
        async for chunk in self._masked.read(partial(self._store.read, self._stored), start, until):
            yield chunk


def new_session(key: SessionKey, epoch: int = 0) -> Session:
    """A session that the ledger does not know."""
    return Session(key, epoch=epoch, created_at=0, last_used_at=0)
