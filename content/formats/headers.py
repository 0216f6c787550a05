"""The line of source code that begins the function or class around a piece of code."""

import re

_BEFORE = 64 << 10
_LONGEST = 300

_NAMED = re.compile(
    rb"\s*(?:(?:export|default|public|private|protected|internal|static|abstract|async|final|override|virtual|inline|const"
    rb"|unsafe|pub(?:\([a-z]+\))?|extern|partial|sealed|open|data|declare|local)\s+)*"
    rb"(?:class|def|function\*?|fn|func|fun|interface|struct|enum|trait|impl|module|namespace|sub|procedure|object|type)\b"
)
_METHOD = re.compile(
    rb"\s*(?:[\w<>\[\],:*&?.$@]+\s+)*[*&~#]?[\w$:]+\s*(?:<[^<>()]*>)?\([^;=]*(?:\)[^;={}]*)?\{?\s*\Z"
)
_ARROW = re.compile(rb"\s*(?:[\w$.]+\s+)*[\w$.]+\s*[:=][^;]*(?:=>|function)[^;]*\{\s*\Z")
_NO_HEADER = re.compile(
    rb"\s*(?:if|else|elif|for|foreach|while|switch|try|catch|except|finally|with|case|return|do|match|when|unless|until"
    rb"|await|throw|raise|yield|new|using|lock|loop|guard|select|go|defer|@|#|//|/\*|\*)\b"
)


def header_of(data: bytes, start: int, end: int) -> tuple[int, int] | None:
    """Returns the span of the line; None if the piece begins with that line, or if no function or class
    encloses it. Reads at most 64 KiB before the piece."""
    first = data[start:end].lstrip().partition(b"\n")[0][:_LONGEST]
    if _is_header(first):
        return None
    depth = min((_indent(line) for line in data[start:end].split(b"\n") if line.strip()), default=0)
    until, least = start, max(0, start - _BEFORE)
    while depth > 0 and until > least:
        begin = data.rfind(b"\n", least, until - 1) + 1 or least
        line = data[begin : until - 1]
        if line.strip() and _indent(line) < depth:
            depth = _indent(line)
            if line.strip() == b"{":
                # The header is the line above it.
                depth += 1
            elif len(line) <= _LONGEST and _is_header(line):
                return begin, until
        until = begin
    return None


def _indent(line: bytes) -> int:
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip())


def _is_header(line: bytes) -> bool:
    line = line.rstrip()
    if _NAMED.match(line):
        return True
    return not _NO_HEADER.match(line) and bool(_METHOD.match(line) or _ARROW.match(line))
