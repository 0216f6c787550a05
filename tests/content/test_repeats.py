"""Values that are known to be secrets are found wherever they stand, in one pass."""

import random
from itertools import product

import pytest

from content.redaction.repeats import SHORTEST, Values
from content.redaction.spans import SecretSpan


def expected(values: dict[bytes, str], text: bytes) -> list[SecretSpan]:
    spans = []
    for at in range(len(text)):
        standing = [value for value in values if text.startswith(value, at)]
        if standing:
            longest = max(standing, key=len)
            spans.append(SecretSpan(at, at + len(longest), values[longest]))
    return spans


@pytest.mark.parametrize("letters", [b"ab", b"abcd"])
def test_each_place_has_its_longest_value(letters: bytes) -> None:
    chance = random.Random(len(letters))
    for _ in range(500):
        text = bytes(chance.choices(letters, k=chance.randrange(200)))
        starts = [chance.randrange(200) for _ in range(8)]
        parts = [text[at : at + chance.randrange(SHORTEST, 40)] for at in starts]
        others = [bytes(chance.choices(letters, k=chance.randrange(SHORTEST, 14))) for _ in range(20)]
        values = {one: f"kind{len(one)}" for one in parts + others if len(one) >= SHORTEST}
        assert list(Values(values).occurrences(text)) == expected(values, text)


def test_a_value_is_found_at_each_distance_from_the_ends_of_a_step() -> None:
    value = b"0123456789abcdef"
    for before, after in product((*range(5), (1 << 17) - 20, (1 << 17) - 1), range(5)):
        text = b"." * before + value + b"." * after
        assert list(Values({value: "k"}).occurrences(text)) == [SecretSpan(before, before + len(value), "k")]


def test_no_value_is_found_in_a_text_without_values() -> None:
    assert list(Values({}).occurrences(b"a text")) == []
    assert list(Values({b"0123456789": "k"}).occurrences(b"")) == []
