"""Fences around foreign text in a prompt: nothing that stands inside can close them, or pass for a report."""

import hashlib
import re

_STEM = "spillgate"

# Also what cannot be seen may stand between `<` and the name.
_GAP = "[\\s\u00ad\u200b-\u200f\u2060\ufeff]*+"
_LOOKALIKE = re.compile(rf"<(?={_GAP}/?+{_GAP}(?:{_STEM}-|ai-agent-[^<>]*?final))", re.IGNORECASE)

_FENCE = re.compile(
    rf"<(?P<tag>{_STEM}-(?P<role>[a-z]+)-[0-9a-f]{{12}})[^<>]*>\n(?P<text>.*?)\n</(?P=tag)>", re.DOTALL
)


def neutralised(text: str) -> str:
    """With ‹ for the < of every look-alike of a fence, or of the wrapper around a report."""
    return _LOOKALIKE.sub("‹", text)


def fenced(role: str, text: str, nonce: str, title: str = "") -> str:
    """`nonce` is the report's: the fence has one of its own, made of it."""
    return "\n".join(fence(role, text, nonce, title))


def fence(role: str, text: str, nonce: str, title: str = "") -> tuple[str, str, str]:
    """As `fenced`, for whoever joins the lines into something larger: a long text is copied but once."""
    mark = hashlib.sha256(nonce.encode()).hexdigest()[:12]
    tag = f"{_STEM}-{role}-{mark}"
    return f"<{tag}{title and f' {title}'}>", neutralised(text), f"</{tag}>"


def inside(role: str, prompt: str) -> list[str]:
    """What stands in the fences of that role, in order."""
    return [found["text"] for found in _FENCE.finditer(prompt) if found["role"] == role]


def outside(prompt: str) -> str:
    """What stands in no fence: our own words."""
    return _FENCE.sub("", prompt)
