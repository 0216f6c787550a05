"""Governing one result: its body on the way through, the charge, the text that replaces it."""
