"""What a service imports to serve: imported once by the process that `tests.faults.forking` forks."""

import gc

import storage.disk.store
import storage.redis.ledger
import storage.redis.store
import storage.spool.store
import storage.sqlite.ledger  # noqa: F401

# Forked processes share the pages of these objects, as long as their collectors leave them alone.
gc.collect()
gc.freeze()
