"""What a result is made of: pure functions. `source` takes off wrappers, line numbers and terminal codes."""

MAX_PATTERN_CHARS = 1000
"""The longest pattern of a search."""

MAX_EXPRESSION_CHARS = 4096
"""The longest query."""
