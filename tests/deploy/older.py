"""Runs an older version of the service: OLD_SPILLGATE is its command, as in /srv/old/.venv/bin/spillgate."""

import os

command = os.environ["OLD_SPILLGATE"]
# `serve` needs none of both, and an older version refuses a setting that it does not know.
left_out = ("PYTHONPATH", "SPILLGATE_AUTO_START")
environment = {name: value for name, value in os.environ.items() if name not in left_out}
os.chdir("/")
os.execve(command, [command, "serve", "--port", "0"], environment)
