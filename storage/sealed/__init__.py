"""Encryption at rest: a store and a ledger that encrypt what they hand to another store and ledger.

It wraps the ports, so no backend knows of it.
"""
