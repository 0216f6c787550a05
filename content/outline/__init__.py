"""Outlines of texts: `outline` for a preview, `structure` for a recovery section."""

from content.outline.outline import outline, structure

__all__ = ["outline", "structure"]
