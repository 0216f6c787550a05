"""Recognises the kind of a text, and binary files that a tool returned as text, by their beginning."""

import re
from enum import StrEnum

from content.text import unnumbered


class Kind(StrEnum):
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"
    LOG = "log"
    MARKDOWN = "markdown"
    HTML = "html"
    XML = "xml"
    CODE = "code"
    GREP = "grep"
    BINARY = "binary"
    TEXT = "text"


NAMES = {
    Kind.JSON: "JSON", Kind.NDJSON: "JSON lines", Kind.CSV: "a table", Kind.LOG: "a log",
    Kind.MARKDOWN: "Markdown", Kind.HTML: "HTML", Kind.XML: "XML", Kind.CODE: "source code",
    Kind.GREP: "search output", Kind.TEXT: "plain text", Kind.BINARY: "binary data",
}  # fmt: skip
"""To complete "The data is …"."""

_LOOKED_AT = 8 * 1024
_LINES = 60
_ODD_BYTES = bytes(byte for byte in range(32) if byte not in b"\t\n\r\f\x08\x1b") + b"\x7f"
_REPLACED = "\ufffd".encode()

# `cat -n` and the read tools of agents put line numbers before the text.
_NUMBERED = re.compile(rb"\s{0,8}\d{1,7}(?:\t|\xe2\x86\x92|\| |:)")

_JSON = re.compile(rb'[\[{]\s*(?:["\[\]{}\d-]|true|false|null|\Z)')
_RECORD = re.compile(rb'\{\s*".*\}\s*\Z|\[.*\]\s*\Z')
_HTML = re.compile(
    rb"<(?:!doctype\s+html|html|head|body|div|p|span|table|ul|script|style|h[1-6])\b", re.IGNORECASE
)
_XML = re.compile(rb"<(?:\?xml|!--|!DOCTYPE|[A-Za-z_][\w:.-]*[\s/>])")
_HIT = re.compile(rb"[\w./@+~-]{1,300}[:-]\d{1,8}[:-](?!\d)")
# No pattern here begins with an optional group: one such costs more than all of these.
_STAMP = re.compile(
    rb"[\[(]?(?:\d{4}[-/]\d\d[-/]\d\d[T ]\d|\d\d:\d\d:\d\d|\d\d-\d\d \d\d:\d\d:\d\d"
    rb"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d"
    rb"|\[?(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL)\b)"
    rb"|\S++ \S++ \S++ \[\d\d/[A-Z][a-z]{2}/\d{4}:"
)
_MARKDOWN = re.compile(
    rb"#{1,6} \S|```|[-*] (?:\[[ x]\] )?\S|> |\d{1,3}\. \S|\|.*\|\s*\Z|.*\[[^\]]{1,200}\]\([^)\s]+\)"
)
# Lines of YAML, TOML, INI, Dockerfile, Makefile and of servers' configuration.
_SETTING = re.compile(
    rb"\s*(?:- )?[\w.\-/$()\"']{1,80}\s*(?:[:?+]?=|:(?:\s|\Z))|\s*\[[^\]]*\]\s*\Z|\t\S"
    rb"|(?:FROM|RUN|COPY|ADD|ENV|ARG|CMD|ENTRYPOINT|WORKDIR|EXPOSE|USER|LABEL|VOLUME|export|include) "
    rb"|\s*[\w-]+ [^;{]*[;{]\s*\Z|\s*[})\]]|\s*[A-Za-z][\w-]* \S+\s*\Z"
)
_MARKS = (b"\t", b",", b";")
_QUOTED = re.compile(rb'"[^"]*"')
_HEADING = re.compile(rb"#{1,6} \S|```")
# Messages of compilers and lines of code have commas too.
_UNLIKE_A_HEADER = re.compile(rb"[{}=]|:\s|:\Z|\(\d+,")
_CODE = re.compile(
    rb"\s*+(?:#!/|#include\b|import [\w.{*\"']|from [\w.]+ import |def \w+\(|class \w+[(:{ ]|async def "
    rb"|(?=[aefips])(?:export |public |private |static |async |pub )*"
    rb"(?:function|fn|func|interface|struct|enum|impl) ?\w*"
    rb"|(?:const|let|var) \w+ ?=|package [\w.]+;?|using [\w.]+;|return\b|if ?\(.*\) ?\{|\}|@\w+|/[/*])"
)


