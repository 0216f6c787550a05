"""Encryption at rest: a store and a ledger that encrypt what they hand to another store and ledger."""
