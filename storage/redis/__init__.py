"""Bodies and ledger in Redis or Valkey, for any number of replicas. redis-py is imported with this package."""
