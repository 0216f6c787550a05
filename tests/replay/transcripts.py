"""The same short session as each client writes it: a listing of 40 KB, and a call that uses an id of it."""

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

LISTING = "\n".join(f"row {index} has the id item-{index * 7919:07d}" for index in range(1200))
USED = "item-4751400"
"""In the middle of the listing: its beginning and end do not show it."""

TASK = "Open the item that follows row 599."
ARGUMENTS = {"command": "list items"}
SECOND = {"command": f"open {USED}"}
END = f"I opened {USED}."


def lines(path: Path, records: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(one)}\n" for one in records))
    return path


def _document(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value, indent=1))
    return path


def _openai() -> list[dict[str, Any]]:
    def call(name: str, arguments: Any) -> dict[str, Any]:
        return {
            "id": name,
            "type": "function",
            "function": {"name": "shell", "arguments": json.dumps(arguments)},
        }

    return [
        {"role": "system", "content": "You work."},
        {"role": "user", "content": TASK},
        {"role": "assistant", "content": None, "tool_calls": [call("call-1", ARGUMENTS)]},
        {"role": "tool", "tool_call_id": "call-1", "content": LISTING},
        {"role": "assistant", "content": None, "tool_calls": [call("call-2", SECOND)]},
        {"role": "tool", "tool_call_id": "call-2", "content": "opened"},
        {"role": "assistant", "content": END},
    ]


def openai_document(folder: Path) -> Path:
    return _document(folder / "run.json", _openai())


def openai_lines(folder: Path) -> Path:
    return lines(folder / "run.jsonl", [{"messages": _openai(), "model": "gpt-4.1", "passed": True}])


def openai_message_a_line(folder: Path) -> Path:
    return lines(folder / "run.jsonl", _openai())


def openai_compressed(folder: Path) -> Path:
    path = folder / "runs.jsonl.gz"
    path.write_bytes(gzip.compress(f"{json.dumps({'messages': _openai()})}\n".encode()))
    return path


def anthropic_document(folder: Path) -> Path:
    def use(name: str, arguments: Any) -> dict[str, Any]:
        block = {"type": "tool_use", "id": name, "name": "shell", "input": arguments}
        return {"role": "assistant", "content": [block]}

    def result(name: str, content: Any) -> dict[str, Any]:
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": name, "content": content}]}

    messages = [
        {"role": "user", "content": TASK},
        use("toolu-1", ARGUMENTS),
        result("toolu-1", [{"type": "text", "text": LISTING}]),
        use("toolu-2", SECOND),
        result("toolu-2", "opened"),
        {"role": "assistant", "content": [{"type": "text", "text": END}]},
    ]
    return _document(folder / "run.json", {"system": "You work.", "messages": messages})


def claude_code(folder: Path) -> Path:
    """An answer whose blocks are two records, and records that the model is not shown."""
    common = {"sessionId": "s", "isSidechain": False}

    def answer(name: str, block: Any) -> dict[str, Any]:
        usage = {"input_tokens": 3, "cache_creation_input_tokens": 900, "cache_read_input_tokens": 100}
        message = {"id": name, "role": "assistant", "model": "claude-sonnet-4-6", "content": [block]}
        return {**common, "type": "assistant", "message": message | {"usage": usage | {"output_tokens": 40}}}

    def user(content: Any) -> dict[str, Any]:
        return {**common, "type": "user", "parentUuid": None, "message": {"role": "user", "content": content}}

    def result(name: str, content: str) -> dict[str, Any]:
        return user([{"type": "tool_result", "tool_use_id": name, "content": content}])

    def use(name: str, arguments: Any) -> dict[str, Any]:
        return {"type": "tool_use", "id": name, "name": "Bash", "input": arguments}

    records = [
        {"type": "mode", "mode": "normal", "sessionId": "s"},
        user(TASK),
        answer("m1", {"type": "text", "text": "First the list."}),
        answer("m1", use("toolu-1", ARGUMENTS)),
        result("toolu-1", LISTING),
        answer("m2", use("toolu-2", SECOND)),
        result("toolu-2", "opened"),
        answer("m3", {"type": "text", "text": END}),
    ]
    return lines(folder / "projects" / "-home-x" / "s.jsonl", records)


def codex(folder: Path) -> Path:
    def item(**payload: Any) -> dict[str, Any]:
        return {"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": payload}

    def call(name: str, arguments: Any) -> dict[str, Any]:
        return item(type="function_call", name="exec_command", call_id=name, arguments=json.dumps(arguments))

    def usage(tokens: int) -> dict[str, Any]:
        last = {"input_tokens": tokens, "cached_input_tokens": 0, "output_tokens": 30}
        return {"type": "event_msg", "payload": {"type": "token_count", "info": {"last_token_usage": last}}}

    records = [
        {"type": "session_meta", "payload": {"id": "s", "base_instructions": {"text": "You work."}}},
        {"type": "turn_context", "payload": {"model": "gpt-5.2"}},
        item(type="message", role="user", content=[{"type": "input_text", "text": TASK}]),
        item(type="reasoning", summary=[]),
        call("call-1", ARGUMENTS),
        item(type="function_call_output", call_id="call-1", output=LISTING),
        usage(800),
        call("call-2", SECOND),
        item(type="function_call_output", call_id="call-2", output="opened"),
        usage(21_000),
        item(type="message", role="assistant", content=[{"type": "output_text", "text": END}]),
        usage(21_100),
    ]
    return lines(folder / "sessions" / "rollout-1.jsonl", records)


