"""Answering from a stored result: strategies, and the ladder that chooses between them."""
