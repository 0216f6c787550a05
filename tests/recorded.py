"""Real results of tools: those in the folder that RECORDED_RESULTS names, else what reading this repository
gives."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
READ = ("*.lock", "*.md", "Makefile", "app/**/*.py", "docs/*.md", "openapi/*.json")


def recorded_results() -> Iterator[dict[str, Any]]:
    """Each with `tool`, `args`, `text` and its size in `bytes`."""
    if folder := os.environ.get("RECORDED_RESULTS"):
        with (Path(folder) / "tool_results.jsonl").open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)
        return
    for path in (path for pattern in READ for path in sorted(ROOT.glob(pattern))):
        data = path.read_bytes()
        args = {"path": str(path.relative_to(ROOT))}
        yield {"tool": "read_file", "args": args, "text": data.decode(), "bytes": len(data)}
