"""Bodies and ledger in Redis or Valkey, shared by any number of replicas.

A process decides by the session rules; a script writes the change only if the session is still the one that
was decided about, otherwise the process decides again.
"""
