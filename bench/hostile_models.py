"""Model backends that misbehave: each answer is 200 and in time, and the service stays small."""

import asyncio
import resource
import tempfile
import time
from pathlib import Path

import httpx
from tqdm import tqdm

from bench.servers import Server, running
from tests.extraction.backend import Backend
from tests.extraction.behaviours import BEHAVIOURS, HOSTILE, Behaviour

MODES = ("full-chunked", "read-grep")
DEADLINE, GRACE = 5.0, 0.5
BABBLES = 837
BABBLE_SECONDS = 120.0
MOST_MB = 150
MB = 1_000_000

_POLICY = "[models.m]\ncontext_window = 8000\nmax_output_tokens = 1000\n"
_TEXT = "".join(f"row {n:05}: nothing of interest, value {n * 7}\n" for n in range(1500))
_AT_ONCE = 8


async def _stored(client: httpx.AsyncClient) -> str:
    sent = {"tool_name": "journal", "content": _TEXT}
    return str((await client.post("/results", json=sent)).json()["handle"])


async def _asked(client: httpx.AsyncClient, handle: str, mode: str, number: int, deadline: float) -> float:
    """The seconds that the answer took. Raises AssertionError for another status than 200."""
    question = {"handle": handle, "extract": f"Question {number}?", "mode": mode}
    started = time.monotonic()
    answer = await client.post("/extract", json=question | {"deadline_ms": int(deadline * 1000)})
    assert answer.status_code == 200, answer.text
    return time.monotonic() - started


def _serving(folder: Path, backend: Backend) -> dict[str, str]:
    policy = folder / "policy.toml"
    policy.write_text(_POLICY)
    return {
        "SPILLGATE_LLM_BASE_URL": backend.base_url,
        "SPILLGATE_LLM_MODELS": "m",
        "SPILLGATE_POLICY_FILE": str(policy),
        "SPILLGATE_STORAGE_URL": "memory:",
    }


async def _each(behaviours: dict[str, Behaviour]) -> None:
    """Every behaviour in every mode, each by a question of its own."""
    late, slowest, before = [], 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        async with Backend("answers") as backend:
            with running("spillgate", **_serving(Path(folder), backend)) as server:
                async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
                    handle = await _stored(client)
                    # What a first question loads is not growth.
                    for mode in MODES:
                        await _asked(client, handle, mode, -1, DEADLINE)
                    before = server.rss
                    for number, (name, behaviour) in enumerate(tqdm(behaviours.items(), disable=None)):
                        for mode in MODES:
                            await backend.play(name if behaviour is BEHAVIOURS.get(name) else behaviour)
                            took = await _asked(client, handle, mode, number, DEADLINE)
                            slowest = max(slowest, took)
                            late += [f"{name} {mode} {took:.1f} s"] if took > DEADLINE + GRACE else []
                _told(f"{len(behaviours)} behaviours × {len(MODES)} modes", server, before)
    print(f"  all 200; slowest {slowest:.2f} s of {DEADLINE} s; late: {', '.join(late) or 'none'}")


async def _babbled() -> None:
    """Asks questions until the model has sent that many replies of 4 MB."""
    with tempfile.TemporaryDirectory() as folder:
        async with Backend(HOSTILE["babbles_closing_thoughts"]) as backend:
            with running("spillgate", **_serving(Path(folder), backend)) as server:
                async with httpx.AsyncClient(base_url=server.url, timeout=180) as client:
                    handle = await _stored(client)
                    await _asked(client, handle, "truncate", 0, DEADLINE)
                    before, started, numbers = server.rss, time.monotonic(), iter(range(10_000))

                    async def ask_on() -> None:
                        while backend.requests < BABBLES and time.monotonic() - started < BABBLE_SECONDS:
                            await _asked(client, handle, "full-chunked", next(numbers), 60)

                    await asyncio.gather(*[ask_on() for _ in range(_AT_ONCE)])
                    seconds = time.monotonic() - started
                    _told(
                        f"{backend.requests} replies of 4 MB of </think> in {seconds:.0f} s", server, before
                    )


def _told(what: str, server: Server, before: int) -> None:
    peak, now = (server.peak - before) / MB, (server.rss - before) / MB
    verdict = "held" if peak < MOST_MB else "MISSED"
    print(f"- {what}: grew by {peak:.0f} MB at most, {now:.0f} MB in the end (under {MOST_MB}: {verdict})")


def main() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    asyncio.run(_each({**BEHAVIOURS, **HOSTILE}))
    asyncio.run(_babbled())


if __name__ == "__main__":
    main()
