"""`make replay-check`: the tables of docs/worth.md for the made-up runs are what replay prints today.

With --write it writes them into the page.
"""

import contextlib
import io
import os
import sys
import tempfile
from pathlib import Path

from app.cli.main import main
from tests.replay import made_runs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "worth.md"
BEGIN, END = "<!-- replay-check -->\n", "<!-- /replay-check -->"


def figures() -> str:
    """The tables for the made-up runs, as a code block."""
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        path = made_runs.write(Path(folder) / "runs.jsonl")
        with contextlib.redirect_stdout(printed):
            assert main(["replay", str(path)]) == 0
    return f"```\n{printed.getvalue().rstrip()}\n```\n"


def check(*, write: bool) -> int:
    for name in [name for name in os.environ if name.startswith("SPILLGATE_")]:
        del os.environ[name]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    written, _, after = rest.partition(END)
    made = figures()
    if write:
        PAGE.write_text(f"{before}{BEGIN}{made}{END}{after}")
        return 0
    print(made)
    if made == written:
        return 0
    print("docs/worth.md has other figures: run `make replay-figures`.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(check(write="--write" in sys.argv[1:]))
