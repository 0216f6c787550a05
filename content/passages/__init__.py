"""Passages: the pieces of a result that `retrieve` ranks, by its structure."""
