"""Bodies and ledger in Redis or Valkey, shared by any number of replicas."""
