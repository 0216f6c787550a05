"""Files that are replaced in one step."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def replace_text(path: Path, text: str, mode: int) -> None:
    """Replaces the file in one step: who reads it sees the old text or the new one. Its mode, its owner and a
    link that leads to it stay; a new file gets `mode`. Raises OSError, and then leaves nothing behind."""
    path = path.resolve()
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            file.write(text.encode())
            with suppress(FileNotFoundError):
                was = path.stat()
                mode = was.st_mode & 0o7777
                with suppress(PermissionError):
                    os.fchown(descriptor, was.st_uid, was.st_gid)
            os.fchmod(descriptor, mode)
            file.flush()
            os.fsync(descriptor)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
