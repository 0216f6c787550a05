"""Runs `spillgate replay` in this process."""

import json
from pathlib import Path
from typing import Any

from beside.main import main


def report(folder: Path, *arguments: str | Path) -> dict[str, Any]:
    """The JSON report of a replay that ends with 0."""
    target = folder / "replay-report.json"
    assert main(["replay", *map(str, arguments), "--report", str(target)]) == 0
    found: dict[str, Any] = json.loads(target.read_text())
    return found
