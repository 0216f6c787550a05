"""What a scripted backend does with a request: answers as it should, or fails in one of the ways known."""

import asyncio
import email.utils
import json
import re
import socket
import struct
import time
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.counts import count

Spoken = str | dict[str, Any]
"""What the model says: its text, or a whole assistant message, with `tool_calls` for instance."""

Answer = Callable[[dict[str, Any]], Spoken]
"""From the request's JSON to what the model says."""

GREAT_BYTES = count(12, 50) << 20
BOMB_BYTES = 64 << 20
DRIP_SECONDS = 0.1

_PIECE = b"x" * (1 << 16)
_OPENING = re.compile(r"<(ai-agent-[A-Za-z0-9_-]+-FINAL)")


@dataclass(frozen=True)
class Asked:
    """A request as it came; header names in lower case."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def text(self) -> str:
        return prompt_text(self.body)


@dataclass
class Exchange:
    """One request, and the connection to answer it on. `latency` in seconds."""

    asked: Asked
    answer: Answer
    latency: float
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    is_last: bool = False

    async def send(self, status: int, body: bytes, **headers: str) -> None:
        await self.send_head(status, **{"Content_Length": str(len(body))} | headers)
        await self.write(body)

    async def write(self, data: bytes) -> None:
        if self.writer.is_closing():
            raise ConnectionResetError
        self.writer.write(data)
        await self.writer.drain()

    async def send_json(self, status: int, body: object, **headers: str) -> None:
        await self.send(status, json.dumps(body).encode(), **headers)

    async def send_head(self, status: int, **headers: str) -> None:
        """Header names with `_` for `-`."""
        fields = {"Content_Type": "application/json"} | headers
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
        await self.write(f"HTTP/1.1 {status} Scripted\r\n{lines}\r\n".encode())

    async def wait_for_the_end(self) -> None:
        """Until the other side is tired of it."""
        self.is_last = True
        while await self.reader.read(1 << 16):
            pass


Behaviour = Callable[[Exchange], Awaitable[None]]


def prompt_text(body: dict[str, Any]) -> str:
    return "\n".join(message["content"] or "" for message in body["messages"])


def completion(spoken: Spoken, finish_reason: str = "stop", **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": spoken} if isinstance(spoken, str) else spoken
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], **fields}


def usage(asked: Asked, spoken: Spoken) -> dict[str, Any]:
    """About what a backend would report: four characters are a token."""
    read, said = len(asked.text) // 4 + 1, len(str(spoken)) // 4 + 1
    return {"prompt_tokens": read, "completion_tokens": said, "total_tokens": read + said}


async def answers(it: Exchange) -> None:
    await asyncio.sleep(it.latency)
    spoken = it.answer(it.asked.body)
    reason = "tool_calls" if isinstance(spoken, dict) and spoken.get("tool_calls") else "stop"
    await it.send_json(200, completion(spoken, reason, usage=usage(it.asked, spoken)))


async def silent(it: Exchange) -> None:
    await it.wait_for_the_end()


async def resets(it: Exchange) -> None:
    it.is_last = True
    it.writer.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )
    it.writer.transport.abort()


async def stalls(it: Exchange) -> None:
    await it.send_head(200, Content_Length="1000")
    await it.write(b'{"id":')
    await it.wait_for_the_end()


async def drips(it: Exchange) -> None:
    body = json.dumps(completion("drop by drop " * 1000)).encode()
    await it.send_head(200, Content_Length=str(len(body)))
    for byte in body:
        await it.write(bytes((byte,)))
        await asyncio.sleep(DRIP_SECONDS)


def fails(status: int, code: str | None = None, message: str = "No.", **headers: str) -> Behaviour:
    async def behaviour(it: Exchange) -> None:
        error = {"message": message, "type": code or "error", "param": None, "code": code}
        await it.send_json(status, {"error": error}, **headers)

    return behaviour


def rate_limited(**headers: str) -> Behaviour:
    return fails(429, "rate_limit_exceeded", "You are too fast.", **headers)


async def rate_limited_until(it: Exchange) -> None:
    """One to two seconds: a header's date has no parts of seconds."""
    date = email.utils.formatdate(int(time.time()) + 2, usegmt=True)
    await rate_limited(Retry_After=date)(it)


async def html(it: Exchange) -> None:
    await it.send(200, b"<!doctype html><title>Sign in</title>", Content_Type="text/html")


async def truncated_json(it: Exchange) -> None:
    await it.send(200, json.dumps(completion("It ends in the midd")).encode()[:-40])


def says(body: object) -> Behaviour:
    encoded = cache(lambda: json.dumps(body).encode())

    async def behaviour(it: Exchange) -> None:
        await it.send(200, encoded())

    return behaviour


def reports(**fields: Any) -> Behaviour:
    """Answers, with fields of our own for the usage."""

    async def behaviour(it: Exchange) -> None:
        await it.send_json(200, completion(it.answer(it.asked.body), **fields))

    return behaviour


