"""Tokens: encodings, exact counts, estimates by sampling."""
