"""Recognises files and base64 that a tool returned as text, by their beginning."""

import re

from content.kinds import Kind, sniff

_LOOKED_AT = 8 * 1024

# Bytes that are not UTF-8 arrive as U+FFFD.
_LOST = b"(?:\xef\xbf\xbd)"

_SIGNATURES = (
    (re.compile(rb"%PDF-"), "a PDF file read as text"),
    (re.compile(_LOST + rb"?PNG\r?\n"), "a PNG image read as text"),
    (re.compile(rb"GIF8[79]a"), "a GIF image read as text"),
    (re.compile(_LOST + rb"{2,4}[^\n]{0,16}(?:JFIF|Exif)"), "a JPEG image read as text"),
    (re.compile(rb"PK\x03\x04"), "a ZIP archive (or a document made of one) read as text"),
    (re.compile(rb"\x1f" + _LOST), "gzip data read as text"),
    (re.compile(rb"\x7fELF"), "a program file read as text"),
    (re.compile(rb"SQLite format 3\0"), "an SQLite database read as text"),
)
_BASE64_OF = (
    (b"JVBERi0", "a PDF file"),
    (b"iVBORw0KGgo", "a PNG image"),
    (b"R0lGOD", "a GIF image"),
    (b"/9j/", "a JPEG image"),
    (b"UklGR", "an image or sound"),
    (b"UEsDB", "a ZIP archive (or a document made of one)"),
    (b"H4sI", "gzip data"),
)
_DATA_URL = re.compile(rb"data:[\w.+-]+/[\w.+-]+;base64,")
_BASE64 = re.compile(rb"(?:[A-Za-z0-9+/_-]{60,}+\r?\n?)++[A-Za-z0-9+/_-]*+={0,2}\s*\Z")


def opaque(data: bytes) -> str:
    """Names the format, to complete "The data is …"; "" for text. Reads at most 8 KiB."""
    head = data[:_LOOKED_AT].removeprefix(b"\xef\xbb\xbf").lstrip()
    for signature, name in _SIGNATURES:
        if signature.match(head):
            return name
    return _encoded(head)


def is_binary(data: bytes) -> bool:
    """True if much of the beginning is control or replacement characters."""
    return sniff(data) is Kind.BINARY


def _encoded(head: bytes) -> str:
    url = _DATA_URL.match(head)
    body = head[url.end() :] if url else head
    if not url and not _BASE64.match(body):
        return ""
    named = next((name for sign, name in _BASE64_OF if body.startswith(sign)), None)
    if named is None and not url and not _is_mixed(body):
        return ""
    return f"{named} in base64" if named else "base64"


def _is_mixed(body: bytes) -> bool:
    """True if it has lower case, upper case and digits, as base64 has, unlike a long word or a row of
    dashes."""
    return all(re.search(one, body) for one in (rb"[a-z]", rb"[A-Z]", rb"[0-9]"))
