"""Replaces files in one step."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def replace_text(path: Path, text: str, mode: int) -> None:
    """Replaces the file in one step: a reader sees the old text or the new text. Mode, owner and symbolic
    links are kept; a new file gets `mode`. Raises OSError, and then leaves no temporary file. The new file
    has no name until it is complete, so that a killed process leaves no copy."""
    path = path.resolve()
    name = f"{path.parent}/.{path.name}.{os.getpid()}"
    try:
        descriptor = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        is_named = False
    except OSError:  # The file system has no unnamed files.
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        is_named = True
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
            if not is_named:
                # `src_dir_fd` makes Python call linkat, which follows the link in /proc to the file.
                os.link(f"/proc/self/fd/{descriptor}", name, src_dir_fd=0, follow_symlinks=True)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