def sniff(head: bytes, tool_name: str = "") -> Kind:
    """Returns the kind of the text. Reads at most 8 KiB."""
    head = head[:_LOOKED_AT]
    if _is_binary(head):
        return Kind.BINARY
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    lines = [line for line in head.split(b"\n", _LINES)[:_LINES] if line.strip()]
    if not lines:
        return Kind.TEXT
    # A log may begin with a bracket and a date too.
    if _JSON.match(head) and not _STAMP.match(head):
        records = sum(1 for line in lines[:5] if _RECORD.match(line))
        return Kind.NDJSON if records >= 2 and records == len(lines[:5]) else Kind.JSON
    if head.startswith(b"<"):
        if _HTML.match(head):
            return Kind.HTML
        return Kind.XML if _XML.match(head) else Kind.TEXT
    return _by_lines(lines, tool_name)


def _is_binary(head: bytes) -> bool:
    odd = len(head) - len(head.translate(None, _ODD_BYTES))
    if b"\0" in head or 20 * odd > len(head):
        return True
    return not head.isascii() and 10 * head.count(_REPLACED) > len(head)


def _by_lines(lines: list[bytes], tool_name: str) -> Kind:
    if _share(_STAMP, lines) >= 0.5:
        return Kind.LOG
    hits, numbered = _share(_HIT, lines), _share(_NUMBERED, lines)
    if hits >= 0.6 or ("grep" in tool_name and hits + numbered >= 0.2):
        return Kind.GREP
    if numbered >= 0.7:
        lines = unnumbered(b"\n".join(lines)).text.split(b"\n")
    if _is_table(lines):
        return Kind.CSV
    if _is_markdown(lines):
        return Kind.MARKDOWN
    return Kind.CODE if _share(_CODE, lines) >= 0.2 else Kind.TEXT


def _share(pattern: re.Pattern[bytes], lines: list[bytes]) -> float:
    return len([*filter(pattern.match, lines)]) / len(lines)


def _is_markdown(lines: list[bytes]) -> bool:
    """True for headings and prose. A `#` between settings is a comment, unless there are three levels."""
    if not _share(_HEADING, lines) or _share(_MARKDOWN, lines) < 0.15 or _share(_CODE, lines) >= 0.3:
        return False
    levels = {len(line) - len(line.lstrip(b"#")) for line in lines if _HEADING.match(line)}
    rest = [line for line in lines if not line.lstrip().startswith(b"#")]
    return len(levels) > 2 or 0 in levels or not rest or _share(_SETTING, rest) < 0.5


def _is_table(lines: list[bytes]) -> bool:
    """True if every line has as many separators outside quotes. The last line may be cut, and quoted cells
    may hold newlines."""
    if len(lines) < 2 or _CODE.match(lines[0]):
        return False
    header = _QUOTED.sub(b"", lines[0])
    # With a quote left, a cell of the header goes on in the next line.
    if b'"' not in header and not any(_may_separate(mark, header, len(lines)) for mark in _MARKS):
        return False
    bare = _whole([_QUOTED.sub(b"", line) for line in lines])
    joined = _whole(_QUOTED.sub(b"", b"\n".join(lines)).split(b"\n"))
    return any(_is_separator(mark, rows) for rows in (bare, joined) for mark in _MARKS)


def _whole(lines: list[bytes]) -> list[bytes]:
    return lines[:-1] if len(lines) > 2 else lines


def _is_separator(mark: bytes, lines: list[bytes]) -> bool:
    count = lines[0].count(mark)
    alike = sum(line.count(mark) == count for line in lines)
    return alike >= 0.9 * len(lines) and _may_separate(mark, lines[0], len(lines))


def _may_separate(mark: bytes, header: bytes, rows: int) -> bool:
    count = header.count(mark)
    return count >= (1 if rows >= 5 else 2) and not _UNLIKE_A_HEADER.search(header)


def is_binary(data: bytes) -> bool:
    """True if much of the beginning is control or replacement characters."""
    return sniff(data) is Kind.BINARY
