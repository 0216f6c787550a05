"""Readers of transcripts: each format is one module and one line of FORMATS.

A module has `NAME`; `recognises`, which gets the first records of a file, at least one; and `runs`, which
yields the runs of all its records one by one. A record is a line of JSON lines, or the whole of a JSON
document.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from replay.readers import atif, claude_code, codex, copilot, gemini, messages, opencode, pi, swe_agent
from replay.runs import Notes, Run


class TranscriptFormat(NamedTuple):
    recognises: Callable[[Sequence[Any]], bool]
    runs: Callable[[Iterator[Any], Notes], Iterator[Run]]


FORMATS: dict[str, TranscriptFormat] = {
    module.NAME: TranscriptFormat(module.recognises, module.runs)
    for module in (claude_code, codex, copilot, pi, opencode, gemini, swe_agent, atif, messages)
}
"""In the order in which they are tried: `messages` knows the loosest shape."""

LOOKED_AT = 20
"""Records that a format is recognised by."""


def recognised(records: Sequence[Any]) -> TranscriptFormat | None:
    """Returns the format of a file with these first records; None for an unknown format."""
    return next((one for one in FORMATS.values() if records and one.recognises(records)), None)
