"""All measurements, one after the other."""

import os

from bench import (
    accuracy,
    clients,
    corpus,
    extract,
    hooks,
    limits,
    litellm_history,
    loop,
    mcp,
    memory,
    objects,
    operations,
    outcomes,
    outline,
    recall,
    redaction,
    redis,
    relay,
    replay,
    retrieve,
    sealing,
    speed,
    start,
    summaries,
)


def main() -> None:
    cores = len(os.sched_getaffinity(0))
    for title, run in (
        ("The start", start.main),
        ("Memory", memory.main),
        ("The event loop", loop.main),
        ("Speed", speed.main),
        ("The limit", limits.main),
        ("Operations", operations.main),
        ("Summaries", summaries.main),
        ("Encryption", sealing.main),
        ("Clients", clients.main),
        ("MCP", mcp.main),
        ("Hooks", hooks.main),
        ("LiteLLM", litellm_history.main),
        ("The relay", relay.main),
        ("Extraction", extract.main),
        ("Retrieval", retrieve.main),
        ("Recall", recall.main),
        ("Structure of source", outline.main),
        ("Redaction", redaction.main),
        ("Redis", redis.main),
        ("Object store", objects.main),
        ("Token counts", accuracy.main),
        ("Outcomes", outcomes.main),
        ("Replay", replay.main),
    ):
        if run in (accuracy.main, outcomes.main, recall.main, replay.main) and not corpus.records():
            print(f"\n## {title}\nskipped: no recorded results (RECORDED_RESULTS)")
            continue
        print(f"\n## {title} ({cores} cores)\n", flush=True)
        run()


if __name__ == "__main__":
    main()
