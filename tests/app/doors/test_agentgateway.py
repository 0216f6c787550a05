"""agentgateway's `contextCompression`, replayed as it was announced: before a real process of the service."""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from policies.outcomes.store import TOO_LARGE
from tests.app.doors.payloads import LARGE, changed
from tests.app.doors.test_compress import SDKS, messages_of, results_in
from tests.faults.service_process import Service

pytestmark = pytest.mark.anyio

MIN_SIZE_BYTES = 16_384
SYSTEM = ("system", "developer")


@dataclass
class Gateway:
    """Posts the messages of large requests without those of the system, and checks the answer. Whatever is
    wrong with it, the request goes on as it was (`failOpen`). `saved`: what each answer said."""

    engine: httpx.AsyncClient
    saved: list[int] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)

    async def forwarded(self, messages: list[Any]) -> list[Any]:
        if len(json.dumps(messages).encode()) < MIN_SIZE_BYTES:
            return messages
        sent = [one for one in messages if one.get("role") not in SYSTEM]
        try:
            answer = await self.engine.post("/v1/compress", json={"messages": sent, "model": "m"})
            answer.raise_for_status()
            told = answer.json()
            shown, saved = list(told["messages"]), int(told["tokens_saved"])
        except (httpx.HTTPError, ValueError, KeyError) as error:
            self.discarded.append(type(error).__name__)
            return messages
        if len(shown) != len(sent) or ids_in(shown) != ids_in(sent) or marks_in(shown) != marks_in(sent):
            self.discarded.append("broken")
            return messages
        self.saved.append(saved)
        rest = iter(shown)
        return [one if one.get("role") in SYSTEM else next(rest) for one in messages]


def ids_in(value: Any) -> list[Any]:
    """Ids of calls and results, in their order."""
    names = ("id", "call_id", "tool_call_id", "tool_use_id", "toolUseId")
    return [member for name, member in members_in(value) if name in names]


def marks_in(value: Any) -> list[Any]:
    return [member for name, member in members_in(value) if name in ("cache_control", "cachePoint")]


def members_in(value: Any) -> list[tuple[str, Any]]:
    inner = list(value.items()) if isinstance(value, dict) else []
    values = value if isinstance(value, list) else [member for _, member in inner]
    return [*inner, *(one for member in values for one in members_in(member))]


def large(sdk: str) -> list[Any]:
    messages = messages_of(sdk)
    for number, path in enumerate(list(results_in(messages))):
        messages = changed(messages, path, f"{LARGE}{number}")
    return messages


@pytest.mark.parametrize("sdk", SDKS)
async def test_large_requests_are_compressed_in_a_way_that_the_gateway_accepts(
    shared_service: Service, sdk: str
) -> None:
    async with shared_service.client() as engine:
        gateway = Gateway(engine)
        few = messages_of(sdk)
        assert await gateway.forwarded(few) == few
        assert (gateway.saved, gateway.discarded) == ([], [])
        sent = large(sdk)
        first = await gateway.forwarded(sent)
        again = await gateway.forwarded([*sent, {"role": "user", "content": "And now?"}])
        assert gateway.discarded == []
        assert min(gateway.saved) > 20_000
        assert again[:-1] == first
        assert json.dumps(first).count(TOO_LARGE) == json.dumps(few).count('"RESULT')
        assert [one for one in first if one.get("role") in SYSTEM] == [
            one for one in sent if one.get("role") in SYSTEM
        ]


async def test_without_the_service_the_request_goes_on(service: Service) -> None:
    async with service.client() as engine:
        gateway = Gateway(engine)
        await service.stop()
        sent = large("anthropic messages")
        assert await gateway.forwarded(sent) == sent
        assert gateway.discarded == ["ConnectError"]
