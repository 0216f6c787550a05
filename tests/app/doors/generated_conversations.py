"""Conversations made up from a seed, in the message shape of one of five APIs."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

Row = dict[str, Any]
Made = tuple[str, str, Any, Any]
"""Id, tool, arguments and result of one call."""

TOOLS = ("bash", "read_file", "mcp__db__select", "tool_output")
SIZES = (0, 3, 40, 2_000, 11_000, 13_000, 30_000)


def conversation(seed: int) -> list[list[Row]]:
    """Its turns: a question, calls, their results, and what the model says."""
    random = Random(seed)
    shape = random.choice(SHAPES)
    turns = []
    for turn in range(random.randint(2, 5)):
        made = [
            (
                random.choice((f"call-{turn}-{n}", f"call_{n}")),
                random.choice(TOOLS),
                {"n": random.randrange(3)},
                _result(random),
            )
            for n in range(random.choice((1, 1, 2, 4)))
        ]
        turns.append([*_question(shape, random, turn), *shape(made, random)])
    return turns


def _question(shape: Callable[..., list[Row]], random: Random, turn: int) -> list[Row]:
    text = f"Question {turn}: {'why? ' * random.choice((1, 4000))}"
    if shape is _gemini:
        return [{"role": "user", "parts": [{"text": text}]}]
    if shape is _bedrock:
        return [{"role": "user", "content": [{"text": text}]}]
    return [{"role": "user", "content": text}]


def _result(random: Random) -> Any:
    size, word = random.choice(SIZES), random.choice(("tulip", "rose ‘é’", "fern\t\\"))
    kind = random.randrange(4)
    if kind == 0:
        return {"rows": [{"id": n, "name": word, "price": n / 4} for n in range(size // 40)], "next": None}
    return "".join(f"{n}: the {word} with number {n}\n" for n in range(size // 25 + 1))[:size]


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _texts(value: Any, random: Random, **text: str) -> Any:
    """A string, or a list of blocks with a mark of the cache."""
    if random.random() < 0.5:
        return _as_text(value)
    block: Row = {**text, "text": _as_text(value)}
    if random.random() < 0.5:
        block["cache_control"] = {"type": "ephemeral"}
    return [block, {"type": "image", "source": {}}][: random.choice((1, 2))]


def _chat(made: list[Made], random: Random) -> list[Row]:
    calls = [
        {"id": id, "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}
        for id, tool, arguments, _ in made
    ]
    results = [
        {"role": "tool", "tool_call_id": id, "content": _texts(value, random, type="text")}
        for id, _, _, value in made
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def _responses(made: list[Made], random: Random) -> list[Row]:
    calls = [
        {"type": "function_call", "call_id": id, "name": tool, "arguments": json.dumps(arguments)}
        for id, tool, arguments, _ in made
    ]
    results = [
        {
            "type": "function_call_output",
            "call_id": id,
            "output": _texts(value, random, type="input_text"),
        }
        for id, _, _, value in made
    ]
    return [*calls, *results]


def _anthropic(made: list[Made], random: Random) -> list[Row]:
    calls = [{"type": "tool_use", "id": id, "name": tool, "input": more} for id, tool, more, _ in made]
    results = [
        {"type": "tool_result", "tool_use_id": id, "content": _texts(value, random, type="text")}
        for id, _, _, value in made
    ]
    return [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]


def _gemini(made: list[Made], random: Random) -> list[Row]:
    has_ids = random.random() < 0.5
    calls, results = [], []
    for id, tool, arguments, value in made:
        named = {"id": id} if has_ids else {}
        calls.append({"functionCall": {**named, "name": tool, "args": arguments}})
        response = value if isinstance(value, dict) else {random.choice(("output", "result")): value}
        results.append({"functionResponse": {**named, "name": tool, "response": response}})
    return [{"role": "model", "parts": calls}, {"role": "user", "parts": results}]


def _bedrock(made: list[Made], random: Random) -> list[Row]:
    calls = [{"toolUse": {"toolUseId": id, "name": tool, "input": more}} for id, tool, more, _ in made]
    results = [
        {
            "toolResult": {
                "toolUseId": id,
                "content": [{"json": value} if isinstance(value, dict) else {"text": value}],
            }
        }
        for id, _, _, value in made
    ]
    cached = [{"cachePoint": {"type": "default"}}][: random.randrange(2)]
    return [{"role": "assistant", "content": calls}, {"role": "user", "content": [*results, *cached]}]


SHAPES = (_chat, _responses, _anthropic, _gemini, _bedrock)
