"""Encryption at rest: a store and a ledger that seal what they hand to any other store and ledger."""