def pi(folder: Path) -> Path:
    def message(**fields: Any) -> dict[str, Any]:
        return {"type": "message", "id": "1", "message": fields}

    def call(name: str, arguments: Any) -> dict[str, Any]:
        block = {"type": "toolCall", "id": name, "name": "bash", "arguments": arguments}
        usage = {"input": 500, "output": 20, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 520}
        return message(role="assistant", content=[block], model="glm-5.1", usage=usage)

    def result(name: str, text: str) -> dict[str, Any]:
        content = [{"type": "text", "text": text}]
        return message(role="toolResult", toolCallId=name, toolName="bash", content=content, isError=False)

    records = [
        {"type": "session", "version": 3, "id": "s", "cwd": "/x"},
        {"type": "model_change", "id": "1", "modelId": "glm-5.1"},
        message(role="user", content=[{"type": "text", "text": TASK}]),
        call("call-1", ARGUMENTS),
        result("call-1", LISTING),
        call("call-2", SECOND),
        result("call-2", "opened"),
        message(role="assistant", content=[{"type": "text", "text": END}]),
    ]
    return lines(folder / "2026_s.jsonl", records)


def copilot(folder: Path) -> Path:
    def event(kind: str, **data: Any) -> dict[str, Any]:
        return {"type": kind, "id": "1", "timestamp": "2026-11-29T15:55:00Z", "data": data}

    def call(call_id: str, arguments: Any) -> list[dict[str, Any]]:
        used = {"inputTokens": 500, "cacheReadTokens": 0, "cacheWriteTokens": 0, "outputTokens": 20}
        asked = {"toolCallId": call_id, "name": "bash", "arguments": arguments, "type": "function"}
        return [
            event("session.usage_record", usage=used),
            event("assistant.message", model="gpt-5.2", content="", toolRequests=[asked]),
            event("tool.execution_start", toolCallId=call_id, toolName="bash"),
        ]

    def result(call_id: str, text: str) -> dict[str, Any]:
        shown = {"content": text, "detailedContent": "not shown"}
        return event("tool.execution_complete", toolCallId=call_id, success=True, result=shown)

    records = [
        event("session.start", producer="copilot-agent", selectedModel="gpt-5.2"),
        event("user.message", content=TASK),
        event("system.message", role="system", content="Be short."),
        *call("call-1", ARGUMENTS),
        result("call-1", LISTING),
        *call("call-2", SECOND),
        result("call-2", "opened"),
        event("assistant.message", model="gpt-5.2", content=END, toolRequests=[]),
        event("session.shutdown"),
    ]
    return lines(folder / "session-state" / "s" / "events.jsonl", records)


def _opencode() -> list[dict[str, Any]]:
    def tool(name: str, arguments: Any, output: str) -> dict[str, Any]:
        state = {
            "status": "completed",
            "input": arguments,
            "output": output,
            "metadata": {"truncated": False},
        }
        return {"type": "tool", "tool": "bash", "callID": name, "state": state}

    tokens = {"input": 600, "output": 20, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    finish = {"type": "step-finish", "tokens": tokens}
    start = {"type": "step-start"}
    answer = [
        *(start, tool("call-1", ARGUMENTS, LISTING), finish),
        *(start, tool("call-2", SECOND, "opened"), finish),
        *(start, {"type": "text", "text": END}, finish),
    ]
    return [
        {"info": {"id": "msg_1", "role": "user"}, "parts": [{"type": "text", "text": TASK}]},
        {"info": {"id": "msg_2", "role": "assistant", "modelID": "glm-5.1"}, "parts": answer},
    ]


def opencode_export(folder: Path) -> Path:
    return _document(folder / "export.json", {"info": {"id": "ses_1"}, "messages": _opencode()})


def opencode_storage(folder: Path) -> Path:
    """A file for each message and each part."""
    storage = folder / "opencode" / "storage"
    for message in _opencode():
        name = message["info"]["id"]
        for at, part in enumerate(message["parts"]):
            where = storage / "part" / name / f"prt_{at:03d}.json"
            where.parent.mkdir(parents=True, exist_ok=True)
            where.write_text(json.dumps(part))
        where = storage / "message" / "ses_1" / f"{name}.json"
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(json.dumps(message["info"]))
    return folder


def opencode_database(folder: Path) -> Path:
    path = folder / "opencode.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE message (id TEXT, session_id TEXT, data TEXT)")
        database.execute("CREATE TABLE part (id TEXT, message_id TEXT, session_id TEXT, data TEXT)")
        for message in _opencode():
            info = message["info"]
            database.execute("INSERT INTO message VALUES (?, 'ses_1', ?)", (info["id"], json.dumps(info)))
            for at, part in enumerate(message["parts"]):
                row = (f"prt_{at:03d}", info["id"], json.dumps(part))
                database.execute("INSERT INTO part VALUES (?, ?, 'ses_1', ?)", row)
    database.close()
    return path


