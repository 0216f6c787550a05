"""What is asked of a session, as runs of its Lua files: one script a change, in the session's own slot."""

import hashlib
import itertools
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from domain.accounting import AccountingEntry
from domain.budget import SessionChange
from domain.handles import DEFAULT_SESSION, SessionKey
from domain.ports import Charge
from domain.results import UsageReport
from storage.redis_client import Arg, Script, Step
from storage.redis_ledger_keys import session_keys
from storage.redis_rows import check_counts, check_text, pack, pack_entry, pack_kept

CHANGED = ("context_window", "buffer_tokens", "max_output_tokens", "model", "policy")


class OperationIds:
    """Names what has no name of its own, so that a second run of it is known for one."""

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(8)
        self._count = itertools.count(1)

    def __call__(self) -> str:
        return f"{self._prefix}-{next(self._count):x}"


@dataclass(frozen=True, slots=True)
class SessionSteps:
    """Retentions in ms. Every step here may run twice: the second time it answers what it answered first.
    Raises InvalidField for what cannot be kept."""

    session_ms: int
    entry_ms: int
    new_id: OperationIds = field(default_factory=OperationIds)

    def enter(self, key: SessionKey, call_id: str | None, report: UsageReport | None, now: int) -> Step:
        asked: dict[str, object] = {"now": now, "reported": report is not None}
        if report is not None:
            check_counts(report.used_tokens, report.turn)
            asked |= {"used_tokens": report.used_tokens, "turn": report.turn}
        return self._step("enter", key, asked, extra=_call(key, call_id))

    def charge(self, charge: Charge, *, forced: bool) -> Step:
        entry, window = charge.entry, charge.fallback
        check_counts(charge.tokens, window.context_window, window.buffer_tokens, window.max_output_tokens)
        asked = {
            "id": entry.id,
            "at": entry.timestamp,
            "epoch": charge.epoch,
            "tokens": charge.tokens,
            "forced": forced,
            "required": charge.required,
            "context_window": window.context_window,
            "buffer_tokens": window.buffer_tokens,
            "max_output_tokens": window.max_output_tokens,
        }
        parts = [pack_entry(entry)]
        if charge.call_id is not None:
            parts.append(pack_kept(entry, charge.fingerprint, charge.text))
        extra = [session_keys(charge.key).outbox, *_call(charge.key, charge.call_id)]
        return self._step("charge", charge.key, asked, entry.id, extra, parts)

    def append(self, entry: AccountingEntry) -> Step:
        key = SessionKey(entry.tenant, entry.session_id)
        asked = {"id": entry.id, "at": entry.timestamp}
        return self._step("append", key, asked, entry.id, [session_keys(key).outbox], [pack_entry(entry)])

    def put(self, key: SessionKey, change: SessionChange, now: int) -> Step:
        check_counts(change.context_window, change.buffer_tokens, change.max_output_tokens)
        given = {name: getattr(change, name) for name in CHANGED if name in change.given}
        asked = {
            "now": now,
            "set": {name: value for name, value in given.items() if value is not None},
            "clear": [name for name, value in given.items() if value is None],
        }
        return self._step("put", key, asked)

    def end(self, key: SessionKey, now: int) -> Step:
        return self._step("end", key, {"now": now, "never_ends": key.session_id == DEFAULT_SESSION})

    def keep(self, key: SessionKey, epoch: int, name: str, text: str) -> Step:
        asked = {"epoch": epoch, "field": finding_field(epoch, name)}
        check_text(text)
        return self._step("keep", key, asked, parts=[text])

    def forget(self, key: SessionKey, now: int) -> Step:
        asked = {"idle_since": now - self.session_ms, "oldest": now - self.entry_ms}
        return self._step("forget", key, asked)

    def _step(
        self,
        name: str,
        key: SessionKey,
        asked: Mapping[str, object],
        operation: str | None = None,
        extra: Sequence[str] = (),
        parts: Sequence[Arg] = (),
    ) -> Step:
        where = session_keys(key)
        keys = [where.session, where.findings, where.said(operation or self.new_id()), *extra]
        packed = pack({**asked, "session_ms": self.session_ms, "entry_ms": self.entry_ms})
        script = _session_script(name)
        return Step(where.session, ("EVALSHA", script.sha1, len(keys), *keys, packed, *parts), script)


def finding_field(epoch: int, name: str) -> str:
    check_text(name)
    return f"{epoch}:{name}"


def _call(key: SessionKey, call_id: str | None) -> list[str]:
    if call_id is None:
        return []
    check_text(call_id)
    return [session_keys(key).call(call_id)]


@cache
def _session_script(name: str) -> Script:
    """`session_state.lua`, and after it what this step does to a session."""
    folder = files("storage") / "lua"
    parts = ("session_state", f"session_{name}")
    source = "".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in parts)
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())
