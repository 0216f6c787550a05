"""OpenCode: a plugin calls after each tool."""

import re
from typing import Any

from domain.doors import OPENCODE_BYTES, Door
from domain.hooks.call import Client, HookCall
from domain.hooks.texts import in_blocks, text_in, texts_of


def read(payload: Any) -> HookCall | None:
    """tool.execute.after, as {"input", "output"}. The answer holds the members of `output` to replace."""
    match payload:
        case {"input": {"tool": str(tool), "sessionID": str(session)} as call, "output": {**output}}:
            output_text: Any = output.get("output")
            blocks: Any = output.get("content")
            texts = [output_text] if isinstance(output_text, str) else texts_of(blocks)
            if texts is None:
                return None
            return HookCall(
                tool=tool,
                session=session,
                texts=texts,
                answer=lambda text: (
                    {"output": text} if isinstance(output_text, str) else {"content": in_blocks(blocks, text)}
                ),
                shown=output,
                call_id=text_in(call, "callID"),
                arguments=call.get("args"),
                is_error=output.get("isError") is True,
                spilled=text_in(output.get("metadata"), "outputPath"),
            )
    return None


CLIENT = Client(
    read,
    Door(
        "spillgate_",
        has_shell=True,
        passes_on="any",
        reads=frozenset({"read"}),
        passes=frozenset({"task"}),
        own_limit_bytes=OPENCODE_BYTES,
    ),
    outputs=re.compile(r"/.*/tool-output/[^/]+"),
)
