"""The plain-text frames around what the model reads; exact."""

from domain.extraction import Mode


def abstract(tool_name: str, handle: str, strategy: Mode, body: str) -> str:
    return f"ABSTRACT FROM TOOL OUTPUT {tool_name} WITH HANDLE {handle}, STRATEGY:{strategy}:\n\n{body}"


def failed(tool_name: str, handle: str, strategy: Mode, error: str) -> str:
    return f"TOOL_OUTPUT FAILED FOR {tool_name} WITH HANDLE {handle}, STRATEGY:{strategy}:\n\n{error}"
