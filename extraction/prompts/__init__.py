"""Prompts for models, fences around data in them, and the parsing of reports."""
