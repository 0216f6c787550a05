"""SQL by size and format: the first query over a result, the next one, and /livez during both."""

import json
import random
import statistics
import threading
import time
from collections.abc import Iterator

import httpx
from tqdm import tqdm

from bench.retrieve import MB, keep
from bench.servers import Server, running

SIZES = (10, 60)
ROUNDS = 3
SQL = "SELECT city, count(*) AS n, sum(amount) AS amount FROM data WHERE status = 'failed' GROUP BY city"


def rows() -> Iterator[dict[str, object]]:
    rng = random.Random(1)
    number = 0
    while True:
        yield {
            "id": number,
            "name": f"order {number}",
            "amount": round(rng.random() * 1000, 2),
            "at": f"2026-01-{number % 28 + 1:02}T10:{number % 60:02}:00Z",
            "status": rng.choice(("paid", "open", "failed")),
            "city": rng.choice(("Lima", "Oslo", "Rome")),
            "note": f"left at the door of number {number % 900}",
        }
        number += 1


def texts(size: int) -> Iterator[tuple[str, str]]:
    """A text of about so many bytes in each format, with the rows in an object in the first."""
    every, lines, total = [], list[str](), 0
    for row in rows():
        every.append(row)
        lines.append(json.dumps(row))
        total += len(lines[-1]) + 2
        if total >= size:
            break
    yield "JSON", json.dumps({"total": len(every), "orders": every})
    yield "NDJSON", "\n".join(lines)
    del lines
    columns = list(every[0])
    count = round(len(every) * 1.7)
    head = ",".join(columns)
    more = (",".join(str(cell) for cell in every[at % len(every)].values()) for at in range(count))
    yield "CSV", "\n".join((head, *more))[:size].rpartition("\n")[0]


class Livez:
    """Asks /livez all the time. `worst` is the longest answer in seconds."""

    def __init__(self, server: Server) -> None:
        self._url, self._ends = f"{server.url}/livez", threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.worst = 0.0

    def __enter__(self) -> "Livez":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _ask(self) -> None:
        with httpx.Client() as client:
            while not self._ends.wait(0.005):
                started = time.perf_counter()
                client.get(self._url).raise_for_status()
                self.worst = max(self.worst, time.perf_counter() - started)


def seconds(client: httpx.Client, handle: str) -> float:
    started = time.perf_counter()
    asked = {"expression": SQL}
    answer = client.get(f"/results/{handle}/query", params=asked)
    answer.raise_for_status()
    assert answer.json()["total"] == 3, answer.text
    return time.perf_counter() - started


def main() -> None:
    print("| | size | first query | again | longest /livez |")
    print("|---|---|---|---|---|")
    with tqdm(total=3 * ROUNDS * len(SIZES)) as bar:
        for size in SIZES:
            for name, text in texts(size * MB):
                first, again, worst = [], [], 0.0
                for _ in range(ROUNDS):
                    with (
                        running("spillgate", pinned=False) as server,
                        httpx.Client(base_url=server.url, timeout=60) as client,
                    ):
                        handle = keep(client, text)
                        with Livez(server) as livez:
                            first.append(seconds(client, handle))
                            again.append(seconds(client, handle))
                        worst = max(worst, livez.worst)
                    bar.update()
                print(
                    f"| {name} | {len(text) / MB:.0f} MB | {statistics.median(first):.2f} s "
                    f"| {statistics.median(again) * 1000:.0f} ms | {worst * 1000:.0f} ms |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
