"""ContextForge: `kind: spillgate.contextforge.SpillgatePlugin` in the file of its plugins.

Governs what the tools behind the gateway return, before any MCP client sees it. An agent asks through the
gateway, if Spillgate's `/mcp` is one of its servers.
"""

from cpex.framework import (
    Plugin,
    PluginConfig,
    PluginContext,
    ToolPostInvokePayload,
    ToolPostInvokeResult,
    ToolPreInvokePayload,
    ToolPreInvokeResult,
)

from spillgate.client import AsyncSpillgate
from spillgate.exchange import is_own_tool

_SESSION = "contextforge"
_ARGUMENTS = "spillgate_arguments"
_STRUCTURED = ("structuredContent", "structured_content")


class SpillgatePlugin(Plugin):
    """Options of `config`: `url`, `api_key`, `session_id`, `tool_name` (what the gateway calls
    `tool_output`)."""

    def __init__(self, config: PluginConfig) -> None:
        super().__init__(config)
        options = dict(config.config or {})
        self._client = AsyncSpillgate(base_url=options.get("url"), api_key=options.get("api_key"))
        self._session = options.get("session_id") or _SESSION
        self._tool = options.get("tool_name") or ""

    async def tool_pre_invoke(
        self, payload: ToolPreInvokePayload, context: PluginContext
    ) -> ToolPreInvokeResult:
        """Keeps the arguments: the texts about the result are better for them."""
        context.set_state(_ARGUMENTS, payload.args)
        return ToolPreInvokeResult()

    async def tool_post_invoke(
        self, payload: ToolPostInvokePayload, context: PluginContext
    ) -> ToolPostInvokeResult:
        """Where the texts are replaced, structured content is left out: it says the same again."""
        result = payload.result
        blocks = (result.get("content") if isinstance(result, dict) else None) or []
        texts = [one for one in blocks if isinstance(one, dict) and isinstance(one.get("text"), str)]
        if not texts or is_own_tool(payload.name) or payload.name == self._tool:
            return ToolPostInvokeResult()
        governed = await self._client.govern(
            payload.name,
            None,
            "\n".join(one["text"] for one in texts),
            arguments=context.get_state(_ARGUMENTS) or {},
            is_error=bool(result.get("isError") or result.get("is_error")),
            session_id=self._session,
            policy={"tool_names": {"tool_output": self._tool}} if self._tool else None,
        )
        if governed.complete:
            return ToolPostInvokeResult()
        others = [one for one in blocks if one not in texts]
        shown = {key: value for key, value in result.items() if key not in _STRUCTURED}
        shown["content"] = [{**texts[0], "text": governed.text}, *others]
        changed = ToolPostInvokePayload(name=payload.name, result=shown)
        return ToolPostInvokeResult(modified_payload=changed)
