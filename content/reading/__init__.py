"""Reads a stored result: pages of lines, matches of a pattern, and a view of very long lines."""
