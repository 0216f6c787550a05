"""Measures Spillgate against stated references. `python -m bench` runs all; README.md has the promises."""
