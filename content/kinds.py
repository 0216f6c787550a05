"""The kind of a text by its beginning; formats of files returned as text or base64, and what opens them."""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from content.text import BOM, unnumbered

# Bytes that are not UTF-8 arrive as U+FFFD.
_LOST = b"(?:\xef\xbf\xbd)"

_PDF, _IMAGE, _SOUND = "a tool that reads PDF files", "a tool that shows images", "a tool that plays media"
_ARCHIVE, _PROGRAM = "a tool that unpacks archives", "a disassembler"
_DOCUMENT, _SHEET = "a tool that reads office documents", "a tool that reads spreadsheets"
_DATABASE, _TABLE = "an SQLite client", "a tool that reads Parquet files"


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
    rb"|<\d{1,3}>|[IWEF]\d{4} \d\d:\d\d|(?:time|ts|level)=\S"
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
_UNLIKE_A_HEADER = re.compile(rb"[{}=]|:\s|:\Z|\(\d+,|\);")
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
    head = head.removeprefix(BOM).lstrip()
    lines = list(filter(bytes.strip, head.split(b"\n", _LINES)[:_LINES]))
    if not lines:
        return Kind.TEXT
    # A log may begin with a bracket and a date too.
    if _JSON.match(head) and not _STAMP.match(head):
        records = sum(1 for line in lines[:5] if _RECORD.match(line))
        return Kind.NDJSON if records >= 2 and records == len(lines[:5]) else Kind.JSON
    if head.startswith(b"<"):
        if _HTML.match(head):
            return Kind.HTML
        if _XML.match(head):
            return Kind.XML
    return _by_lines(lines, tool_name)


def _is_binary(head: bytes) -> bool:
    odd = len(head) - len(head.translate(None, _ODD_BYTES))
    if b"\0" in head or 20 * odd > len(head):
        return True
    return not head.isascii() and 10 * head.count(_REPLACED) > len(head)


def _by_lines(lines: list[bytes], tool_name: str) -> Kind:
    if _reaches(_STAMP, lines, 0.5):
        return Kind.LOG
    if _reaches(_HIT, lines, 0.6):
        return Kind.GREP
    if "grep" in tool_name and share(_HIT, lines) + share(_NUMBERED, lines) >= 0.2:
        return Kind.GREP
    if _reaches(_NUMBERED, lines, 0.7):
        lines = unnumbered(b"\n".join(lines)).text.split(b"\n")
    if _is_table(lines):
        return Kind.CSV
    if _is_markdown(lines):
        return Kind.MARKDOWN
    return Kind.CODE if _reaches(_CODE, lines, 0.2) else Kind.TEXT


def share(pattern: re.Pattern[bytes], lines: list[bytes]) -> float:
    """The share of the lines that begin with a match."""
    return len([*filter(pattern.match, lines)]) / len(lines)


def _reaches(pattern: re.Pattern[bytes], lines: list[bytes], share: float) -> bool:
    """True if at least that share of the lines match. Ends when the first lines have decided."""
    first = len(lines) - int(share * len(lines)) + 1
    found = len([*filter(pattern.match, lines[:first])])
    if found and found / len(lines) < share:
        found += len([*filter(pattern.match, lines[first:])])
    return found / len(lines) >= share


def _is_markdown(lines: list[bytes]) -> bool:
    """True for headings and prose. A `#` between settings is a comment, unless there are three levels."""
    if not any(map(_HEADING.match, lines)) or share(_MARKDOWN, lines) < 0.15 or share(_CODE, lines) >= 0.3:
        return False
    levels = {len(line) - len(line.lstrip(b"#")) for line in lines if _HEADING.match(line)}
    rest = [line for line in lines if not line.lstrip().startswith(b"#")]
    return len(levels) > 2 or 0 in levels or not rest or share(_SETTING, rest) < 0.5


def _is_table(lines: list[bytes]) -> bool:
    """True if every line has as many separators outside quotes. The last line may be cut, and quoted cells
    may hold newlines."""
    if len(lines) < 2 or _CODE.match(lines[0]):
        return False
    header = _QUOTED.sub(b"", lines[0])
    # With a quote left, a cell of the header goes on in the next line.
    if b'"' not in header and not any(_may_separate(mark, header, len(lines)) for mark in _MARKS):
        return False
    text = b"\n".join(lines)
    if b'"' not in text:
        return any(_is_separator(mark, _whole(lines)) for mark in _MARKS)
    bare = _whole([_QUOTED.sub(b"", line) for line in lines])
    joined = _whole(_QUOTED.sub(b"", text).split(b"\n"))
    return any(_is_separator(mark, rows) for rows in (bare, joined) for mark in _MARKS)


def _whole(lines: list[bytes]) -> list[bytes]:
    return lines[:-1] if len(lines) > 2 else lines


def _is_separator(mark: bytes, lines: list[bytes]) -> bool:
    if not _may_separate(mark, lines[0], len(lines)):
        return False
    counts = [line.count(mark) for line in lines]
    return counts.count(counts[0]) >= 0.9 * len(lines)


def _may_separate(mark: bytes, header: bytes, rows: int) -> bool:
    count = header.count(mark)
    return count >= (1 if rows >= 5 else 2) and not _UNLIKE_A_HEADER.search(header)


def is_binary(data: bytes) -> bool:
    """True if much of the beginning is control or replacement characters."""
    return sniff(data) is Kind.BINARY


