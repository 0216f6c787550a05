"""JSON bodies of any shape, read in bounded steps with their long strings left out."""

import json
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.edge.documents import BUILT_BYTES, WHOLE_BYTES, Document, read_document
from app.edge.large_json import SKELETON_BYTES
from domain.errors import BadRequest, InvalidField, InvalidUtf8

pytestmark = pytest.mark.anyio

TEXTS = st.text(max_size=20) | st.builds(lambda text, times: text * times, st.text(max_size=9), st.just(90))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
LARGE = 'Zeile ü \\ " \0 1:2 🌷\n' * 6000
MANY = "," * BUILT_BYTES
"""A body that holds it is read in steps."""


async def read(body: bytes) -> Document:
    return await read_document(body, anyio.CapacityLimiter(1))


@given(VALUES, st.booleans())
async def test_any_value_comes_back_as_it_was_sent(value: Any, ascii_only: bool) -> None:
    whole = {"large": LARGE, "value": value, "large too": [LARGE]}
    for sent in (value, whole, {**whole, "many": MANY}):
        body = json.dumps(sent, ensure_ascii=ascii_only).encode()
        document = await read(body)
        assert (document.skeleton is None) == (not isinstance(sent, dict) or "many" not in sent)
        assert json.loads(b"".join(document.pieces(document.value))) == sent
        assert json.loads(b"".join(document.pieces({"only": document.value}))) == {"only": sent}
    assert len(str(document.value["large"])) < 20
    assert document.text(document.value["large"]) == LARGE
    assert json.loads(bytes(document.written(document.value["large"]))) == LARGE
    two = [document.value["large"], *document.value["large too"]]
    assert "".join(document.content(two).pieces()) == f"{LARGE}\n{LARGE}"


async def test_a_string_cannot_pose_as_a_position() -> None:
    """With and without an escape near it: pieces without one are read in a shorter way."""
    for before in ("secret", "\\ secret"):
        sent = {"large": MANY, "before": before * 900, "forged": "\0" + "10:40", "beside": "\x01 10:40"}
        document = await read(json.dumps(sent).encode())
        assert document.text(document.value["forged"]) == sent["forged"]
        assert document.text(document.value["beside"]) == sent["beside"]
        assert document.value["before"].startswith("\0")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"[" * BUILT_BYTES * 2, BadRequest),
        (b'{"a":' * 90_000 + b"1" + b"}" * 90_000, BadRequest),
        (b"[" + b" " * BUILT_BYTES, BadRequest),
        (b"", BadRequest),
        (b'{"a":"' + b"\xff" * BUILT_BYTES + b'","b":"\xff"}', InvalidUtf8),
        (b"[" + b"1," * 60_000 + b"1]", InvalidField),
        (b" " * SKELETON_BYTES + b"[]" + b" " * 99, InvalidField),
        (b"[[[[[[[[[[" + b" " * WHOLE_BYTES + b"]]]]]]]]]]", InvalidField),
    ],
)
async def test_what_cannot_be_read_is_refused_by_name(body: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        await read(body)
