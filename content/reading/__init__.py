"""Reads a stored result: pages of lines, matches of a pattern, and a view of very long lines."""

MAX_PATTERN_CHARS = 1000
"""The longest pattern."""
