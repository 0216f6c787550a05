"""The tools that the relay lists while no service has answered: `python -m` prints relay/tools.json."""

import json

from app.tools.definitions import TOOLS, ToolFormat, definitions
from extraction.ladder import runnable_modes


def text() -> str:
    """In the modes that run without a model: the relay does not know whether the service has one."""
    found = definitions(TOOLS.values(), runnable_modes(has_model=False), ToolFormat.MCP)
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(text(), end="")
