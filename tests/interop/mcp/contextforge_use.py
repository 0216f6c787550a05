"""Runs ContextForge's plugin manager with the plugin of the file argv[1]; prints what each result became."""

import asyncio
import json
import sys
from typing import Any

from cpex.framework import GlobalContext, PluginManager, ToolHookType
from cpex.framework import ToolPostInvokePayload as Returned
from cpex.framework import ToolPreInvokePayload as Called

PICTURE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}


async def main() -> None:
    manager = PluginManager(sys.argv[1])
    await manager.initialize()
    for name, text in json.load(sys.stdin):
        content = [{"type": "text", "text": text}, PICTURE]
        result: dict[str, Any] = {"content": content, "isError": False, "structuredContent": {"text": text}}
        context = GlobalContext(request_id="request-1")
        called = Called(name=name, args={"path": "/var/log/app.log"})
        _, contexts = await manager.invoke_hook(ToolHookType.TOOL_PRE_INVOKE, called, context)
        returned = Returned(name=name, result=result)
        shown, _ = await manager.invoke_hook(ToolHookType.TOOL_POST_INVOKE, returned, context, contexts)
        print(json.dumps(shown.modified_payload.result if shown.modified_payload else None))
    await manager.shutdown()


asyncio.run(main())
