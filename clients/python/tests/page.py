"""The code of docs/clients.md, executed as it is printed there."""

import linecache
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[3] / "docs" / "clients.md"


def run_block(heading: str, **names: Any) -> dict[str, Any]:
    """The names after the first block below the heading; of a recipe, after that of all recipes as well."""
    recipe = heading in PAGE.read_text().partition("## Recipes")[2]
    for number, code in enumerate([_block("Recipes"), _block(heading)] if recipe else [_block(heading)]):
        file = f"<{heading} {number}>"
        # smolagents reads the source of a function.
        linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
        exec(compile(code, file, "exec"), names)
    return names


def _block(heading: str) -> str:
    found = re.search(rf"^##+ {re.escape(heading)}\n.*?^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert found, heading
    return found[1]
