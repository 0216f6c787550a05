"""Answering a question about a stored result: the use case, its model calls and what they may cost."""
