"""Fences around untrusted text in a prompt. Text inside cannot close a fence or look like a report."""

import hashlib
import re

_STEM = "spillgate"

# Invisible characters are allowed between `<` and the name.
_GAP = "[\\s\u00ad\u200b-\u200f\u2060\ufeff]*+"
_LOOKALIKE = re.compile(rf"<(?={_GAP}/?+{_GAP}(?:{_STEM}-|ai-agent-[^<>]*?final))", re.IGNORECASE)

_FENCE = re.compile(
    rf"<(?P<tag>{_STEM}-(?P<role>[a-z]+)-[0-9a-f]{{12}})[^<>]*>\n(?P<text>.*?)\n</(?P=tag)>", re.DOTALL
)


def neutralised(text: str) -> str:
    """Replaces < by ‹ in everything that looks like a fence or like the wrapper of a report."""
    return _LOOKALIKE.sub("‹", text)


def fenced(role: str, text: str, nonce: str, title: str = "") -> str:
    """The fenced text. The fence has its own nonce, derived from `nonce`, that of the report."""
    return "\n".join(fence(role, text, nonce, title))


def fence(role: str, text: str, nonce: str, title: str = "") -> tuple[str, str, str]:
    """Like `fenced`, as lines. Joining them into a prompt copies a long text only once."""
    mark = hashlib.sha256(nonce.encode()).hexdigest()[:12]
    tag = f"{_STEM}-{role}-{mark}"
    return f"<{tag}{title and f' {title}'}>", neutralised(text), f"</{tag}>"


def inside(role: str, prompt: str) -> list[str]:
    """The texts in the fences of a role, in order."""
    return [found["text"] for found in _FENCE.finditer(prompt) if found["role"] == role]


def outside(prompt: str) -> str:
    """The prompt without its fenced texts."""
    return _FENCE.sub("", prompt)
