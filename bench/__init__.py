"""Measuring Spillgate against stated references. `python -m bench` runs all of it.

What is promised, and the command of each figure: README.md. Tables: measured.md. What was tried: tried.md.
"""
