"""The user's address file: clients find the service by it, and know it by the secret in it.

The service holds the file locked as long as it runs, so what a crash left is not believed.
"""

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from machine.addresses import address_path, announcement, proof_of
from machine.descriptors import try_lock

_TRIES = 25
_AGAIN_SECONDS = 0.02
"""A client locks the file for a moment, to see whether a service holds it."""

_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Announcement(NamedTuple):
    """`fault` says why no file is held; then there is no secret."""

    url: str
    secret: str = ""
    fault: str = ""

    def proof(self, challenge: str) -> str:
        return proof_of(self.secret, self.url, challenge)


@contextmanager
def announced(url: str, socket: str, is_wanted: bool) -> Iterator[Announcement]:
    """Holds the address file with this URL and this path of a Unix socket, each "" for none, if that
    `is_wanted`. A service that cannot have the file runs without."""
    file, fault = None, ""
    if is_wanted:
        try:
            file = _held_file(address_path())
            fault = "" if file is not None else "another service of this user holds it"
        except OSError as error:
            fault = error.strerror or str(error)
    if file is None:
        yield Announcement(url, fault=fault)
        return
    secret = secrets.token_hex(32)
    try:
        os.truncate(file, 0)
        os.pwrite(file, announcement(url, socket, secret), 0)
        yield Announcement(url, secret)
    finally:
        with contextlib.suppress(OSError):
            os.truncate(file, 0)
        os.close(file)


def _held_file(path: str) -> int | None:
    """Locked, empty or not, and readable for this user alone. None if another process holds it. Raises
    OSError."""
    folder = os.path.dirname(path)
    for each in (os.path.dirname(folder), folder):
        os.makedirs(each, mode=0o700, exist_ok=True)
    while (file := _locked(path)) is not None and not _is_private(file):
        # Another process may have it open.
        os.unlink(path)
        os.close(file)
    return file


def _locked(path: str) -> int | None:
    file = os.open(path, _OPEN, 0o600)
    try:
        for _ in range(_TRIES):
            if try_lock(file):
                return file
            time.sleep(_AGAIN_SECONDS)
    except BaseException:
        os.close(file)
        raise
    os.close(file)
    return None


def _is_private(file: int) -> bool:
    info = os.fstat(file)
    return stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o077
