"""Passages: the pieces of a result that retrieval ranks, and the words in them."""
