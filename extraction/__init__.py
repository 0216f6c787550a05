"""Answers questions about a stored result: the strategies, and the ladder that chooses one."""
