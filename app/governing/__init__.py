"""Governing one result: its measure, the charge, and the text that replaces it."""
