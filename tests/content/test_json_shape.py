"""The shape of a JSON value."""

import json

from content.json_shape import json_shape_of


def test_a_text_that_holds_json_is_shown_as_what_it_holds() -> None:
    value = [
        {"id": n, "state": json.dumps({"type": "pie", "params": [1, 2]}), "note": "{no json"}
        for n in range(5)
    ]
    shape = json_shape_of(value, 300, is_whole=True)
    assert 'state: JSON text {type: "pie", params: 2 × 1}' in shape
    assert 'note: "{no json"' in shape


def test_a_text_is_not_parsed_without_end() -> None:
    deep = "[" * 50_000
    assert json_shape_of([{"a": deep}], 100, is_whole=True).startswith("1 × {a:")
