"""Cuts UTF-8 bytes without splitting a character or a CRLF pair."""


def head(data: bytes, max_bytes: int) -> bytes:
    """The longest beginning of at most `max_bytes`."""
    if len(data) <= max_bytes:
        return data
    end = max(0, max_bytes)
    while end > 0 and data[end] & 0xC0 == 0x80:
        end -= 1
    if data[end - 1 : end + 1] == b"\r\n":
        end -= 1
    return data[:end]


def tail(data: bytes, max_bytes: int) -> bytes:
    """The longest end of at most `max_bytes`."""
    if len(data) <= max_bytes:
        return data
    start = len(data) - max(0, max_bytes)
    while start < len(data) and data[start] & 0xC0 == 0x80:
        start += 1
    if data[start - 1 : start + 1] == b"\r\n":
        start += 1
    return data[start:]
