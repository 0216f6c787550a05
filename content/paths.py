"""The file that a tool call names in its arguments."""

import json

_KEYS = ("path", "file_path", "filepath", "filePath", "absolute_path", "filename", "file_name", "file")
_LONGEST = 4096


def path_of(arguments: str | None) -> str | None:
    """`arguments` as they were sent: JSON, or anything else. None where they name no file."""
    try:
        named = json.loads(arguments or "null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(named, dict):
        return None
    paths = (named.get(key) for key in _KEYS)
    return next((path for path in paths if isinstance(path, str) and 0 < len(path) <= _LONGEST), None)
