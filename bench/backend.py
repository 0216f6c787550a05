"""A chat-completions backend that answers every call after the same time, with the same report."""

import asyncio
import json
import re
from typing import Any

from bench.bare import answer, lifespan

LATENCY = 0.5

# In the JSON as it comes: nothing in the tag is escaped there.
_NONCE = re.compile(rb"<ai-agent-([^\s>]+)-FINAL")
_BYTES_PER_TOKEN = 3


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        await lifespan(receive, send)
        return
    prompt = bytearray()
    more = True
    while more:
        message = await receive()
        prompt += message.get("body", b"")
        more = message.get("more_body", False)
    if scope["method"] != "POST":
        await answer(send, b"{}")
        return
    # The time counts from the prompt's last byte; what finding the nonce takes is part of it.
    done = asyncio.get_running_loop().time() + LATENCY
    body = _completion(prompt)
    await asyncio.sleep(done - asyncio.get_running_loop().time())
    await answer(send, body)


def _completion(prompt: bytearray) -> bytes:
    found = _NONCE.search(prompt)
    nonce = found[1].decode() if found else "none"
    text = f'<ai-agent-{nonce}-FINAL format="text">\nOne order was late.\n</ai-agent-{nonce}-FINAL>'
    tokens = len(prompt) // _BYTES_PER_TOKEN
    return json.dumps(
        {
            "id": "chatcmpl-bench",
            "object": "chat.completion",
            "created": 0,
            "model": "bench",
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            ],
            "usage": {"prompt_tokens": tokens, "completion_tokens": 30, "total_tokens": tokens + 30},
        }
    ).encode()
