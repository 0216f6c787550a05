"""What a state directory and its accounting show to be wrong: one line a fault, nothing when all is well."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx

from tests.faults.calls import Kept, insist

TOP = Path("tool_output") / "default"


def bodies(state: Path) -> list[Path]:
    return sorted((state / TOP).glob("session-*/file-*"))


def infos(state: Path) -> list[Path]:
    return sorted((state / TOP).glob("session-*/.file-*.json"))


def stored_bytes(state: Path) -> int:
    return sum(body.stat().st_size for body in bodies(state))


def torn(state: Path) -> list[str]:
    """Holds at any moment, right after a kill too: no info has a body of another length beside it. An info
    that has none, or is not written to its end, says nothing: no reader finds its body, and the next start
    deletes both."""
    faults = []
    for info in infos(state):
        body = info.with_name(info.name[1:].removesuffix(".json"))
        try:
            told = json.loads(info.read_bytes())["body_bytes"]
        except json.JSONDecodeError:
            continue
        if body.exists() and (size := body.stat().st_size) != told:
            faults.append(f"torn: {body.name} has {size} of {told} bytes")
    return faults


def strays(state: Path) -> list[str]:
    """After a start: no body without a whole info, no info without a body, and no draft of a former life."""
    whole = [info for info in infos(state) if info.read_bytes().endswith(b"}")]
    known = {info.with_name(info.name[1:].removesuffix(".json")) for info in whole}
    found = set(bodies(state))
    loose = [f"a body or an info alone: {path.name}" for path in known ^ found]
    # A probe is written while readiness is looked at.
    drafts = [draft.name for draft in (state / "drafts").iterdir() if not draft.name.startswith("probe-")]
    return loose + [f"a draft: {name}" for name in drafts]


def lost(state: Path, acknowledged: Iterable[Kept]) -> list[str]:
    """What was acknowledged and is not there, or not byte for byte."""
    faults = []
    for kept in acknowledged:
        body = state / TOP / kept.handle
        if not body.exists():
            faults.append(f"lost: {kept.handle}")
        elif hashlib.sha256(body.read_bytes()).hexdigest() != kept.sha256:
            faults.append(f"torn: {kept.handle} has {body.stat().st_size} of {kept.size} bytes")
    return faults


async def tool_entries(client: httpx.AsyncClient, **wanted: str) -> list[dict[str, Any]]:
    headers = {"Accept": "application/x-ndjson"}
    params = {"type": "tool", **wanted}
    answer = await insist(lambda: client.get("/accounting/entries", params=params, headers=headers))
    assert answer.status_code == 200
    return [json.loads(line) for line in answer.text.splitlines()]


def misbooked(acknowledged: Iterable[Kept], entries: list[dict[str, Any]]) -> list[str]:
    """Every acknowledged handle has one entry, the one that its answer named."""
    counts = Counter(entry["details"]["tool_output_handle"] for entry in entries)
    ids = {entry["id"]: entry["details"]["tool_output_handle"] for entry in entries}
    faults = []
    for kept in acknowledged:
        if counts[kept.handle] != 1:
            faults.append(f"{counts[kept.handle]} entries: {kept.handle}")
        elif ids.get(kept.entry_id) != kept.handle:
            faults.append(f"another entry than was told: {kept.handle}")
    return faults
