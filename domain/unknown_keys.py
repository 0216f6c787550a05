"""How an error names a key that does not exist."""

import difflib
import re
from collections.abc import Collection

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


def unknown_key(name: str, known: Collection[str]) -> str:
    """A rule that `name` breaks, for `field: rule`. `name` is repeated only where it is close to a known key:
    such a name is a misspelling, any other may be a piece of the caller's data."""
    near = difflib.get_close_matches(name, known, n=1) if _NAME.fullmatch(name) else []
    if near:
        return f"`{name}` is not known here; the nearest known name is `{near[0]}`"
    return f"a name is not known here; known are {', '.join(known) or 'none'}"
