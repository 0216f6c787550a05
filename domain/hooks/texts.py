"""The texts of a result in the JSON of a hook: in blocks, contents of a resource, or Gemini's parts."""

from typing import Any


def text_in(value: Any, name: str) -> str | None:
    """Returns the member of this name; None if the member is not a text, or is empty."""
    text = value.get(name) if isinstance(value, dict) else None
    return text if isinstance(text, str) and text else None


def texts_of(blocks: Any) -> list[str] | None:
    """The texts of a list of MCP content blocks, contents of a resource, or Gemini's parts. None for any
    other shape, and for blocks without text."""
    if not isinstance(blocks, list):
        return None
    texts = []
    for block in blocks:
        match block:
            case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
                texts.append(text)
            case {"text": str(text)} if "type" not in block:
                texts.append(text)
            case _ if not isinstance(block, dict):
                return None
    return texts or None


def only_texts(blocks: Any) -> list[str] | None:
    """Returns the texts of such a list; None also if a replacement would lose another block, such as a
    picture."""
    texts = texts_of(blocks)
    return texts if texts is not None and len(texts) == len(blocks) else None


def in_blocks(blocks: list[Any], text: str) -> list[Any]:
    """Returns the blocks with `text` in place of their texts. Pictures and other blocks stay."""
    others = [block for block in blocks if texts_of([block]) is None]
    return [{"type": "text", "text": text}, *others]
