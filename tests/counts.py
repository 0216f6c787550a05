"""How often a repeated test repeats: few times by default, as often as was promised with FULL_COUNTS=1."""

import os

FULL = os.environ.get("FULL_COUNTS") == "1"


def count(few: int, full: int) -> int:
    """`few` in `make test`, `full` in `make faults`."""
    return full if FULL else few
