"""All measurements, one after the other."""

import os

from bench import (
    corpus,
    history,
    hooks,
    ledgers,
    limits,
    loop,
    memory,
    outline,
    query,
    recall,
    redis,
    relay,
    retrieve,
    start,
    summaries,
)


def main() -> None:
    cores = len(os.sched_getaffinity(0))
    for title, run in (
        ("The start", start.main),
        ("Memory", memory.main),
        ("The event loop", loop.main),
        ("The limit", limits.main),
        ("Summaries", summaries.main),
        ("The three ledgers", ledgers.main),
        ("A month on PostgreSQL", history.main),
        ("Hooks", hooks.main),
        ("The relay", relay.main),
        ("Queries", query.main),
        ("Retrieval", retrieve.main),
        ("Recall", recall.main),
        ("Structure of source", outline.main),
        ("Redis", redis.main),
    ):
        if run is recall.main and not corpus.records():
            print(f"\n## {title}\nskipped: no recorded results (RECORDED_RESULTS)")
            continue
        print(f"\n## {title} ({cores} cores)\n", flush=True)
        run()


if __name__ == "__main__":
    main()
