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

from app.api.result_request import _parsed
from app.edge.json_body import (
    INLINE_JSON_BYTES,
    MAX_VALUES,
    SHORT_STRINGS_BYTES,
    WHOLE_JSON_BYTES,
    LongText,
    Texts,
    as_json,
    read_document,
    utf8_of,
)
from bench import hostile
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
LARGE = LINE * (WHOLE_JSON_BYTES // len(LINE))
"""A body that holds it is built with LongText."""


async def read(body: bytes) -> Any:
    return await read_document(body, anyio.CapacityLimiter(1))


@settings(max_examples=count(5, 200))
@given(VALUES, st.booleans())
async def test_any_value_comes_back_as_it_was_sent(value: Any, ascii_only: bool) -> None:
    for sent in (value, {"large": LARGE, "value": value, "large too": [LINE * 40]}):
        read_back = await read(json.dumps(sent, ensure_ascii=ascii_only).encode())
        assert json.loads(as_json(read_back)) == sent
        assert json.loads(as_json({"only": read_back})) == {"only": sent}
    assert isinstance(read_back["large"], LongText)
    assert isinstance(read_back["large too"][0], LongText)
    assert utf8_of(read_back["large"]).decode() == LARGE
    two = Texts([read_back["large"], *read_back["large too"]], anyio.CapacityLimiter(1))
    chunks = two.governed()
    assert not isinstance(chunks, str)
    whole = b"".join([chunk async for chunk in chunks]).decode()
    assert whole == f"{LARGE}\n{LINE * 40}"
    assert await two.sha256() == await Texts([whole], anyio.CapacityLimiter(1)).sha256()


@given(st.text(alphabet=st.characters(codec="utf-8")), st.integers(1, 40_000), st.booleans())
async def test_a_long_string_is_unescaped_in_pieces_without_a_trace(
    text: str, times: int, ascii_only: bool
) -> None:
    content = ((text + '\\"\U0001f600\n') * times)[:700_000]
    sent = {"content": content, "rest": LARGE}
    found = await read(json.dumps(sent, ensure_ascii=ascii_only).encode())
    assert utf8_of(found["content"]).decode() == content


async def test_lone_surrogates_are_replaced_wherever_pieces_end() -> None:
    """Four pieces of 64 KiB end seven bytes apart within 27 bytes that repeat."""
    for before in range(7):
        bad = b"x" * before + rb"\ud800 \\ud800 \ud83d\ude00" * 11_000
        found = await read(b'{"a":"%b"}' % bad)
        good = "x" * before + "\ufffd \\ud800 \U0001f600" * 11_000
        assert utf8_of(found["a"]).decode() == good


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"[" * INLINE_JSON_BYTES * 2, BadRequest),
        # How deep a parser goes differs between Pythons: what it does not refuse has too many values.
        (b'{"a":' * 90_000 + b"1" + b"}" * 90_000, (BadRequest, InvalidField)),
        (b"[" + b" " * INLINE_JSON_BYTES, BadRequest),
        (b"", BadRequest),
        (b'{"a":"' + b"\xff" * INLINE_JSON_BYTES + b'"}', InvalidUtf8),
        (b'["' + b"\xff" * WHOLE_JSON_BYTES + b'"]', InvalidUtf8),
        (b'["' + rb"\"," * WHOLE_JSON_BYTES + rb'\x"]', BadRequest),
        (b"[" + b"1," * MAX_VALUES + b"1]", InvalidField),
        (b'[[1],"' + rb"\"," * WHOLE_JSON_BYTES + b'",' + b"1," * MAX_VALUES + b"1]", InvalidField),
        (b"[" + b'"' + b"a" * 400 + b'"' + (b',"' + b"a" * 400 + b'"') * 9000 + b"]", InvalidField),
        (b"[1," + b" " * SHORT_STRINGS_BYTES + b"1]", None),
        (b"[" * 20 + b" " * WHOLE_JSON_BYTES + b"]" * 20, InvalidField),
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

    monkeypatch.setattr(anyio.to_thread, "run_sync", profiled)
    longest, parsing = LongestCall(), anyio.CapacityLimiter(1)
    body = hostile.body(label)
    with suppress(SpillgateError):
        _, sent = await _parsed(body, parsing)
        await sent.text()
    with suppress(SpillgateError):
        await read_document(hostile.of_hook(body), parsing)
    assert 0 < longest.seconds < HELD_SECONDS
