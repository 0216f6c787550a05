import hashlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from content.tokens import Meter, TokenMeter, load_encoding
from domain.errors import InvalidUtf8
from domain.results import Measure


def metered(*chunks: bytes) -> tuple[Measure, str]:
    meter = Meter(TokenMeter(load_encoding("o200k_base")))
    for chunk in chunks:
        meter.feed(chunk)
    return meter.finish(), meter.sha256


@given(st.text(), st.lists(st.integers(0, 60), max_size=5))
def test_any_split_gives_the_same_measure(text: str, cuts: list[int]) -> None:
    data = text.encode()
    edges = [0, *sorted(cuts), max(len(data), *cuts, 0)]
    chunks = [data[a:b] for a, b in pairwise(edges)]
    measure, sha256 = metered(*chunks)
    lines = len(text.split("\n")) - (not text or text.endswith("\n"))
    tokens = load_encoding("o200k_base").count(text)
    assert measure == Measure(len(data), lines, len(text), tokens, True)
    assert sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    "chunks",
    [(b"secret \xff",), (b"secret \xc3", b"("), (b"secret \xed\xa0\x80",), (b"secret ", b"\xe2\x82")],
)
def test_bytes_that_are_no_utf8_are_refused_by_offset_and_not_echoed(chunks: tuple[bytes, ...]) -> None:
    with pytest.raises(InvalidUtf8, match="at byte 7") as caught:
        metered(*chunks)
    assert "secret" not in caught.value.detail


def test_an_estimate_leaves_the_other_figures_exact() -> None:
    data = b"one, two\n" * 20_000
    meter = Meter(TokenMeter(load_encoding("o200k_base")))
    meter.feed(data[:100_000])
    meter.estimate_tokens()
    meter.feed(data[100_000:])
    assert (meter.bytes, meter.chars) == (len(data), len(data))
    measure = meter.finish()
    assert (measure.bytes, measure.lines, measure.tokens_exact) == (len(data), 20_000, False)
    assert measure.tokens == pytest.approx(80_000, rel=0.02)
