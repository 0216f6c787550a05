import base64
import gzip
import hashlib
import os
import random
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from content import tokens
from content.tokens import Encoding, TokenMeter, TokenSample, encoding_for_model, load_encoding
from domain.errors import ConfigError
from tests.recorded import recorded_results

RANKS_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
PATTERN = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
WORDS = [
    *("word", "Don't", "x1", "1,234.5", " ", "\n", "\r\n", "  ", "_", "é", "漢字", "。", "привет", "."),
    *("'s", "/", "😀", "\u0301"),
]


@cache
def reference() -> tiktoken.Encoding:
    spec = find_spec("bpe_openai")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    packed = Path(spec.submodule_search_locations[0], "data", "o200k_base.tiktoken.gz").read_bytes()
    data = gzip.decompress(packed)
    assert hashlib.sha256(data).hexdigest() == RANKS_SHA256
    pairs = (line.split() for line in data.splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in pairs}
    return tiktoken.Encoding("o200k", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})


@pytest.fixture(scope="module")
def encoding() -> Encoding:
    return load_encoding("o200k_base")


@cache
def recorded() -> list[str]:
    return [result["text"] for result in recorded_results()]


@cache
def mixed(seed: int, words: int) -> str:
    chance = random.Random(seed)
    return "".join(chance.choice(WORDS) * chance.choice([1, 1, 1, 2, 5]) for _ in range(words))


def metered(encoding: Encoding, pieces: list[str]) -> tuple[int, bool]:
    meter = TokenMeter(encoding)
    for piece in pieces:
        meter.feed(piece)
    return meter.finish()


@given(st.one_of(st.text(), st.lists(st.sampled_from(WORDS)).map("".join)))
def test_counts_are_those_of_tiktoken(text: str) -> None:
    assert load_encoding("o200k_base").count(text) == len(reference().encode_ordinary(text))


@pytest.mark.parametrize("text", ["s'\u017f'Sa", "a'\u017f'\u017f'St", "it'\u017f", "1\u0301's'\u017f'St"])
def test_a_contraction_with_a_long_s_counts_as_tiktoken_counts_it(encoding: Encoding, text: str) -> None:
    assert encoding.count(text) == len(reference().encode_ordinary(text))


def test_special_tokens_are_counted_as_the_text_that_they_are(encoding: Encoding) -> None:
    text = "<|endoftext|> and <|fim_prefix|>"
    assert encoding.count(text) == len(reference().encode_ordinary(text))


