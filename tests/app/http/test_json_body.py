"""JSON bodies of any shape: what is built of them, what stays JSON, and what is refused."""

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.http.api.result_request import _parsed
from bench import hostile
from content import threads
from content.json_text import MAX_VALUES, as_json, governed_text, read_document, text_sha256
from content.threads import LONG_BYTES, in_thread_if_long
from domain.errors import BadRequest, InvalidField, InvalidUtf8, SpillgateError
from tests.counts import FULL, count

pytestmark = pytest.mark.anyio

TEXTS = st.text(max_size=20) | st.builds(lambda text, times: text * times, st.text(max_size=9), st.just(90))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
LINE = 'Zeile ü \\ " \0 1:2 🌷\n'
LARGE = LINE * (LONG_BYTES // len(LINE))
"""A body that holds it is read in a thread."""


async def read(body: bytes) -> Any:
    return await read_document(body, anyio.CapacityLimiter(1))


@settings(max_examples=count(5, 200))
@given(VALUES, st.booleans())
async def test_any_value_comes_back_as_it_was_sent(value: Any, ascii_only: bool) -> None:
    for sent in (value, {"large": LARGE, "value": value, "large too": [LINE * 40]}):
        read_back = await read(json.dumps(sent, ensure_ascii=ascii_only).encode())
        assert json.loads(as_json(read_back)) == sent
        assert json.loads(as_json({"only": read_back})) == {"only": sent}


async def test_long_texts_are_governed_in_chunks_with_a_newline_between_two() -> None:
    texts = [LARGE, LINE * 40]
    chunks = governed_text(texts)
    assert not isinstance(chunks, str)
    whole = b"".join([chunk async for chunk in chunks]).decode()
    assert whole == "\n".join(texts)
    assert await text_sha256("a", texts) == await text_sha256("a", [whole])
    assert governed_text(["one", "two"]) == "one\ntwo"


async def test_lone_surrogates_are_replaced_wherever_pieces_end() -> None:
    """Four pieces of 64 KiB end seven bytes apart within 27 bytes that repeat."""
    for before in range(7):
        bad = b"x" * before + rb"\ud800 \\ud800 \ud83d\ude00" * 11_000
        found = await read(b'{"a":"%b"}' % bad)
        good = "x" * before + "\ufffd \\ud800 \U0001f600" * 11_000
        assert found["a"] == good


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"[" * LONG_BYTES, BadRequest),
        # How deep a parser goes differs between Pythons: what it does not refuse has too many values.
        (b'{"a":' * 90_000 + b"1" + b"}" * 90_000, (BadRequest, InvalidField)),
        (b"[" + b" " * LONG_BYTES, BadRequest),
        (b"", BadRequest),
        (b'{"a":"' + b"\xff" * LONG_BYTES + b'"}', InvalidUtf8),
        (b'["' + rb"\"," * LONG_BYTES + rb'\x"]', BadRequest),
        (b"[" + b"1," * 4 * MAX_VALUES + b"1]", InvalidField),
        (b'[[1],"' + rb"\"," * LONG_BYTES + b'",' + b"1," * MAX_VALUES + b"1]", InvalidField),
        (b"[1," + b" " * LONG_BYTES + b"1]", None),
    ],
)
async def test_what_cannot_be_read_is_refused_by_name(
    body: bytes, error: type[Exception] | tuple[type[Exception], ...] | None
) -> None:
    if error is None:
        assert await read(body) == [1, 1]
        return
    with pytest.raises(error):
        await read(body)


HELD_SECONDS = 0.1


class LongestCall:
    """The most processor time of one call of a function in C by a thread: it holds the interpreter until it
    returns."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def __call__(self, frame: FrameType, event: str, function: Any) -> None:
        now = time.thread_time()
        if event == "c_call":
            self._began = now
        elif event in ("c_return", "c_exception"):
            self.seconds = max(self.seconds, now - self._began)


@pytest.mark.repeated
@pytest.mark.parametrize("label", hostile.LABELS if FULL else hostile.LABELS[::5])
async def test_no_call_holds_the_interpreter_for_long(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def profiled(work: Callable[..., Any], *args: Any, limiter: object) -> Any:
        sys.setprofile(longest)
        try:
            return work(*args)
        finally:
            sys.setprofile(None)

    monkeypatch.setattr(threads, "run_sync", profiled)
    longest, parsing = LongestCall(), anyio.CapacityLimiter(1)
    body = hostile.body(label)
    with suppress(SpillgateError):
        await in_thread_if_long(len(body), _parsed, body)
    with suppress(SpillgateError):
        await read_document(hostile.of_hook(body), parsing)
    assert 0 < longest.seconds < HELD_SECONDS
