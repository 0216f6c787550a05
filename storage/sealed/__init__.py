"""Encryption at rest: the store and the ledger of this folder seal what they hand to any others."""