async def great_body(it: Exchange) -> None:
    """Chunked, so that its length is not known before."""
    it.is_last = True
    await it.send_head(200, Transfer_Encoding="chunked")
    for _ in range(GREAT_BYTES // len(_PIECE)):
        await it.write(b"%x\r\n%s\r\n" % (len(_PIECE), _PIECE))
    await it.write(b"0\r\n\r\n")


@cache
def bomb() -> bytes:
    """A chat completion of 64 MB, packed to about 64 KB."""
    packer = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    head, tail = json.dumps(completion("@")).encode().split(b"@")
    parts = [packer.compress(head)]
    parts += [packer.compress(_PIECE) for _ in range(BOMB_BYTES // len(_PIECE))]
    return b"".join((*parts, packer.compress(tail), packer.flush()))


async def gzip_bomb(it: Exchange) -> None:
    await it.send(200, bomb(), Content_Encoding="gzip")


async def echoes_an_order(it: Exchange) -> None:
    """Answers like a model that takes what stands in the document for its instruction."""
    order = next((line for line in it.asked.text.splitlines() if "IGNORE" in line), "IGNORE ALL OF IT")
    await it.send_json(200, completion(order, usage=usage(it.asked, order)))


def tagged(it: Exchange) -> tuple[str, str]:
    """The tags that the prompt asks for around the report."""
    found = _OPENING.findall(it.asked.text)
    tag = found[-1] if found else "none"
    return f'<{tag} format="text">', f"</{tag}>"


def replies(text: str, finish_reason: str = "stop") -> Behaviour:
    """Replies with the text, in which OPEN and CLOSE stand for the tags."""

    async def behaviour(it: Exchange) -> None:
        opening, closing = tagged(it)
        spoken = text.replace("OPEN", opening).replace("CLOSE", closing)
        await it.send_json(200, completion(spoken, finish_reason))

    return behaviour


def calls_tools(*calls: tuple[str, str]) -> Behaviour:
    """Calls these tools with these arguments, whatever it is asked."""
    named = [
        {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls)
    ]
    return says(completion({"role": "assistant", "content": "", "tool_calls": named}, "tool_calls"))


def raw(data: bytes) -> Behaviour:
    """Writes these bytes and closes the connection."""

    async def behaviour(it: Exchange) -> None:
        it.is_last = True
        await it.write(data)

    return behaviour


def body(data: bytes, **headers: str) -> Behaviour:
    async def behaviour(it: Exchange) -> None:
        await it.send(200, data, **headers)

    return behaviour


async def errors_for_long(it: Exchange) -> None:
    it.is_last = True
    await it.send_head(500, Transfer_Encoding="chunked")
    for _ in range(GREAT_BYTES // len(_PIECE)):
        await it.write(b"%x\r\n%s\r\n" % (len(_PIECE), _PIECE))


BABBLE_BYTES = 4 << 20
_BABBLED = BABBLE_BYTES - (64 << 10)
_JSON = json.dumps(completion("@")).encode()

BEHAVIOURS: dict[str, Behaviour] = {
    "answers": answers,
    "refuses": resets,
    "silent": silent,
    "resets": resets,
    "stalls": stalls,
    "drips": drips,
    "rate_limited_s": rate_limited(Retry_After="1"),
    "rate_limited_date": rate_limited_until,
    "rate_limited_9999": rate_limited(Retry_After="9999"),
    "rate_limited_garbage": rate_limited(Retry_After="soon"),
    "error_500": fails(500),
    "error_503": fails(503),
    "bad_key": fails(401, "invalid_api_key"),
    "no_quota": fails(429, "insufficient_quota", Retry_After="1"),
    "html": html,
    "truncated_json": truncated_json,
    "empty_content": says(completion("")),
    "null_choices": says({"id": "chatcmpl-1", "choices": None}),
    "great_body": great_body,
    "gzip_bomb": gzip_bomb,
    "redirect": fails(307, Location="http://169.254.169.254/latest/meta-data"),
    "context_exceeded": fails(400, "context_length_exceeded", "This is too long."),
    "content_filter": says(completion({"role": "assistant", "content": None}, "content_filter")),
    "echoes_an_order": echoes_an_order,
    "usage_wrong": reports(usage={"prompt_tokens": -3, "completion_tokens": "many"}),
    "usage_absurd": reports(usage={"prompt_tokens": 9_000_000, "completion_tokens": 9_000_000}),
    "usage_absent": reports(),
    "babbles_closing_thoughts": replies("</think>" * (_BABBLED // 8)),
    "babbles_tags": replies("OPEN" * 60_000),
    "empty_report": replies("OPEN\nCLOSE"),
    "wrong_nonce": replies('<ai-agent-0000-FINAL format="text">\nfound\n</ai-agent-0000-FINAL>'),
    "stopped": replies("OPEN\nthe beginning of", "length"),
    "report_in_thoughts": replies("<think>OPEN\nfound\nCLOSE</think>"),
    "nuls": replies("OPEN\n\0\0\0\nCLOSE"),
    "lone_surrogate": body(_JSON.replace(b"@", rb"\ud800")),
    "calls_for_ever": calls_tools(("Read", '{"offset": 1, "limit": 2000}')),
    "calls_unknown_tools": calls_tools(("rm", "{}"), ("", "{}"), ("x" * 10_000, "{}")),
    "calls_with_nesting": calls_tools(("Grep", "[" * 100_000)),
    "calls_hard_patterns": calls_tools(
        *[("Grep", json.dumps({"pattern": "(a|b|c){1,900}.*" * count(3, 9)}))] * count(1, 2)
    ),
    "calls_too_often": calls_tools(*[("Read", "{}")] * 20_000),
    "nested": body(b"[" * (1 << 20)),
    "not_utf8": body(_JSON.replace(b"@", b"\xff\xfe")),
    "wrong_types": says({"choices": [{"message": {"content": {"a": 1}}}], "usage": []}),
    "streams_events": body(b'data: {"choices":[]}\n\n' * 1000, Content_Type="text/event-stream"),
    "long_headers": raw(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 100_000),
    "no_http": raw(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "closes_early": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"),
    "two_lengths": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n{}"),
    "errors_for_long": errors_for_long,
    "length_of_a_terabyte": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1099511627776\r\n\r\n{"),
}
"""All ways in which a backend answers, well and badly."""

SCRIPTS: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in BEHAVIOURS if name != "error_500"},
    "error_500_once": ("error_500", "answers"),
}
"""Every way that a service has to survive, as a script for a Backend."""
