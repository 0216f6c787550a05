"""How often a repeated test repeats: few times by default, as often as was promised with FULL_COUNTS=1,
and as often as KILLS says where a test kills."""

import os

FULL = os.environ.get("FULL_COUNTS") == "1"
KILLS = os.environ.get("KILLS")


def count(few: int, full: int) -> int:
    """`few` in `make test`, `full` in `make faults`."""
    return full if FULL else few


def kills(few: int, full: int) -> int:
    """KILLS, or else `count`."""
    return int(KILLS) if KILLS else count(few, full)
