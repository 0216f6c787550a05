"""The start: time to the first answer of /livez, its processor time, and what is resident when idle."""

import http.client
import statistics
import time

from bench.servers import Server, running

ROUNDS = 5
SETTLED_SECONDS = 3.0


def _start(name: str) -> tuple[float, float, float]:
    """Seconds to the first answer, processor seconds by then, and idle resident MB."""
    began = time.perf_counter()
    with running(name, pinned=False) as server:
        seconds, cpu = time.perf_counter() - began, server.cpu_seconds
        _ask(server)
        time.sleep(SETTLED_SECONDS)
        return seconds, cpu, server.rss / 1_000_000


def _ask(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", "/livez")
    connection.getresponse().read()
    connection.close()


def main() -> None:
    rounds = [(_start("bare"), _start("spillgate")) for _ in range(ROUNDS)]
    print("| start, median of five | bare | spillgate |\n|---|---|---|")
    for at, label in enumerate(("seconds to the first answer", "of processor time", "idle, resident MB")):
        cells = (statistics.median(one[at] for one in of_server) for of_server in zip(*rounds, strict=True))
        print(f"| {label} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")


if __name__ == "__main__":
    main()
