"""What a process knew of the machine's clock, for the next one: a file beside the ledger, or in the store on
disk.

In the same boot of the machine the time that has passed since is known, whatever its clock shows. After a
restart of the machine only the last time seen is: the machine was off for an unknown time.
"""

import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SIZE = 512
"""The file has it from the start, so that it can be written on a full disk."""


class KeptClock(msgspec.Struct, frozen=True):
    """`now`: the time of the process (Unix ms), `uptime` that of the machine (ms) at the same moment. `jump`:
    by how much the machine's clock had jumped without a confirmation."""

    boot: str
    uptime: int
    now: int
    jump: int = 0


def clock_file_of(store_url: str, ledger_url: str) -> "ClockFile | None":
    """Returns None if nothing is kept on a disk."""
    for url, name in ((ledger_url, "{}.clock"), (store_url, "{}/clock")):
        parts = urlsplit(url)
        if parts.scheme in ("sqlite", "disk"):
            return ClockFile(Path(name.format(unquote(parts.path))))
    return None


class ClockFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> KeptClock | None:
        """Returns None if there is no file, or if it is damaged."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=KeptClock)
        except (OSError, msgspec.DecodeError):
            return None

    def write(self, kept: KeptClock) -> None:
        """Writes nothing if the file cannot be written. The next start then knows less."""
        with suppress(OSError):
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.pwrite(fd, msgspec.json.encode(kept).ljust(_SIZE), 0)
            finally:
                os.close(fd)


def boot_id() -> str:
    """Another one after each restart of the machine; empty where the system does not say."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
