"""What a result is made of: pure functions over text and bytes."""

MAX_PATTERN_CHARS = 1000
"""The longest pattern of a search."""

MAX_EXPRESSION_CHARS = 4096
"""The longest query."""
