"""The service with its time bounds shrunk, `NAME=seconds` each, so that a test can wait for them."""

import sys

from app.cli.main import main
from app.edge import server as serving
from app.edge.deadlines import Protocol
from app.operations import policy_reload

if __name__ == "__main__":
    for name, _, seconds in (argument.partition("=") for argument in sys.argv[1:]):
        (owner,) = [place for place in (Protocol, serving, policy_reload) if hasattr(place, name)]
        setattr(owner, name, float(seconds))
    sys.exit(main(["serve", "--port", "0"]))
