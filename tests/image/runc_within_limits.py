#!/usr/bin/env python3
"""runc for a root without CAP_SYS_RESOURCE, which may not set the limits that podman asks for."""

import json
import os
import sys
from pathlib import Path

given = sys.argv[1:]
for option, name in (("--bundle", "config.json"), ("--process", "")):
    if option in given:
        path = Path(given[given.index(option) + 1]) / name
        asked = json.loads(path.read_text())
        asked.get("process", asked).pop("rlimits", None)
        path.write_text(json.dumps(asked))
os.execvp("runc", ["runc", *given])