class Format(NamedTuple):
    """`name` completes "The data is …". `opener` is what opens it, "" if unknown."""

    name: str
    opener: str
    is_base64: bool = False


# The first pattern that matches the beginning of the text.
_SIGNATURES = (
    (rb"%PDF-", "a PDF file", _PDF),
    (_LOST + rb"?PNG\r?\n", "a PNG image", _IMAGE),
    (rb"GIF8[79]a", "a GIF image", _IMAGE),
    (_LOST + rb"{2,4}[^\n]{0,16}(?:JFIF|Exif)", "a JPEG image", _IMAGE),
    (rb"RIFF.{4,12}WEBP", "a WebP image", _IMAGE),
    (rb"II\*\0|MM\0\*", "a TIFF image", _IMAGE),
    (rb"\0\0\0.{1,3}ftyp(?:heic|avif|mif1)", "an image", _IMAGE),
    (rb"RIFF.{4,12}(?:WAVE|AVI )|ID3[\x02-\x04]|OggS\0|fLaC\0|\0\0\0.{1,3}ftyp", "sound or video", _SOUND),
    (rb"PK\x03\x04.{0,4000}?\bword/", "a Word document", _DOCUMENT),
    (rb"PK\x03\x04.{0,4000}?\bxl/", "an Excel workbook", _SHEET),
    (rb"PK\x03\x04.{0,4000}?\bppt/", "a PowerPoint presentation", _DOCUMENT),
    (rb"PK\x03\x04.{0,100}?mimetypeapplication/(?:vnd\.oasis|epub)", "an office document", _DOCUMENT),
    (rb"PK\x03\x04", "a ZIP archive", _ARCHIVE),
    (_LOST + rb"{2}\x11\xe0\xa1\xb1\x1a", "an old office document", _DOCUMENT),
    (rb"\x1f" + _LOST, "gzip data", _ARCHIVE),
    (rb"%b7zXZ\0|7z%b|Rar!\x1a\x07|BZh[1-9]1AY&SY|\(%b/%b" % ((_LOST,) * 4), "an archive", _ARCHIVE),
    (rb".{257}ustar", "a tar archive", _ARCHIVE),
    (rb"\x7fELF|MZ.{1,6}\0|\0asm|%b{4}\0\0\0" % _LOST, "a program file", _PROGRAM),
    (rb"SQLite format 3\0", "an SQLite database", _DATABASE),
    (rb"PAR1[\x00-\x1f]", "a Parquet file", _TABLE),
)
_FORMATS = [(re.compile(pattern, re.DOTALL), Format(name, opener)) for pattern, name, opener in _SIGNATURES]
_ANY_FORMAT = re.compile(b"|".join(pattern for pattern, _, _ in _SIGNATURES), re.DOTALL)
_BASE64_OF = (
    (b"JVBERi0", "a PDF file", _PDF),
    (b"iVBORw0KGgo", "a PNG image", _IMAGE),
    (b"R0lGOD", "a GIF image", _IMAGE),
    (b"/9j/", "a JPEG image", _IMAGE),
    (b"UklGR", "an image or sound", _IMAGE),
    (b"UEsDB", "a ZIP archive or an office document", _ARCHIVE),
    (b"H4sI", "gzip data", _ARCHIVE),
)
_DATA_URL = re.compile(rb"data:[\w.+-]+/[\w.+-]+;base64,")
_BASE64 = re.compile(rb"(?>(?:[A-Za-z0-9+/_-]{60,}+\r?\n?)+)[A-Za-z0-9+/_-]*+={0,2}\s*\Z")


def opaque(data: bytes) -> Format | None:
    """The format of a file or of base64, None for text. Reads at most 8 KiB."""
    head = data[:_LOOKED_AT].removeprefix(BOM)
    bare = head.lstrip()
    if not (_ANY_FORMAT.match(bare) or _ANY_FORMAT.match(head)):
        return _encoded(bare)
    return next(known for signature, known in _FORMATS if signature.match(bare) or signature.match(head))


def _encoded(head: bytes) -> Format | None:
    url = _DATA_URL.match(head)
    body = head[url.end() :] if url else head
    if not url and not _BASE64.match(body):
        return None
    for sign, name, opener in _BASE64_OF:
        if body.startswith(sign):
            return Format(f"{name} in base64", opener, is_base64=True)
    # Lower case, upper case and digits, unlike a long word or a row of dashes.
    if url or all(re.search(one, body) for one in (rb"[a-z]", rb"[A-Z]", rb"[0-9]")):
        return Format("base64", "a tool that decodes it", is_base64=True)
    return None


_PRINTED = bytes(0 if (byte < 32 and byte not in b"\t\n") or byte == 127 else byte for byte in range(256))
_RUN = re.compile(rb"[^\n\0]{6,}")
_SAYS = re.compile(rb"[A-Za-z]{3}|\d{4}|[\xc3-\xf4][\x80-\xbf]")


def readable_runs(data: bytes) -> Iterator[bytes]:
    """The runs of at least six printable characters with a word or a number."""
    runs = _RUN.finditer(data.translate(_PRINTED).replace(_REPLACED, b"\0"))
    return (run[0].strip() for run in runs if _SAYS.search(run[0]))


def readable(data: bytes) -> bytes:
    """The readable runs, one a line."""
    return b"\n".join(readable_runs(data))
