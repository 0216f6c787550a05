"""Secrets in text: where they are, and the masks that stand for them in what a model reads."""
