"""Bodies and ledger in Redis or Valkey, shared by any number of replicas.

A process decides by the session rules. A script writes the change only if the session is still the same;
otherwise the process decides again.
"""
