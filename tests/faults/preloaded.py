"""What a service and the commands import: imported once by the process that `tests.faults.forking` forks."""

import gc
import os
from importlib import import_module

from app.operations.policy_files import load_policies
from app.settings import Settings
from content.tokens.encodings import load_encoding

IMPORTED = (
    "app.cli.hook",
    "app.cli.shell",
    "app.edge.server",
    "app.main",
    "extraction.models.openai",
    "storage.disk.store",
    "storage.redis.ledger",
    "storage.redis.store",
    "storage.spool.ledger",
    "storage.spool.store",
    "storage.sqlite.ledger",
)

for name in [name for name in os.environ if name.startswith("SPILLGATE_")]:
    # Of the developer's shell: a service gets the settings of its test.
    del os.environ[name]
for name in IMPORTED:
    import_module(name)
load_policies(Settings(storage_url="memory:"))
load_encoding("o200k_base").count("a word")
# Forked processes share the pages of these objects, as long as their collectors leave them alone.
gc.collect()
gc.freeze()
