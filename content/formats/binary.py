"""Files returned as text or base64: their formats, what opens them, and what of them can be read."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from content.formats.format import Description, Format, Sample, SketchForm
from content.kind import Kind
from content.source import Source
from content.text import BOM, clip
from domain.errors import NotQueryable

_LOOKED_AT = 8 * 1024
_ODD_BYTES = bytes(byte for byte in range(32) if byte not in b"\t\n\r\f\x08\x1b") + b"\x7f"
_REPLACED = "\ufffd".encode()

# Bytes that are not UTF-8 arrive as U+FFFD.
_LOST = b"(?:\xef\xbf\xbd)"

_PDF, _IMAGE, _SOUND = "a tool that reads PDF files", "a tool that shows images", "a tool that plays media"
_ARCHIVE, _PROGRAM = "a tool that unpacks archives", "a disassembler"
_DOCUMENT, _SHEET = "a tool that reads office documents", "a tool that reads spreadsheets"
_DATABASE, _TABLE = "an SQLite client", "a tool that reads Parquet files"
_ARTICLE = re.compile(r"^an? ")
_PDF_TITLE = re.compile(rb"/Title\s*\(([^()\\\x00-\x1f]{1,200})\)")
_TITLE_BYTES = 16 << 10


class BinaryFormat(Format):
    """Data that is mostly not text; also files and base64 that are shown as text."""

    kind = Kind.BINARY
    noun = "binary data"
    sketch_form = SketchForm.BINARY
    has_structure = False
    is_lines = False

    def matches(self, sample: Sample) -> bool:
        return is_binary(sample.whole_head) or opaque(sample.whole_head) is not None

    def shape(self, source: Source) -> Description:
        file = opaque(source.stored)
        if file is None:
            return Description("mostly binary, with some readable text")
        title = _PDF_TITLE.search(source.stored[:_TITLE_BYTES] + source.tail)
        opened = f"binary: {_ARTICLE.sub('', file.name)}; to open it, use {file.opener}"
        return Description(opened, title=clip(title[1]) if title else "")

    def outline(self, source: Source) -> Iterator[str]:
        yield "not text"

    def value(self, source: Source) -> object:
        raise NotQueryable(f"The result is {self.noun}, which has no rows. Use `pattern` or `extract`.")


def is_binary(head: bytes) -> bool:
    """True if much of the first 8 KiB is control or replacement characters."""
    head = head[:_LOOKED_AT]
    odd = len(head) - len(head.translate(None, _ODD_BYTES))
    if b"\0" in head or 20 * odd > len(head):
        return True
    return not head.isascii() and 10 * head.count(_REPLACED) > len(head)


class File(NamedTuple):
    """`name` completes "The data is …". `opener` is the program that opens it, "" if unknown."""

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
_FILES = [(re.compile(pattern, re.DOTALL), File(name, opener)) for pattern, name, opener in _SIGNATURES]
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


def opaque(data: bytes) -> File | None:
    """The format of a file or of base64, None for text. Reads at most 8 KiB."""
    head = data[:_LOOKED_AT].removeprefix(BOM)
    bare = head.lstrip()
    if not (_ANY_FORMAT.match(bare) or _ANY_FORMAT.match(head)):
        return _encoded(bare)
    return next(file for signature, file in _FILES if signature.match(bare) or signature.match(head))


def _encoded(head: bytes) -> File | None:
    url = _DATA_URL.match(head)
    body = head[url.end() :] if url else head
    if not url and not _BASE64.match(body):
        return None
    for sign, name, opener in _BASE64_OF:
        if body.startswith(sign):
            return File(f"{name} in base64", opener, is_base64=True)
    # Lower case, upper case and digits, unlike a long word or a row of dashes.
    if url or all(re.search(one, body) for one in (rb"[a-z]", rb"[A-Z]", rb"[0-9]")):
        return File("base64", "a tool that decodes it", is_base64=True)
    return None


_PRINTED = bytes(0 if (byte < 32 and byte not in b"\t\n") or byte == 127 else byte for byte in range(256))
_RUN = re.compile(rb"[^\n\0]{6,}")
_SAYS = re.compile(rb"[A-Za-z]{3}|\d{4}|[\xc3-\xf4][\x80-\xbf]")


def readable_runs(data: bytes) -> Iterator[bytes]:
    """The runs of at least six printable characters with a word or a number."""
    runs = _RUN.finditer(data.translate(_PRINTED).replace(_REPLACED, b"\0"))
    return (run[0].strip() for run in runs if _SAYS.search(run[0]))


def readable(data: bytes) -> bytes:
    """Returns the readable runs, one on each line."""
    return b"\n".join(readable_runs(data))
