"""Definitions by the words that begin them: for source that has no grammar, or does not follow it."""

import re
from collections.abc import Iterator

_DECLARED = re.compile(
    rb"^[ \t]{0,8}"
    rb"(?:(?:export|default|public|private|protected|internal|static|abstract|final|sealed|async|open|data|local|"
    rb"declare|inline|unsafe|override|suspend|partial|pub(?:\([a-z]{1,9}\))?) )*+"
    rb"(?P<word>class|def|function|fn|func|fun|interface|struct|enum|trait|impl|type|module|mod|namespace|object|"
    rb"protocol|extension|record|union|defmodule|defp|sub|proc)"
    rb"(?:<[^\n<>]{0,80}>|\*)? (?P<name>[A-Za-z_$][\w$.:]{0,120})"
    rb"(?=[ \t]*(?:[({\[<:=\r\n]|\Z|extends\b|implements\b|for\b|where\b|struct\b|interface\b|do\b))",
    re.MULTILINE,
)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"{}"))
_MOST_CLOSED = 100


def declarations(text: bytes, start: int) -> Iterator[tuple[str, bytes, int, int]]:
    """Keyword, name, byte of the name and row from 0 of what begins at or after the byte `start`."""
    row, done = 0, 0
    for match in _DECLARED.finditer(text, start):
        row += text.count(b"\n", done, match.start())
        done = match.start()
        yield match["word"].decode(), match["name"].rstrip(b":."), match.start("name"), row


def closed(text: bytes) -> bytes:
    """The text with its open braces closed, so that a class that is cut in its middle is still a class."""
    braces = text.translate(None, _NOT_BRACKETS)
    still_open = 0
    for brace in braces:
        still_open = still_open + 1 if brace == 0x7B else max(0, still_open - 1)
    if not 0 < still_open <= _MOST_CLOSED:
        return text
    return text + b"\n" + b"}" * still_open
