"""What a model is shown of a stored result: its bytes, with masks in place of what the policy redacts."""

import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING

from content.greppable import needs_view
from content.redaction.detector import Detector
from content.redaction.masks import Masked, Masks, masks_in
from domain.budget import Session, SessionChange
from domain.doors import Door
from domain.errors import StorageError
from domain.handles import SessionKey
from domain.ports import BodyReader, Ledger
from domain.results import StoredResult
from policies.policy import Policy

if TYPE_CHECKING:
    from app.runtime import Runtime

_NAME = "redaction key"
_KEY_BYTES = 16
_MOST_KEYS = 10_000
_MOST_RESULTS = 1_000
_MOST_MASKS = 200_000
"""The most masks that a process remembers: 10 MB. More are kept of the result that was read last alone."""


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


@dataclass(frozen=True, slots=True)
class Redaction:
    """Masks the texts that a session reads."""

    detector: Detector
    session: Session

    async def masked(self, rt: "Runtime", data: bytes) -> bytes:
        masks = await rt.searches.masks_of(self.session.key.tenant, self.detector, data)
        if not len(masks):
            return data
        masked = Masked(masks, len(data), await rt.redactions.key_of(self.session, rt.ledger))
        return b"".join([piece async for piece in masked.pieces(data, 0)])

    async def masked_text(self, rt: "Runtime", text: str | None) -> str | None:
        """A text that was shown before, perhaps under a policy that redacted less."""
        return None if text is None else (await self.masked(rt, text.encode())).decode()

    async def masked_json(self, rt: "Runtime", data: bytes, *, keeps_numbers: bool = False) -> bytes:
        """The JSON of a value with masks; `data` itself if it has none."""
        tenant = self.session.key.tenant
        masks = await rt.searches.masks_of(tenant, self.detector, data)
        if not masks:
            return data
        key = await rt.redactions.key_of(self.session, rt.ledger)
        return await rt.searches.masked_json(tenant, data, masks, key, keeps_numbers=keeps_numbers)


class Redactions:
    """The masks of the results that were read last, and the keys of their sessions."""

    def __init__(self) -> None:
        self._keys: OrderedDict[tuple[SessionKey, int], bytes] = OrderedDict()
        self._masks: OrderedDict[tuple[str, str, Detector], Masks] = OrderedDict()
        self._count = 0

    async def key_of(self, session: Session, ledger: Ledger) -> bytes:
        """The key that numbers the masks of a session. The ledger keeps it: replicas have the same, and a
        restart changes no number."""
        about = session.key, session.epoch
        if about not in self._keys:
            with suppress(StorageError):
                self._keys[about] = await _kept_key(session, ledger)
            while len(self._keys) > _MOST_KEYS:
                self._keys.popitem(last=False)
        return self._keys.get(about) or secrets.token_bytes(_KEY_BYTES)

    async def masks(self, rt: "Runtime", stored: StoredResult, detector: Detector) -> Masks:
        """Searches all of the body, the first time."""
        about = stored.tenant, str(stored.handle), detector
        if (known := self._masks.get(about)) is not None:
            self._masks.move_to_end(about)
            return known
        masks = await rt.searches.masks(stored.tenant, detector, rt.store.read(stored))
        self._count += len(masks)
        self._masks[about] = masks
        while len(self._masks) > _MOST_RESULTS or (self._count > _MOST_MASKS and len(self._masks) > 1):
            self._count -= len(self._masks.popitem(last=False)[1])
        return masks


async def _kept_key(session: Session, ledger: Ledger) -> bytes:
    about, made = (session.key, session.epoch, _NAME), secrets.token_hex(_KEY_BYTES)
    key = await ledger.finding(*about)
    if key is None:
        if await ledger.session(session.key) is None:
            # The first result of a session opens it when it is charged, which is later.
            await ledger.put_session(session.key, SessionChange(frozenset()))
        await ledger.keep_finding(*about, made, once=True)
        # Another replica may have been the first. A ledger that is full keeps none.
        key = await ledger.finding(*about) or made
    return key.encode()[: 2 * _KEY_BYTES]


def detector_of(rt: "Runtime", policy: Policy, stored: StoredResult | None = None) -> Detector | None:
    """What finds the secrets of a result; None if nothing is redacted."""
    names = policy.redact if stored is None else (*policy.redact, *stored.redact)
    return rt.policies.detector(frozenset(names)) if names else None


async def shown_result(rt: "Runtime", stored: StoredResult, policy: Policy, session: Session) -> ShownResult:
    """`session`: that of the reader, which numbers the masks. Raises StorageError, ResultExpired."""
    detector = detector_of(rt, policy, stored)
    if detector is None:
        return ShownResult(stored, rt.store)
    redaction = Redaction(detector, session)
    masks = await rt.redactions.masks(rt, stored, detector)
    if not len(masks):
        return ShownResult(stored, rt.store, redaction=redaction)
    key = await rt.redactions.key_of(session, rt.ledger)
    masked = Masked(masks, stored.measure.bytes, key)
    digest = blake2b(stored.sha256.encode(), key=key, digest_size=32).hexdigest()
    measure = replace(stored.measure, bytes=masked.size)
    result = replace(stored, measure=measure, sha256=digest)
    return ShownResult(result, _MaskedBody(rt.store, stored, masked), True, redaction)


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


async def handed_on(rt: "Runtime", stored: StoredResult, tool_name: str) -> ShownResult:
    """What another tool is given of a result that no model reads: with masks, unless the policy file says
    `reveal` of that tool."""
    if rt.policies.policy(tool_name).reveal:
        return ShownResult(stored, rt.store)
    return await shown_to_people(rt, stored)


async def shown_to_people(rt: "Runtime", stored: StoredResult) -> ShownResult:
    """What a person is shown: the same as the model of the result's session."""
    session, policy = await _of_people(rt, stored)
    return await shown_result(rt, stored, policy, session)


async def given_to_people(rt: "Runtime", stored: StoredResult) -> Redaction | None:
    """What masks the texts that models were given of a result; None if nothing is redacted."""
    session, policy = await _of_people(rt, stored)
    detector = detector_of(rt, policy, stored)
    return None if detector is None else Redaction(detector, session)


async def _of_people(rt: "Runtime", stored: StoredResult) -> tuple[Session, Policy]:
    session = await rt.ledger.session(stored.key) or new_session(stored.key, stored.epoch)
    return session, rt.policies.policy(stored.tool_name, session.policy)


def new_session(key: SessionKey, epoch: int = 0) -> Session:
    """A session that the ledger does not know."""
    return Session(key, epoch=epoch, created_at=0, last_used_at=0)


def redaction_of(rt: "Runtime", session: Session, tool_name: str, door: Door | None) -> Redaction | None:
    """What masks that of a tool's results which is not governed; None if nothing is redacted."""
    detector = detector_of(rt, rt.policies.policy(tool_name, session.policy, None, door))
    return None if detector is None else Redaction(detector, session)


async def masked_json(
    rt: "Runtime", data: bytes, key: SessionKey, tool_name: str, door: Door | None = None
) -> bytes:
    """What a session is shown of a JSON value; `data` itself if nothing of it is masked. Counts the masks.
    Numbers stay for a coding agent: it would refuse an output of another form."""
    session = await rt.ledger.session(key) or new_session(key)
    redaction = redaction_of(rt, session, tool_name, door)
    if redaction is None:
        return data
    shown = await redaction.masked_json(rt, data, keeps_numbers=door is not None)
    if shown is not data:
        rt.observer.masked(masks_in(shown.decode()))
    return shown
