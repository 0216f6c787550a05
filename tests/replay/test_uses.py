"""Literals, and where a use of one is found."""

import json
from pathlib import Path
from typing import Any

import pytest

from replay.literals import literals, plain, quotes, stands_in
from tests.replay.replaying import report
from tests.replay.transcripts import LISTING, lines


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see https://a.example/x?id=1.", ["https://a.example/x?id=1"]),
        ("write to jo.doe@shop.example!", ["jo.doe@shop.example"]),
        ("open /var/log/app.log and src/main.py", ["/var/log/app.log", "src/main.py"]),
        ("item-0042 and trace 3f9a1c", ["item-0042", "3f9a1c"]),
        ("cost 12,345 in 2024", ["12,345"]),
        ("The Green Valley Park is in New York", ["Green Valley Park", "New York"]),
        ("ab1 is short, and so is 1.5", []),
        ("nothing of it here", []),
    ],
)
def test_literals_are_what_a_model_can_only_have_copied(text: str, found: list[str]) -> None:
    assert list(literals(text)) == found


def test_a_literal_stands_alone_and_not_in_a_longer_word() -> None:
    assert stands_in("item-12", "the item-12, and")
    assert not stands_in("item-12", "item-123")
    assert stands_in("item-12", "item-123 item-12")


def test_escapes_of_json_do_not_hide_a_literal() -> None:
    assert stands_in("caf\u00e9-12", plain(json.dumps({"id": "x\ncaf\u00e9-12"})))
    assert stands_in("https://a.example/x", plain(r"https:\/\/a.example\/x"))


def test_texts_to_replace_are_quotes_and_not_literals() -> None:
    arguments = {"path": "a.py", "edits": [{"oldText": "value = 12345"}], "old_string": "left, right"}
    assert sorted(quotes(arguments)) == ["left, right", "value = 12345"]


def messages(*results: str, then: str = "", arguments: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """A call for each result; then an answer, or a call with the arguments."""
    found: list[dict[str, Any]] = [{"role": "user", "content": "Go on."}]
    for number, result in enumerate(results):
        function = {"name": "read", "arguments": json.dumps({"page": number})}
        call = {"id": f"c{number}", "type": "function", "function": function}
        found.append({"role": "assistant", "content": "", "tool_calls": [call]})
        found.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
    last: dict[str, Any] = {"role": "assistant", "content": then}
    if arguments is not None:
        function = {"name": "edit", "arguments": json.dumps(arguments)}
        last["tool_calls"] = [{"id": "last", "type": "function", "function": function}]
    return [*found, last]


def total(folder: Path, *runs: list[dict[str, Any]]) -> dict[str, Any]:
    path = lines(folder / "runs.jsonl", [{"messages": run} for run in runs])
    found: dict[str, Any] = report(folder, path, "--max-bytes", "4096")["total"]
    return found


LAST = "item-9494881"
"""In the last line of the listing: a cut of its middle shows it."""

MIDDLE = "item-4751400"


def test_a_use_stood_in_one_result_and_in_nothing_else(tmp_path: Path) -> None:
    used_twice = [
        *messages(LISTING, then=f"It is {MIDDLE}."),
        {"role": "assistant", "content": f"Yes, {MIDDLE}."},
    ]
    in_two = messages(LISTING, f"also {MIDDLE}", then=f"It is {MIDDLE}.")
    told = [{"role": "system", "content": f"Use {MIDDLE}."}, *messages(LISTING, then=f"It is {MIDDLE}.")]
    never = messages(LISTING, then="It is item-0000001.")
    assert total(tmp_path, used_twice, in_two, told, never)["uses"] == 1


def test_what_the_text_shows_is_visible_and_causes_no_question(tmp_path: Path) -> None:
    found = total(tmp_path, messages("small: item-4242", then="It is item-4242."))
    assert found["policies"]["cap 4,096"]["visible"] == 1
    assert found["policies"]["cap 4,096"]["follow_ups"] == 0
    cut = total(tmp_path, messages(LISTING, then=f"It is {LAST}."))["policies"]
    assert cut["truncate to 12 KB"]["visible"] == 1
    assert cut["cap 4,096"]["visible"] == 1


def test_one_question_is_asked_for_all_that_an_action_needs_of_a_result(tmp_path: Path) -> None:
    needed = "It is item-4751400, item-4759319 and item-0791900."
    found = total(tmp_path, messages(LISTING, then=needed))["policies"]["cap 4,096"]
    assert found["one_call"] + found["findable"] == 3
    assert (found["follow_ups"], found["lost"]) == (1, 0)


def test_an_answer_that_was_given_is_not_asked_for_again(tmp_path: Path) -> None:
    """The question of the first action is in the words of the line: its answer has the id of the second."""
    text = "\n".join(
        [
            *LISTING.splitlines()[:600],
            "umbrella stand: item-1234567 and item-7654321",
            *LISTING.splitlines()[600:],
        ]
    )
    first = messages(text, then="The umbrella stand is item-1234567.")
    run = [*first, {"role": "assistant", "content": "And item-7654321."}]
    found = total(tmp_path, run)["policies"]["cap 4,096"]
    assert (found["one_call"], found["follow_ups"]) == (2, 1)


def test_results_that_were_cleared_are_lost_when_they_are_used_later(tmp_path: Path) -> None:
    run = messages("first: item-1111111", "second", "third", "fourth", then="It is item-1111111.")
    found = total(tmp_path, run)["policies"]["last 3 results"]
    assert (found["visible"], found["lost"]) == (0, 1)


def test_a_quote_of_a_file_that_is_no_longer_seen_is_broken(tmp_path: Path) -> None:
    """Line numbers that the tool wrote before the lines do not hide it."""
    source = "\n".join(f"{number:6}\u2192value_{number} = compute({number})" for number in range(1, 900))
    edit = {
        "path": "a.py",
        "old_string": "value_450 = compute(450)\nvalue_451 = compute(451)",
        "new_string": "x",
    }
    found = total(tmp_path, messages(source, arguments=edit))
    assert (found["quotes"], found["uses"]) == (1, 0)
    policies = found["policies"]
    assert policies["cap 4,096"]["quotes_broken"] == 1
    assert policies["cap 4,096"]["follow_ups"] == 1
    assert policies["Codex's own"]["quotes_broken"] == 0


def test_what_no_sketch_and_the_naming_of_repeats_would_give_stands_beside_the_policy(tmp_path: Path) -> None:
    rows = json.dumps([{"id": f"item-{number:07}", "name": "a thing to buy"} for number in range(600)])
    small = "".join(f"{number}: a line of a file\n" for number in range(100))
    found = total(tmp_path, messages(rows, small, small, then="It is item-0000000."))["policies"]
    assert (found["policy in force"]["visible"], found["policy in force"]["replaced"]) == (1, 1)
    assert (found["with preview = none"]["visible"], found["with preview = none"]["replaced"]) == (0, 1)
    assert (found["with repeat = name"]["visible"], found["with repeat = name"]["replaced"]) == (1, 2)


def test_what_is_in_force_already_is_not_replayed_beside_it(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[defaults]\npreview = "none"\nrepeat = "name"\n')
    path = lines(tmp_path / "runs.jsonl", [{"messages": messages("few", then="ok")}])
    found = report(tmp_path, path, "--policy", policy)["total"]["policies"]
    assert not [label for label in found if label.startswith("with ")]
