"""Encryption at rest: a store and a ledger that encrypt what they pass to another store and ledger.

They wrap the ports, so that backends need not know of encryption.
"""