def test_what_the_tokenizer_remembers_is_bounded_in_bytes(
    encoding: Encoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the bound, what follows takes 12 MB.
    monkeypatch.setattr(tokens, "_REMEMBERED", 250_000)
    letters = bytes(97 + number % 26 for number in range(256))
    process = psutil.Process()
    encoding.count("warm up")
    before = process.memory_info().rss
    for _ in range(50):
        encoding.count(os.urandom(60_000).translate(letters).decode())
    assert process.memory_info().rss - before < 8 << 20


def test_a_lone_surrogate_counts_as_tiktoken_counts_it(encoding: Encoding) -> None:
    assert encoding.count("a\ud800b") == len(reference().encode_ordinary("a\ud800b"))


@pytest.mark.parametrize("seed", range(2))
def test_slicing_a_long_text_changes_no_count(encoding: Encoding, seed: int) -> None:
    text = mixed(seed, 60_000)
    assert metered(encoding, [text]) == (len(reference().encode_ordinary(text)), True)


def test_recorded_results_are_counted_exactly(encoding: Encoding) -> None:
    for text in [text for text in recorded() if 70_000 < len(text) < 1_500_000][:12]:
        assert metered(encoding, [text]) == (encoding.count(text), True)


@cache
def _metered_whole(text: str) -> tuple[int, bool]:
    return metered(load_encoding("o200k_base"), [text])


@given(st.lists(st.integers(0, 400_000), max_size=6), st.sampled_from(["words", "run", "words and run"]))
def test_the_count_does_not_depend_on_how_a_text_is_split(cuts: list[int], kind: str) -> None:
    encoding = load_encoding("o200k_base")
    text = {
        "words": mixed(1, 90_000),
        "run": "漢" * 300_000,
        "words and run": mixed(2, 20_000) + "-" * 300_000,
    }[kind]
    edges = [0, *sorted(cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    assert metered(encoding, pieces) == _metered_whole(text)


def test_a_text_without_a_safe_cut_is_counted_nearly_and_says_so(encoding: Encoding) -> None:
    text = "-" * 600_000
    tokens, exact = metered(encoding, [text])
    assert not exact
    assert abs(tokens - encoding.count(text)) <= 4


def test_what_was_counted_before_an_estimate_stays_counted(encoding: Encoding) -> None:
    text = mixed(4, 60_000)
    meter = TokenMeter(encoding)
    meter.feed(text)
    counted = meter.tokens
    meter.estimate()
    assert counted > 0
    assert meter.tokens == counted
    meter.feed(" the end")
    assert meter.finish()[0] > counted


@given(st.lists(st.integers(0, 90_000), max_size=6), st.sampled_from([0, 1, 20_000]))
def test_more_tokens_than_are_enough_are_estimated_however_a_text_is_split(
    cuts: list[int], enough: int
) -> None:
    encoding, text = load_encoding("o200k_base"), " the" * 40_000
    found = []
    for edges in ([0, len(text)], [0, *sorted(cuts), len(text)]):
        meter = TokenMeter(encoding, enough)
        for a, b in pairwise(edges):
            meter.feed(text[a:b])
        found.append(meter.finish())
        assert enough < meter.tokens <= 40_500
    assert found[0] == found[1]
    assert not found[0][1]


def test_a_short_rest_is_exact_although_an_estimate_was_enough(encoding: Encoding) -> None:
    text = "word, " * 1000
    meter = TokenMeter(encoding)
    meter.estimate()
    meter.feed(text)
    assert meter.finish() == (encoding.count(text), True)


def test_estimates_of_recorded_results_are_within_five_percent_nine_times_in_ten(encoding: Encoding) -> None:
    errors = []
    for text in recorded():
        if len(text.encode()) > 12288:
            meter = TokenMeter(encoding)
            meter.estimate()
            meter.feed(text)
            tokens, _ = meter.finish()
            count, _ = metered(encoding, [text])
            errors.append(abs(tokens - count) / count)
    assert sorted(errors)[int(0.9 * len(errors))] <= 0.05


class Spent:
    name = "spent"
    chars = 0

    def __init__(self) -> None:
        self.texts: list[str] = []

    def count(self, text: str) -> int:
        self.chars += len(text)
        self.texts.append(text)
        return len(text)


@pytest.mark.parametrize("length", [30_000, 100_000, 5_000_000])
def test_an_estimate_tokenises_at_most_24_ki_characters(length: int) -> None:
    spent = Spent()
    sample = TokenSample(spent)
    for _ in range(0, length, 10_000):
        sample.feed("some text " * 1000)
    tokens, exact = sample.finish()
    assert spent.chars <= 24 * 1024
    assert not exact
    assert tokens == length


def test_an_estimate_looks_at_evenly_spread_windows_of_the_whole() -> None:
    spent = Spent()
    sample = TokenSample(spent)
    for number in range(0, 200_000, 100):
        sample.feed("".join(f"{n:07} " for n in range(number, number + 100)))
    sample.finish()
    (sampled,) = spent.texts
    numbers = [int(word) for word in sampled.split()]
    starts = [numbers[0], *(b for a, b in pairwise(numbers) if b > a + 1)]
    gaps = [b - a for a, b in pairwise(starts)]
    assert max(gaps) - min(gaps) <= 1
    assert starts[0] < 10
    assert starts[-1] > 200_000 - 2 * max(gaps)


@given(st.lists(st.integers(0, 200_000), max_size=8))
def test_an_estimate_does_not_depend_on_how_a_text_is_split(cuts: list[int]) -> None:
    text = mixed(5, 60_000)
    results = []
    for edges in ([0, len(text)], [0, *sorted(cuts), len(text)]):
        sample = TokenSample(load_encoding("o200k_base"))
        for a, b in pairwise(edges):
            sample.feed(text[a:b])
        results.append(sample.finish())
    assert results[0] == results[1]


def test_an_unknown_encoding_names_those_that_exist() -> None:
    with pytest.raises(ConfigError, match="o200k_base, cl100k_base"):
        load_encoding("p50k_base")


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o-mini", "o200k_base"),
        ("openai/gpt-4-0613", "cl100k_base"),
        ("gpt-oss-120b", "o200k_base"),
        ("claude-opus", "cl100k_base"),
        ("text-davinci-003", "cl100k_base"),
    ],
)
def test_a_model_has_the_encoding_of_tiktokens_tables_or_the_default(model: str, encoding: str) -> None:
    assert encoding_for_model(model, "cl100k_base") == encoding
