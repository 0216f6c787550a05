"""The structure of a text in a few lines: `outline` and `structure`."""

from content.outline.outline import outline, structure

__all__ = ["outline", "structure"]
