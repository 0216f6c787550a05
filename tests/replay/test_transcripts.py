"""Each format: the same session as each client writes it gives the same figures."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from replay.runs import Input, Notes, Result, Run, Turn
from replay.sources import found_files, runs_of
from replay.uses import uses_of
from tests.replay import transcripts
from tests.replay.replaying import report

CASES = [(name, write) for name, writers in transcripts.ALL.items() for write in writers]
IDS = [write.__name__ for _, write in CASES]
Write = Callable[[Path], Path]


def read(path: Path) -> tuple[list[Run], Notes]:
    notes = Notes()
    return [run for file in found_files([path], notes) for run in runs_of(file, notes)], notes


@pytest.mark.parametrize(("name", "write"), CASES, ids=IDS)
def test_a_session_is_read_as_its_client_wrote_it(name: str, write: Write, tmp_path: Path) -> None:
    (run,), notes = read(write(tmp_path))
    assert run.format == name
    assert not notes.unknown
    assert not notes.faults
    results = list(run.results)
    assert [result.text for result in results] == [transcripts.LISTING, "opened"]
    assert len({result.tool for result in results} - {"list", "open"}) <= 1
    kinds = [type(step) for step in run.steps if not isinstance(step, Input)]
    assert kinds[:4] == [Turn, Result, Turn, Result]
    ((use,),) = uses_of(run).by_step.values()
    assert use.literal == transcripts.USED


def test_the_id_that_was_used_is_found_in_what_each_policy_shows(tmp_path: Path) -> None:
    path = transcripts.openai_lines(tmp_path)
    found = report(tmp_path, path, "--max-bytes", "4096")["total"]
    assert (found["runs"], found["results"], found["uses"]) == (1, 2, 1)
    capped = found["policies"]["cap 4,096"]
    assert capped["replaced"] == 1
    assert capped["one_call"] + capped["findable"] == 1
    assert (capped["visible"], capped["lost"], capped["follow_ups"]) == (0, 0, 1)
    assert found["policies"]["truncate to 12 KB"]["lost"] == 1


def test_records_of_one_answer_are_one_turn_with_one_usage(tmp_path: Path) -> None:
    (run,), _ = read(transcripts.claude_code(tmp_path))
    first = next(run.turns)
    assert first.text == "First the list."
    assert [call.tool for call in first.calls] == ["Bash"]
    assert first.usage is not None
    assert first.usage.total_input == 1003
    assert len(list(run.turns)) == 3


def test_subagents_and_compactions_are_runs_of_their_own(tmp_path: Path) -> None:
    def answer(name: str, text: str, **more: object) -> dict[str, object]:
        message = {"id": name, "role": "assistant", "content": [{"type": "text", "text": text}]}
        return {"sessionId": "s", "type": "assistant", "parentUuid": None, "message": message, **more}

    path = transcripts.lines(
        tmp_path / "s.jsonl",
        [
            answer("m1", "main"),
            answer("m2", "first agent", isSidechain=True, uuid="a"),
            answer("m3", "second agent", isSidechain=True, agentId="b"),
            {"sessionId": "s", "type": "system", "subtype": "compact_boundary", "parentUuid": None},
            answer("m4", "after"),
        ],
    )
    runs, _ = read(path)
    assert sorted(turn.text for run in runs for turn in run.turns) == [
        "after",
        "first agent",
        "main",
        "second agent",
    ]
    assert len(runs) == 4


def test_records_of_an_unknown_kind_are_counted_and_named(tmp_path: Path) -> None:
    path = transcripts.claude_code(tmp_path)
    with path.open("a") as file:
        file.write('{"type": "brand-new", "sessionId": "s"}\n[1]\n')
    _, notes = read(path)
    assert notes.unknown == {"claude-code: brand-new": 1, "claude-code: a record that is no object": 1}


def test_a_named_format_is_not_recognised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(tmp_path, transcripts.openai_lines(tmp_path), "--format", "messages")
    assert found["read"]["formats"] == {"messages": 1}


def test_results_that_the_client_had_cut_are_marked_with_the_whole_beside_them(tmp_path: Path) -> None:
    path = transcripts.claude_code(tmp_path)
    text = "<persisted-output>\nOutput too large (40KB). Full output saved to: /x\n</persisted-output>"
    records = [
        line for line in path.read_text().splitlines() if "toolu-1" not in line or "tool_use_id" not in line
    ]
    result = {"type": "tool_result", "tool_use_id": "toolu-1", "content": text}
    whole = {"stdout": transcripts.LISTING, "stderr": ""}

    cut = {
        "sessionId": "s",
        "type": "user",
        "message": {"role": "user", "content": [result]},
        "toolUseResult": whole,
    }
    path.write_text("\n".join([*records[:4], json.dumps(cut), *records[4:]]) + "\n")
    found = report(tmp_path, path)
    assert found["total"]["cut_results"] == 1
    assert found["total"]["policies"]["whole"]["bytes_shown"] > found["total"]["bytes"]


def test_what_codex_has_cut_is_replaced_only_where_its_hook_does(tmp_path: Path) -> None:
    """A cut of 10,000 bytes, a file that a command reads, and what no hook gets, pass live."""
    cut = "Warning: truncated output (original token count: 9)\nTotal output lines: 9\n\n"
    whole = "".join(f"line {number} of the output\n" for number in range(900))
    calls = [
        ("exec_command", {"cmd": "make"}, cut + whole[: 10_000 - len(cut)]),
        ("exec_command", {"cmd": "make"}, cut + whole[:15_000]),
        ("exec_command", {"cmd": "make"}, whole[:9000]),
        ("exec_command", {"cmd": "sed -n 1,400p main.py"}, whole),
        ("wait_agent", {}, whole),
        ("update_plan", {}, whole),
    ]
    records: list[Any] = [{"type": "session_meta", "payload": {"id": "s"}}]
    for number, (tool, arguments, output) in enumerate(calls):
        called = {"type": "function_call", "name": tool, "call_id": f"c{number}"}
        shown = {"type": "function_call_output", "call_id": f"c{number}", "output": output}
        records += [
            {"type": "response_item", "payload": {**called, "arguments": json.dumps(arguments)}},
            {"type": "response_item", "payload": shown},
        ]
    path = tmp_path / "rollout-1.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    assert report(tmp_path, path)["total"]["policies"]["policy in force"]["replaced"] == 2


def test_the_whole_of_a_result_that_codex_had_cut_is_found_beside_it(tmp_path: Path) -> None:
    """Tools are named as Codex's hooks name them."""
    whole = {"content": [{"type": "text", "text": transcripts.LISTING}]}
    cut = f"{transcripts.LISTING[:3000]}…9000 tokens truncated…{transcripts.LISTING[-3000:]}"
    path = transcripts.codex(tmp_path)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    records[4]["payload"] |= {"name": "list", "namespace": "mcp__shop"}
    records[5]["payload"]["output"] = cut
    event = {"type": "item_completed", "item": {"type": "McpToolCall", "id": "call-1", "result": whole}}
    transcripts.lines(path, [*records[:5], {"type": "event_msg", "payload": event}, *records[5:]])
    (run,), _ = read(path)
    first, second = run.results
    assert (first.tool, first.is_cut, first.whole) == ("mcp__shop__list", True, transcripts.LISTING)
    assert (second.tool, second.is_cut, second.whole) == ("Bash", False, None)


def test_an_output_that_the_transcript_has_in_part_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    path = transcripts.claude_code(tmp_path)
    text = "<persisted-output>\nOutput too large (340KB). Full output saved to: /x\n</persisted-output>"
    part = {"stdout": transcripts.LISTING, "stderr": "", "persistedOutputSize": 348_894}
    records = [json.loads(line) for line in path.read_text().splitlines()]
    records[4]["message"]["content"][0]["content"] = text
    records[4]["toolUseResult"] = part
    transcripts.lines(path, records)
    (run,), _ = read(path)
    first = next(run.results)
    assert (first.is_cut, first.whole) == (True, None)
