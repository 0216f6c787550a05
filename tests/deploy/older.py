"""Runs an older version of the service: OLD_SPILLGATE is its command, as in /srv/old/.venv/bin/spillgate."""

import os

command = os.environ["OLD_SPILLGATE"]
environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
os.chdir("/")
os.execve(command, [command, "serve", "--port", "0"], environment)
