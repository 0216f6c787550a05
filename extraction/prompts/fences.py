"""The tags of a prompt: fences around untrusted text, and the wrapper that a model puts around its report."""

import hashlib
import re
import secrets

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


# Gaps are bounded, so that a reply of nothing but spaces costs no more than any other.
_SPACES = r"\s{0,8}"
# Matches any nonce: compiling a pattern for each call would take longer than using it.
_NAME = r"ai-agent-([A-Za-z0-9]{1,64})-FINAL(?![\w-])"
_OPENING = re.compile(rf"<{_SPACES}{_NAME}[^<>]{{0,200}}>", re.IGNORECASE)
_CLOSING = re.compile(rf"<{_SPACES}/{_SPACES}{_NAME}", re.IGNORECASE)
_THOUGHT = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)\b", re.IGNORECASE)
_FENCES = ("```", "~~~")


def new_nonce() -> str:
    return secrets.token_hex(8)


def opening(nonce: str) -> str:
    return f'<ai-agent-{nonce}-FINAL format="text">'


def closing(nonce: str) -> str:
    return f"</ai-agent-{nonce}-FINAL>"


def parse_report(reply: str, nonce: str) -> str | None:
    """Returns the report, "" if it is empty, None if there is none. The last opening tag outside of a think
    block counts, in any case and with any spaces and attributes. The closing tag may be missing."""
    openings = _tags(_OPENING, reply, 0, nonce)
    if not openings:
        return None
    last = openings[-1]
    end = next(iter(_tags(_CLOSING, reply, last.end(), nonce)), None)
    if _is_thought(reply, end.end() if end else last.end()):
        return None
    if end:
        return _bare(reply[last.end() : end.start()])
    return _bare(_unclosed(reply[last.end() :], reply[: last.start()], closing(nonce)))


def _tags(pattern: re.Pattern[str], reply: str, start: int, nonce: str) -> list[re.Match[str]]:
    return [tag for tag in pattern.finditer(reply, start) if tag[1].lower() == nonce.lower()]


def _is_thought(reply: str, start: int) -> bool:
    """True if `start` is within a think block."""
    depth = 0
    for mark in _THOUGHT.finditer(reply, start):
        depth += -1 if mark[1] else 1
        if depth < 0:
            return True
    return False


def _unclosed(report: str, before: str, tag: str) -> str:
    """Removes a partial closing tag, and the end of a code fence that began before the report."""
    cut = report.rfind("</")
    if cut >= 0 and tag.lower().startswith(report[cut:].strip().lower()):
        report = report[:cut]
    if before.rstrip().rpartition("\n")[2].startswith(_FENCES):
        report = report.rstrip().removesuffix("```").removesuffix("~~~")
    return report


def _bare(report: str) -> str:
    """Removes spaces and a code fence around the whole report."""
    report = report.strip()
    first, _, rest = report.partition("\n")
    body, _, last = rest.rpartition("\n")
    mark, info = first[:3], first[3:].strip()
    if mark in _FENCES and last.strip() == mark and mark not in body and (not info or info.isalnum()):
        return body.strip()
    return report
