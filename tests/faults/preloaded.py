"""What a service and the commands import: imported once by the process that `tests.faults.forking` forks."""

import gc
import os
from importlib import import_module

# As a service that starts does: all that is imported stays.
gc.disable()
os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"

IMPORTED = (
    "anyio._backends._asyncio",
    "app.cli.main",
    "app.http.edge.server",
    "app.answering.extractor",
    "app.main",
    "beside.hooks.answer",
    "beside.shell",
    "content.describe",
    "encodings.idna",
    "extraction.full_chunked.strategy",
    "extraction.ladder",
    "extraction.models.openai",
    "extraction.read_grep",
    "extraction.retrieve.strategy",
    "extraction.truncate",
    "fastapi.telemetry._runtime",
    "pydantic.v1",
    "re2",
    "beside.relay.main",
    "replay.command",
    "storage.disk.store",
    "storage.postgres.ledger",
    "storage.redis.ledger",
    "storage.redis.store",
    "storage.sealed.keys",
    "storage.sqlite.ledger",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
    "uvloop",
)
"""With what is imported by the first request that needs it: each process would spend half a second there."""

for name in [name for name in os.environ if name.startswith("SPILLGATE_")]:
    # Of the developer's shell: a service gets the settings of its test.
    del os.environ[name]
for name in IMPORTED:
    import_module(name)
settings = import_module("app.settings").Settings(storage_url="memory:")
import_module("app.operations.policy_file").load_policies(settings)
# The first text with a word that is no token costs 0.2 seconds; "a word" has none.
import_module("content.tokens").load_encoding("o200k_base").count("supercalifragilistic")
# Forked processes share the pages of these objects, as long as their collectors leave them alone.
gc.freeze()
gc.enable()
