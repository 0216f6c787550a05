"""The examples of the OpenAPI document."""

from typing import Any

_HANDLE = "session-demo/file-3f0c2f0e-6f5b-4c7e-9d2a-8b1f0a7c5d11"

_BUDGET = {
    "limit_tokens": 106496,
    "used_tokens": 41200,
    "reserved_tokens": 118,
    "remaining_tokens": 65178,
    "exhausted": False,
    "enforced": True,
}

_MESSAGE = (
    "Tool output is too large (481213 bytes, 6203 lines, 172904 tokens).\n"
    f'Call tool_output(handle = "{_HANDLE}", extract = "what to extract").\n'
    "The handle is a relative path under the tool_output root.\n"
    "Provide precise and detailed instructions in `extract` about what you are looking for."
)

_FRAME = f"ABSTRACT FROM TOOL OUTPUT execute_shell WITH HANDLE {_HANDLE}, STRATEGY:retrieve:"
_PASSAGES = (
    "[...]\n[lines 4711-4712]\nNov 21 06:44:07 web failed: disk /dev/sdb1 is full\n"
    "Nov 21 06:44:08 web restarted\n[...]\n"
    "[The best of 1712 passages, in their order; first of all: lines 4711-4712.]"
)

_SESSION = {
    "session_id": "demo",
    "context_window": 131072,
    "buffer_tokens": 8192,
    "max_output_tokens": 16384,
    "model": "gpt-4o",
    "policy": None,
    "turn": 7,
    "budget": _BUDGET,
    "stored_results": 1,
    "created_at": 1763712000000,
    "last_used_at": 1763712060000,
    "expires_at": 1763798460000,
    "warnings": [],
}

_ENTRY = {
    "id": "entry-5d0e3b2c-7a43-4a7c-9b58-0c5c3c1b9a10",
    "type": "tool",
    "timestamp": 1763712060000,
    "tenant": "default",
    "session_id": "demo",
    "tool_name": "execute_shell",
    "status": "ok",
    "latency": 812.0,
    "mcpServer": "",
    "command": "execute_shell",
    "charactersIn": 31,
    "charactersOut": 318,
    "tokens_in": 172904,
    "tokens_out": 118,
    "tokens_saved": 172786,
    "trigger": "size_cap",
    "outcome": "store",
    "model": None,
    "provider": None,
    "tool_call_id": "call_41",
    "turn": 7,
    "tool_kind": "shell",
    "extract_id": None,
    "mode": None,
    "strategy": None,
    "fallback_reason": None,
    "coverage": None,
    "stop_reason": None,
    "cost_usd": 0.0,
    "error": None,
    "details": {
        "tool_output_handle": _HANDLE,
        "tool_output_reason": "size_cap",
        "truncated": True,
        "bytes": 481213,
        "lines": 6203,
        "tokens": 172904,
        "truncated_bytes": None,
        "truncated_total": None,
        "observed_outcome": None,
        "observed_tokens_saved": 0,
    },
}

_TOTAL = {
    "entries": 12,
    "failed": 0,
    "bytes": 1520331,
    "tokens_in": 540022,
    "tokens_out": 9120,
    "tokens_saved": 528310,
    "latency_ms_mean": 210.5,
    "latency_ms_max": 1890.0,
    "cost_usd": 0.0,
    "tokens_saved_observed": 0,
}

EXAMPLES: dict[str, Any] = {
    "result": {
        "session_id": "demo",
        "tool_name": "execute_shell",
        "tool_call_id": "call_8d1f",
        "tool_arguments": {"command": "git status"},
        "content": "On branch main\nnothing to commit, working tree clean\n",
        "context": {"used_tokens": 41200, "turn": 7},
    },
    "text": "On branch main\nnothing to commit, working tree clean\n",
    "pass": {
        "outcome": "pass",
        "content": "On branch main\nnothing to commit, working tree clean\n",
        "complete": True,
        "trigger": None,
        "handle": None,
        "measure": {"bytes": 53, "lines": 3, "chars": 53, "tokens": 11, "tokens_exact": True},
        "budget": _BUDGET,
        "truncated_bytes": None,
        "truncated_total": None,
        "durability": None,
        "degraded": False,
        "entry_id": _ENTRY["id"],
        "warnings": [],
    },
    "store": {
        "outcome": "store",
        "content": _MESSAGE,
        "complete": False,
        "trigger": "size_cap",
        "handle": _HANDLE,
        "measure": {
            "bytes": 481213,
            "lines": 6203,
            "chars": 481213,
            "tokens": 172904,
            "tokens_exact": False,
        },
        "budget": _BUDGET,
        "truncated_bytes": None,
        "truncated_total": None,
        "durability": "disk",
        "degraded": False,
        "entry_id": _ENTRY["id"],
        "warnings": [],
    },
    "check": {
        "allowed": False,
        "trigger": "size_cap",
        "content": "Error: File content (~180000 tokens) exceeds maximum allowed tokens (25000).\n"
        "Use offset and limit to read a part of it, or grep_content to search it.",
    },
    "stored": {
        "handle": _HANDLE,
        "session_id": "demo",
        "tool_name": "execute_shell",
        "tool_arguments": '{"command": "journalctl -u web"}',
        "tool_kind": None,
        "provider": None,
        "is_error": False,
        "measure": {
            "bytes": 481213,
            "lines": 6203,
            "chars": 481213,
            "tokens": 172904,
            "tokens_exact": False,
        },
        "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "stored_at": 1763712060000,
        "expires_at": 1763798460000,
    },
    "lines": {
        "lines": [{"number": 1, "text": "Nov 21 06:44:01 web started", "truncated": False}],
        "total_lines": 6203,
        "next_offset": 2,
    },
    "grep": {
        "matches": [
            {
                "line": 4711,
                "text": "Nov 21 06:51:13 web OOM killed",
                "before": [],
                "after": [],
                "truncated": False,
            }
        ],
        "total_matches": 1,
        "next_offset": None,
        "view": "raw",
    },
    "query": {
        "result": [{"value": "ok", "count": 4117}, {"value": "failed", "count": 89}],
        "type": "array",
        "kind": "ndjson",
        "total": 2,
        "next_offset": None,
        "truncated": False,
    },
    "extract": {
        "text": f"{_FRAME}\n\n{_PASSAGES}",
        "body": _PASSAGES,
        "status": "complete",
        "strategy": "retrieve",
        "handle": _HANDLE,
        "tool_name": "execute_shell",
        "coverage": {
            "chunks_total": 1712,
            "chunks_ok": 1712,
            "ratio": 1.0,
            "missing": [],
        },
        "usage": {"llm_calls": 0, "input_tokens": 0, "output_tokens": 0, "cost_usd": 0.0},
        "latency_ms": 3.1,
        "warnings": [],
        "entry_id": _ENTRY["id"],
    },
    "status": {"status": "ok"},
    "ready": {"status": "ok", "degraded": False, "warnings": []},
    "health": {
        "status": "ok",
        "degraded": False,
        "warnings": [],
        "version": "0.1.0",
        "stored_bytes": 481213,
        "stored_bytes_cap": 2147483648,
    },
    "session": _SESSION,
    "sessions": {"sessions": [_SESSION], "next_cursor": None},
    "entries": {"entries": [_ENTRY], "next_cursor": None},
    "summary": {
        "group_by": "tool_name",
        "rows": [{"group": "execute_shell", **_TOTAL}],
        "total": {"group": None, **_TOTAL},
    },
}
