"""Measuring Spillgate against stated references. `python -m bench` runs all of it."""
