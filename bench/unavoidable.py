"""The least that Spillgate has to do for a result, with nothing around it: the reference for its speed.

Up to the size cap the text is decoded and counted exactly. Past the cap it is decoded, encoded and hashed,
its lines are counted, its tokens sampled, and a body and an info are written, without a sync.
"""

import hashlib
import itertools
import os
from pathlib import Path
from typing import Any

import msgspec

from bench.bare import answer, lifespan
from content.tokens import TokenSample, load_encoding

CAP_BYTES = 12_288
INFO = b" " * 500

encoding = load_encoding("o200k_base")
folder = Path(os.environ["TWIN_FOLDER"])
names = itertools.count()


class Result(msgspec.Struct):
    tool_name: str
    content: str


decode = msgspec.json.Decoder(Result).decode


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        await lifespan(receive, send)
        return
    parts, more = [], scope["method"] == "POST"
    while more:
        message = await receive()
        parts.append(message["body"])
        more = message["more_body"]
    if parts:
        _governed(decode(b"".join(parts)).content)
    await answer(send, b"{}")


def _governed(text: str) -> None:
    if len(text) <= CAP_BYTES:
        encoding.count(text)
        return
    body = text.encode()
    hashlib.sha256(body).hexdigest()
    body.count(b"\n")
    sample = TokenSample(encoding)
    sample.feed(text)
    sample.finish()
    name = f"file-{next(names)}"
    for path, data in ((name, body), (f".{name}.json", INFO)):
        fd = os.open(folder / path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        os.write(fd, data)
        os.close(fd)
