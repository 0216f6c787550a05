"""What a text is made of, as lines of the recovery section."""

import re

from content.kinds import Kind, sniff
from content.outline import outline

_OUTLINE_BYTES = 4096

_SOURCE = re.compile(
    r"\.(?:py|pyi|jsx?|mjs|cjs|tsx?|go|rs|java|kt|scala|swift|cc?|cpp|cxx|hh?|hpp|cs|rb|php|sh)\Z"
)
_DEFINITION = re.compile(
    rb"^[ \t]{0,16}(?:(?:export|default|public|private|protected|static|abstract|async|pub) )*+"
    rb"((?:class|def|function|fn|func|interface|struct|enum|trait|impl|type|module|namespace) [\w.$]{1,120})",
    re.MULTILINE,
)


def structure(path: str | None, head: bytes, total_bytes: int) -> list[str]:
    """Of code its definitions, of other kinds their outline; [] where there is nothing to say. `head` may be
    the beginning of a text of `total_bytes`."""
    found = code_structure(path, head)
    if not found and sniff(head) not in (Kind.TEXT, Kind.BINARY):
        found = [f"  - {line}" for line in outline(head, _OUTLINE_BYTES).split("\n")[1:]]
    if found and len(head) < total_bytes:
        found.insert(0, f"  - in the first {len(head)} bytes:")
    return found


def code_structure(path: str | None, head: bytes) -> list[str]:
    """Classes and functions with their line numbers; [] for what is no code."""
    if not _SOURCE.search(path or "") and sniff(head) is not Kind.CODE:
        return []
    found, line, done = [], 1, 0
    for match in _DEFINITION.finditer(head):
        line += head.count(b"\n", done, match.start())
        done = match.start()
        found.append(f"  - {match[1].decode('utf-8', 'replace')} (line {line})")
    return found
