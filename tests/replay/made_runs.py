"""A small set of runs, made up: always the same. An agent lists orders, reads logs, and edits a file."""

import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

RUNS = 24

_CITIES = ("Lisbon", "Oslo", "Quito", "Turin", "Accra", "Hanoi", "Lima", "Riga")
_STATES = ("paid", "shipped", "open", "returned")


def runs() -> Iterator[dict[str, Any]]:
    for number in range(RUNS):
        yield _run(random.Random(number), number)


def write(path: Path, count: int = RUNS, first: int = 0) -> Path:
    """Writes `count` runs as JSON lines."""
    path.write_text("".join(f"{json.dumps(run)}\n" for run in islice(runs(), first, first + count)))
    return path


def write_small(path: Path) -> Path:
    """Writes one run of less than the usual size."""
    return write(path, 1, first=1)


def _run(chance: random.Random, number: int) -> dict[str, Any]:
    """Three large results and three small ones, of which later turns use ids, an address and a path."""
    orders = [_order(chance, index) for index in range(chance.randrange(20, 240))]
    log = [_line(chance, index) for index in range(chance.randrange(40, 400))]
    chosen, shown = chance.choice(orders), orders[0]
    fault = chance.choice([line for line in log if "ERROR" in line] or log)
    trace = fault.rsplit(" ", 1)[1]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You help the support team of a shop."},
        {
            "role": "user",
            "content": f"Find out what happened to the {chosen['state']} order from {chosen['city']}.",
        },
    ]
    _call(messages, "list_orders", {"limit": 500}, json.dumps(orders))
    _call(messages, "get_order", {"id": shown["id"]}, json.dumps(shown))
    _call(messages, "get_order", {"id": chosen["id"]}, json.dumps(chosen))
    _call(messages, "read_log", {"service": "shipping"}, "\n".join(log))
    _call(
        messages, "find_trace", {"trace": trace, "order": chosen["id"]}, f"trace {trace}: carrier timed out"
    )
    messages.append(
        {"role": "assistant", "content": f"The order was held up. Write to {chosen['mail']}, trace {trace}."}
    )
    return {"messages": messages, "passed": number % 3 > 0}


def _order(chance: random.Random, index: int) -> dict[str, Any]:
    name = f"ord-{chance.randrange(10**8):08d}"
    return {
        "id": name,
        "row": index,
        "state": chance.choice(_STATES),
        "city": chance.choice(_CITIES),
        "mail": f"{name}@shop.example",
    }


def _line(chance: random.Random, index: int) -> str:
    level = "ERROR" if chance.random() < 0.03 else "INFO"
    return (
        f"2026-03-01T{index // 60 % 24:02d}:{index % 60:02d}:00Z {level} shipping handled a parcel in "
        f"{chance.randrange(900)} ms, trace {chance.getrandbits(48):012x}"
    )


def _call(messages: list[dict[str, Any]], tool: str, arguments: dict[str, Any], result: str) -> None:
    name = f"call-{len(messages)}"
    function = {"name": tool, "arguments": json.dumps(arguments)}
    call = {"id": name, "type": "function", "function": function}
    messages.append({"role": "assistant", "content": f"I use {tool}.", "tool_calls": [call]})
    messages.append({"role": "tool", "tool_call_id": name, "content": result})