def _gemini() -> list[dict[str, Any]]:
    def call(name: str, arguments: Any, output: str) -> dict[str, Any]:
        response = {
            "functionResponse": {"id": name, "name": "run_shell_command", "response": {"output": output}}
        }
        return {"id": name, "name": "run_shell_command", "args": arguments, "result": [response]}

    tokens = {"input": 700, "output": 20, "cached": 0, "thoughts": 0, "tool": 0, "total": 720}

    def answer(name: str, content: str, *calls: Any) -> dict[str, Any]:
        about = {
            "id": name,
            "type": "gemini",
            "content": content,
            "model": "gemini-2.5-pro",
            "tokens": tokens,
        }
        return about | {"toolCalls": list(calls)}

    return [
        {"id": "1", "type": "user", "content": [{"text": TASK}]},
        answer("2", "", call("call-1", ARGUMENTS, LISTING)),
        answer("3", "", call("call-2", SECOND, "opened")),
        answer("4", END),
    ]


def gemini_document(folder: Path) -> Path:
    about = {"sessionId": "s", "projectHash": "h", "messages": _gemini()}
    return _document(folder / "session-1.json", about)


def gemini_lines(folder: Path) -> Path:
    """A message is written once without its calls, and again with them."""
    first, second, *others = _gemini()
    early = {**second, "toolCalls": []}
    about = {"sessionId": "s", "projectHash": "h"}
    changed = {"$set": {"messages": [first]}}
    return lines(
        folder / "session-1.jsonl", [about, changed, early, second, {"$set": {"lastUpdated": 1}}, *others]
    )


def swe_agent_history(folder: Path) -> Path:
    def action(command: str) -> dict[str, Any]:
        return {"role": "assistant", "content": f"```\n{command}\n```", "action": command, "agent": "main"}

    history = [
        {"role": "system", "content": "You work.", "agent": "main"},
        {"role": "user", "content": TASK, "agent": "main"},
        action("list items"),
        {"role": "user", "content": LISTING, "agent": "main"},
        action(f"open {USED}"),
        {"role": "user", "content": "opened", "agent": "main"},
        {"role": "assistant", "content": END, "agent": "main"},
    ]
    return _document(folder / "one.traj", {"environment": "swe_main", "history": history, "info": {}})


def swe_agent_trajectory(folder: Path) -> Path:
    rows = [
        {"action": "list items", "observation": LISTING, "response": "I list.\nlist items"},
        {"action": f"open {USED}", "observation": "opened", "response": f"I open.\nopen {USED}"},
    ]
    return _document(folder / "one.traj", {"environment": "swe_main", "trajectory": rows, "info": {}})


def atif(folder: Path) -> Path:
    def step(message: str, calls: list[Any], results: list[Any]) -> dict[str, Any]:
        metrics = {"prompt_tokens": 700, "completion_tokens": 20, "cached_tokens": 100}
        about = {"source": "agent", "message": message, "metrics": metrics, "tool_calls": calls}
        return about | {"observation": {"results": results}}

    def call(name: str, arguments: Any) -> dict[str, Any]:
        return {"tool_call_id": name, "function_name": "bash", "arguments": arguments}

    steps = [
        {"source": "user", "message": TASK},
        step("", [call("call-1", ARGUMENTS)], [{"source_call_id": "call-1", "content": LISTING}]),
        step("", [call("call-2", SECOND)], [{"source_call_id": "call-2", "content": "opened"}]),
        {"source": "agent", "message": END},
    ]
    agent = {"name": "codex", "version": "1", "model_name": "gpt-5.2"}
    return _document(
        folder / "trajectory.json", {"schema_version": "ATIF-v1.4", "agent": agent, "steps": steps}
    )


ALL = {
    "messages": (openai_document, openai_lines, openai_message_a_line, openai_compressed, anthropic_document),
    "claude-code": (claude_code,),
    "codex": (codex,),
    "copilot": (copilot,),
    "pi": (pi,),
    "opencode": (opencode_export, opencode_storage, opencode_database),
    "gemini": (gemini_document, gemini_lines),
    "swe-agent": (swe_agent_history, swe_agent_trajectory),
    "atif": (atif,),
}
"""By format, what writes the session into a folder."""
