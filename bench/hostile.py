"""JSON bodies that are hard to parse, as large as the service takes them."""

import json

SIZE = 8_000_000
"""A little less than SPILLGATE_MAX_JSON_BYTES."""

SMALL = b'{"tool_name":"bench","content":"<<>> ;;"}'
"""Sent before measuring: the first text that is not made of whole tokens makes the tokenizer build a table,
once, in 0.1 to 0.2 s."""
START = b'{"tool_name":"bench","content":'


def _repeated(before: bytes, unit: bytes, after: bytes, size: int) -> bytes:
    return before + unit * ((size - len(before) - len(after)) // len(unit)) + after


CONTENTS = {
    "[1,1,...]": (b"[", b"1,", b"1]"),
    "[[],[],...]": (b"[", b"[],", b"1]"),
    "[[[[...": (b"", b"[", b""),
    "nested objects": (b"", b'{"a":', b""),
    "a number": (b"", b"1", b""),
    "white space": (b"[", b" ", b"1]"),
    "empty strings": (b"[", b'"",', b"1]"),
    "escaped quotes": (b'"', rb"\"", b'"'),
    "backslashes": (b'"', rb"\\", b'"'),
    "text, escaped": (b'"', rb"a line of text\n\tand \"more\" of it\n", b'"'),
    "text in \\u": (b'"', rb"\u00e9", b'"'),
    "lone surrogates": (b'"', rb"\ud800", b'"'),
    "surrogate pairs": (b'"', rb"\ud83d\ude00", b'"'),
    "one emoji in ASCII": (b'"' + "\U0001f600".encode(), b"a", b'"'),
    "blocks of 6 KB": (b"[", b'{"type":"text","text":"%b"},' % (b"word " * 1200), b'{"type":"x"}]'),
    "small blocks": (b"[", b'{"type":"text","text":"a"},', b'{"type":"x"}]'),
    "an image block": (b'[{"type":"image","data":"', b"QUJD", b'"}]'),
    "strings of 60 bytes": (b'[{"type":"json","data":[', b'"%b",' % (b"a" * 60), b'""]}]'),
    "strings of 300 bytes": (b'[{"type":"json","data":[', b'"%b",' % (b"a" * 300), b'""]}]'),
    "strings with \\u0000": (b'[{"type":"json","data":[', b'"\\u0000",', b'""]}]'),
    "strings of escapes": (b'[{"type":"json","data":[', b'"%b",' % (rb"\n" * 500), b'""]}]'),
    "many contents": (b"1", b',"content":"a"', b""),
    "5 million keys in policy": (b'"","policy":{', b'"k1234567":1,', b'"k":1}'),
    "keys in tool_arguments": (b'"","tool_arguments":{', b'"k1234567":1,', b'"k":1}'),
    "long tool_arguments": (b'"","tool_arguments":"', b"a", b'"'),
    "long tool_name": (b'"","tool_name":"', b"a", b'"'),
    "unclosed string": (b'"', b"a", b""),
    "not UTF-8": (b'"', b"\xff", b'"'),
    "NULs": (b'"', b"\0", b'"'),
}
"""The label of a body, and the beginning, the repeated part and the end of its content."""

LABELS = (*CONTENTS, "no JSON", "ordinary text")


def body(label: str, size: int = SIZE) -> bytes:
    """A body of about `size` bytes for POST /results."""
    if label == "no JSON":
        return b"\\" * size
    if label == "ordinary text":
        text = "An ordinary line of text, of 40 bytes.\n" * (size // 40)
        return START + json.dumps(text).encode() + b"}"
    before, unit, after = CONTENTS[label]
    return _repeated(START + before, unit, after + b"}", size)


def of_hook(body: bytes) -> bytes:
    """The hook's JSON of a Codex call whose tool returned what is in `body`."""
    named = b'"hook_event_name":"PostToolUse","turn_id":"t","session_id":"s","tool_response":'
    return body.replace(b'"content":', named, 1)
