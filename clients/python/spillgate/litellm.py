"""LiteLLM's proxy: `guardrail: spillgate.litellm.Guardrail` in its configuration.

It replaces the large tool results of each request, and those of LiteLLM's MCP gateway, and answers the
model's questions about them inside LiteLLM: the client sees the final reply alone. A streamed request is
governed too, but offered no tools: its client asks back through MCP.
"""

import json
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from litellm.integrations.custom_guardrail import CustomGuardrail
from litellm.litellm_core_utils.prompt_templates.factory import get_tool_calls_from_response
from litellm.types.guardrails import GuardrailEventHooks
from litellm.types.integrations.custom_logger import AgenticLoopPlan, AgenticLoopRequestPatch

from spillgate.client import AsyncSpillgate
from spillgate.exchange import TOOL_NAMES

_PATH = "/beta/litellm_basic_guardrail_api"
_MCP_SESSION = "litellm-mcp"
_MOST_REQUESTS = 10_000
_LEAST_CHARS = 500
"""The least length of a text: a message in place of a shorter one would hardly be shorter."""

_SESSION = re.compile(r"\s*[\"'`]?session-([^/\s]+)/file-")

Rows = Sequence[Mapping[str, Any]]


class _Client(AsyncSpillgate):
    async def guard(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer of the guardrail's route; None if the service cannot be reached."""
        return await self._run(self._exchange.ask(self._exchange.request("POST", _PATH, request)))


class Guardrail(CustomGuardrail):
    """`api_base` and `api_key` default to SPILLGATE_URL and SPILLGATE_KEY. Results of the MCP gateway are
    stored in the session `session_id`. `session_header` names the header that holds the session of a request.
    With `fail_closed` a request fails while the service cannot be reached."""

    server_fulfilled_tool_names: ClassVar[frozenset[str]] = frozenset(TOOL_NAMES)

    def __init__(
        self,
        api_base: str | None = None,
        api_key: str | None = None,
        session_id: str = _MCP_SESSION,
        session_header: str | None = None,
        fail_closed: bool = False,
        **options: Any,
    ) -> None:
        options["supported_event_hooks"] = [GuardrailEventHooks.pre_call, GuardrailEventHooks.post_mcp_call]
        super().__init__(**options)
        self._client = _Client(base_url=api_base, api_key=api_key)
        self._mcp_session = session_id
        self._session_header = session_header
        self._fails_closed = fail_closed
        # The session of each request that was offered tools, by its id.
        self._sessions: OrderedDict[str, str] = OrderedDict()

    async def apply_guardrail(
        self,
        inputs: Any,
        request_data: dict[str, Any],
        input_type: Literal["request", "response"],
        logging_obj: Any = None,
    ) -> Any:
        """Returns `inputs` itself if nothing changes: LiteLLM goes by that."""
        if input_type == "response":
            return await self._governed_texts(inputs, request_data)
        rows = inputs.get("structured_messages")
        if not rows:
            return inputs
        answer = await self._client.guard(self._request(rows, inputs, request_data, logging_obj))
        if answer is None and self._fails_closed:
            raise RuntimeError("Spillgate cannot be reached, and `fail_closed` is set.")
        changed: dict[str, Any] = {}
        session = self._mcp_session
        if answer is not None and answer.get("action") == "GUARDRAIL_INTERVENED":
            changed["structured_messages"] = _merged(rows, answer["structured_messages"])
            changed |= {"tools": answer["tools"]} if "tools" in answer else {}
            session = answer["session_id"]
        if "tools" not in changed and (added := await self._for_mcp(rows, inputs, request_data)):
            changed["tools"] = [*inputs["tools"], *added]
        if "tools" in changed:
            self._remember(_call_id(logging_obj, request_data), session)
        return {**inputs, **changed} if changed else inputs

    async def async_should_run_agentic_loop(
        self,
        response: object,
        model: str,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        stream: bool,
        custom_llm_provider: str,
        kwargs: dict[str, Any],
    ) -> tuple[bool, dict[str, Any]]:
        """Where the model called a tool that this guardrail has added."""
        calls = [call for call in get_tool_calls_from_response(response) if call["name"] in TOOL_NAMES]
        session = self._sessions.get(_call_id(kwargs.get("litellm_logging_obj"), kwargs))
        return (True, {"calls": calls, "session": session}) if calls and session else (False, {})

    async def async_build_agentic_loop_plan(
        self,
        tools: dict[str, Any],
        model: str,
        messages: list[dict[str, Any]],
        response: object,
        anthropic_messages_provider_config: Any,
        anthropic_messages_optional_request_params: dict[str, Any],
        logging_obj: Any,
        stream: bool,
        kwargs: dict[str, Any],
    ) -> AgenticLoopPlan:
        """Answers the calls and asks the model again. Calls of the client's own tools in the same turn are
        left out: knowing the answers, the model makes them again."""
        answered = [(call, await self._answer(call, tools["session"])) for call in tools["calls"]]
        params = dict(anthropic_messages_optional_request_params)
        max_tokens = params.pop("max_tokens", None) or kwargs.get("max_tokens")
        details = getattr(logging_obj, "model_call_details", None) or {}
        patch = AgenticLoopRequestPatch(
            model=details.get("agentic_loop_params", {}).get("model") or model,
            messages=[*messages, *_follow_up(response, answered)],
            max_tokens=max_tokens,
            optional_params=params,
            kwargs={name: value for name, value in kwargs.items() if name != "litellm_logging_obj"},
        )
        return AgenticLoopPlan(
            run_agentic_loop=True, request_patch=patch, metadata={"tool_type": "spillgate"}
        )

    def _request(
        self, rows: Rows, inputs: Any, request_data: dict[str, Any], logging_obj: Any
    ) -> dict[str, Any]:
        """What LiteLLM's generic guardrail would send."""
        metadata = request_data.get("litellm_metadata") or request_data.get("metadata") or {}
        sent = request_data.get("proxy_server_request") or {}
        return {
            "input_type": "request",
            "structured_messages": rows,
            "tools": inputs.get("tools"),
            "litellm_trace_id": getattr(logging_obj, "litellm_trace_id", None),
            "request_headers": sent.get("headers") or metadata.get("headers"),
            "request_data": {"user_api_key_hash": metadata.get("user_api_key_hash")},
            "additional_provider_specific_params": {
                "session_header": self._session_header,
                "offer_tools": not request_data.get("stream"),
            },
        }

    async def _for_mcp(
        self, rows: Rows, inputs: Any, request_data: Mapping[str, Any]
    ) -> Sequence[Mapping[str, Any]]:
        """The tools for a request that brings tools, lacks these, and names results of the MCP gateway."""
        names = {(tool.get("function") or tool).get("name") for tool in inputs.get("tools") or []}
        wanted = f"session-{self._mcp_session}/file-"
        is_named = any(wanted in str(row.get("content")) for row in rows if row.get("role") == "tool")
        if not names or names & set(TOOL_NAMES) or request_data.get("stream") or not is_named:
            return []
        return (await self._client.tools(session_id=self._mcp_session)).definitions

    async def _governed_texts(self, inputs: Any, request_data: Mapping[str, Any]) -> Any:
        """The texts of one result of the MCP gateway: of its blocks, then of its structured content (a text
        may be in both), and last what cannot be changed, such as keys."""
        called = request_data.get("mcp_tool_call_metadata") or {}
        tool = called.get("name") or "mcp_tool"
        if called.get("mcp_server_name"):
            tool = f"mcp__{called['mcp_server_name']}__{tool}"
        texts: list[str] = inputs.get("texts") or []
        shown: dict[str, str] = {}
        for text in dict.fromkeys([one for one in texts if len(one) >= _LEAST_CHARS] or texts[:1]):
            governed = await self._client.govern(
                tool, None, text, session_id=self._mcp_session, arguments=called.get("arguments")
            )
            shown[text] = governed.text
        changed = [shown.get(text, text) for text in texts]
        return inputs if changed == texts else {**inputs, "texts": changed}

    async def _answer(self, call: Mapping[str, Any], session: str) -> str:
        """A handle is honoured in the request's own session, and in that of the MCP gateway."""
        arguments = call["arguments"]
        handle = arguments.get("handle") if isinstance(arguments, dict) else None
        named = _SESSION.match(handle) if isinstance(handle, str) else None
        if named is not None and named[1] == self._mcp_session:
            session = self._mcp_session
        return await self._client.call(call["name"], arguments, session_id=session)

    def _remember(self, call_id: str, session: str) -> None:
        self._sessions[call_id] = session
        if len(self._sessions) > _MOST_REQUESTS:
            self._sessions.popitem(last=False)


def _call_id(logging_obj: Any, fields: Mapping[str, Any]) -> str:
    return str(getattr(logging_obj, "litellm_call_id", None) or fields.get("litellm_call_id") or "")


def _merged(rows: Rows, shown: Rows) -> list[Mapping[str, Any]]:
    """LiteLLM's own rows; of those that were replaced, only the content is another."""
    return [
        row if row.get("content") == other.get("content") else {**row, "content": other["content"]}
        for row, other in zip(rows, shown, strict=True)
    ]


def _follow_up(response: Any, answered: Sequence[tuple[Mapping[str, Any], str]]) -> list[dict[str, Any]]:
    """The model's calls and their answers, in the form of the response: chat, Anthropic's or Responses."""
    if _is_list(response, "output"):
        return [item for call, text in answered for item in _in_responses(call, text)]
    if _is_list(response, "content"):
        used = [
            {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["arguments"]}
            for call, _ in answered
        ]
        results = [
            {"type": "tool_result", "tool_use_id": call["id"], "content": text} for call, text in answered
        ]
        return [{"role": "assistant", "content": used}, {"role": "user", "content": results}]
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
        }
        for call, _ in answered
    ]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": text} for call, text in answered]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def _in_responses(call: Mapping[str, Any], text: str) -> list[dict[str, Any]]:
    arguments = json.dumps(call["arguments"])
    return [
        {"type": "function_call", "call_id": call["id"], "name": call["name"], "arguments": arguments},
        {"type": "function_call_output", "call_id": call["id"], "output": text},
    ]


def _is_list(response: Any, name: str) -> bool:
    value = response.get(name) if isinstance(response, Mapping) else getattr(response, name, None)
    return isinstance(value, list)
