"""Passages: the pieces of a result that `retrieve` ranks, and their words."""
