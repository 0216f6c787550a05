"""The service with other time bounds, `NAME=seconds` each, so that a test can wait for them, or need not."""

import sys

from app.cli.main import main
from app.edge import server as serving
from app.edge.deadlines import Protocol
from app.operations import background
from storage.redis import connection

if __name__ == "__main__":
    for name, _, seconds in (argument.partition("=") for argument in sys.argv[1:]):
        (owner,) = [place for place in (Protocol, serving, background, connection) if hasattr(place, name)]
        setattr(owner, name, float(seconds))
    sys.exit(main(["serve", "--port", "0"]))
