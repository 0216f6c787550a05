"""Outlines of texts: what a result is, how much it holds, and where its parts begin."""
