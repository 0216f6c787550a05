"""An extraction over twenty chunks: its time against the backend's own, its memory for each in flight."""

import itertools
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from tqdm import tqdm

from bench import corpus
from bench.backend import LATENCY
from bench.servers import LOAD_CORE, Server, pin, running

SIZE = 2_000_000
CHUNKS = 20
# What the model reads of each: its own bytes and, by default, a tenth of overlap.
CHUNK_BYTES = SIZE * 11 // CHUNKS // 10
ROUNDS = 5
MEMORY_ROUNDS = 3
IN_FLIGHT = (2, 8, 20)
MB = 1_000_000

_OUTPUT_TOKENS = 2000
# A first guess, in tokens; what a chunk's prompt holds besides its data is found by asking.
_WINDOW = 50_000
_TRIES = 8
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Stored:
    """The document of the measurements, and a small one to warm up with."""

    handle: str
    small: str


@dataclass(frozen=True)
class Run:
    wall: float
    cpu: float
    chunks: int


@dataclass(frozen=True)
class Place:
    """What every server here shares: the backend that it asks, and the folder that it stores in."""

    backend: Server
    folder: Path

    @contextmanager
    def serving(self, window: int, concurrency: int) -> Iterator[Server]:
        policy = self.folder / "policy.toml"
        policy.write_text(
            f'[models."bench"]\ncontext_window = {window}\nmax_output_tokens = {_OUTPUT_TOKENS}\n'
        )
        with running(
            "spillgate",
            SPILLGATE_STORAGE_URL=f"disk://{self.folder}/state",
            SPILLGATE_POLICY_FILE=str(policy),
            SPILLGATE_LLM_BASE_URL=f"{self.backend.url}/v1",
            SPILLGATE_LLM_MODELS="bench",
            SPILLGATE_LLM_API_KEY="x",
            SPILLGATE_EXTRACT_CONCURRENCY=str(concurrency),
        ) as server:
            yield server


def _post(server: Server, path: str, sent: dict[str, object]) -> dict[str, object]:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=130) as client:
        answer = client.post(path, json=sent)
    assert answer.is_success, answer.text
    told: dict[str, object] = answer.json()
    return told


def store(server: Server) -> Stored:
    handles = []
    for size in (SIZE, 20_000):
        text = corpus.texts(size, 1)[0]
        handles.append(_post(server, "/results", {"tool_name": "bench", "content": text})["handle"])
    return Stored(*map(str, handles))


def ask(server: Server, handle: str) -> Run:
    """Each time another question: what was found for the last one is kept."""
    question = f"Which orders were late? Say it in {next(_numbers)} words at most."
    cpu, started = server.cpu_seconds, time.perf_counter()
    told = _post(server, "/extract", {"handle": handle, "extract": question, "mode": "full-chunked"})
    wall = time.perf_counter() - started
    assert told["status"] == "complete", told["warnings"]
    coverage = told["coverage"]
    assert isinstance(coverage, dict)
    return Run(wall, server.cpu_seconds - cpu, coverage["chunks_total"])


def fitting(place: Place, stored: Stored) -> int:
    """The context window that makes exactly `CHUNKS` of the document."""
    window = _WINDOW
    for _ in range(_TRIES):
        with place.serving(window, concurrency=64) as server:
            chunks = ask(server, stored.handle).chunks
        if chunks == CHUNKS:
            return window
        # Aimed at the middle of the windows that make so many.
        window = round(window * (chunks - 0.5) / (CHUNKS - 0.5))
    raise RuntimeError(f"no window was found that makes {CHUNKS} chunks; the last one made {chunks}")


def walls(place: Place, stored: Stored, window: int, concurrency: int, rounds: int, bar: "tqdm[None]") -> str:
    """A row of medians. The ideal is the backend's time alone: the waves of the map, and one reduce."""
    ideal = (math.ceil(CHUNKS / concurrency) + 1) * LATENCY
    runs = []
    with place.serving(window, concurrency) as server:
        ask(server, stored.small)
        for _ in range(rounds):
            runs.append(ask(server, stored.handle))
            bar.update()
    assert all(run.chunks == CHUNKS for run in runs)
    wall = statistics.median(run.wall for run in runs)
    cpu = statistics.median(run.cpu for run in runs)
    figures = f"{wall * 1000:,.0f} | {ideal * 1000:,.0f} | {wall / ideal:.3f} x | {1 - ideal / wall:.1%}"
    return f"| {concurrency} at a time | {figures} | {cpu * 1000:.0f} |"


def growth(place: Place, stored: Stored, window: int, concurrency: int) -> int:
    """The peak in bytes. A new process each time: memory that was freed is not given back."""
    with place.serving(window, concurrency) as server:
        ask(server, stored.small)
        before = server.rss
        # Resets the kernel's count of the peak.
        Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
        ask(server, stored.handle)
        return server.peak - before


def memory(place: Place, stored: Stored, window: int, bar: "tqdm[None]") -> Iterator[str]:
    """A row for each number in flight, and one for what each more of them takes."""
    medians = []
    for concurrency in IN_FLIGHT:
        grown = []
        for _ in range(MEMORY_ROUNDS):
            grown.append(growth(place, stored, window, concurrency))
            bar.update()
        medians.append(statistics.median(grown))
        each = medians[-1] / concurrency / CHUNK_BYTES
        yield f"| {concurrency} | {medians[-1] / MB:.1f} | {each:.2f} x its size |"
    each = (medians[-1] - medians[0]) / (IN_FLIGHT[-1] - IN_FLIGHT[0])
    yield f"| each more | {each / MB:.2f} | {each / CHUNK_BYTES:.2f} x its size |"


def measure(place: Place) -> tuple[list[str], list[str]]:
    with place.serving(_WINDOW, 8) as server:
        stored = store(server)
    window = fitting(place, stored)
    total = ROUNDS + 1 + MEMORY_ROUNDS * len(IN_FLIGHT)
    with tqdm(total=total, unit="run", desc="extract") as bar:
        times = [walls(place, stored, window, 8, ROUNDS, bar), walls(place, stored, window, 1, 1, bar)]
        return times, list(memory(place, stored, window, bar))


def main() -> None:
    pin(os.getpid(), LOAD_CORE)
    with tempfile.TemporaryDirectory(prefix="bench-extract-") as folder, running("backend") as backend:
        pin(backend.process.pid, LOAD_CORE)
        times, sizes = measure(Place(backend, Path(folder)))
    chunks = f"{CHUNKS} chunks of {CHUNK_BYTES // 1000} KB"
    print(f"\n{SIZE // MB} MB in {chunks}; the backend takes {LATENCY} s a call:\n")
    print("| chunks | wall ms | ideal ms | against ideal | not the backend's | server's CPU ms |")
    print("|---|---|---|---|---|---|")
    print("\n".join(times))
    print("\n| chunks in flight | growth of the peak, MB | for each chunk in flight |\n|---|---|---|")
    print("\n".join(sizes))


if __name__ == "__main__":
    main()
