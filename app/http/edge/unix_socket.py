"""The Unix socket that SPILLGATE_UDS names: its place is private, and one that a crash left is replaced."""

import contextlib
import os
import socket
import stat
from pathlib import Path

from domain.errors import ConfigError

MAX_SOCKET_PATH = 107
"""Bytes of a path that Linux takes."""


def unix_socket(path: Path, backlog: int) -> socket.socket:
    """A listening socket, in a directory that is made if it is missing. Raises ConfigError."""
    check_path(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _no_directory(error) from None
    check_path(path)
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(path))
        path.chmod(0o660)
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        raise ConfigError(f"SPILLGATE_UDS cannot be bound: {os.strerror(error.errno or 0)}.") from None
    return sock


def check_path(path: Path) -> None:
    """Raises ConfigError for a path that is too long, and for a directory that others may enter. One that is
    missing is made at the start."""
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise ConfigError(f"SPILLGATE_UDS is longer than {MAX_SOCKET_PATH} bytes. Choose a shorter path.")
    directory = path.parent
    try:
        status = directory.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise _no_directory(error) from None
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        # One that others may write to is in use by them, such as /tmp.
        is_shared = status.st_mode & (stat.S_ISVTX | stat.S_IWGRP | stat.S_IWOTH)
        is_ours = status.st_uid == os.geteuid() and not is_shared
        may_write = is_shared or status.st_uid not in (0, os.geteuid())
        could = "put a socket of theirs there" if may_write else "reach the socket"
        raise ConfigError(
            f"SPILLGATE_UDS: others may enter {directory}, and could {could}. Choose a "
            f"directory of your own{f', or: chmod 700 {directory}' if is_ours else '.'}"
        )


def _no_directory(error: OSError) -> ConfigError:
    return ConfigError(f"SPILLGATE_UDS: its directory: {os.strerror(error.errno or 0)}.")


def _remove_stale(path: Path) -> None:
    """A socket that no process listens on was left by a crash."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigError("SPILLGATE_UDS names something that is not a socket. Choose another path.")
    except FileNotFoundError:
        return
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except OSError:
            raise ConfigError(
                "SPILLGATE_UDS: it is not known whether a process listens at the socket there. If none does, "
                "remove it."
            ) from None
        else:
            raise ConfigError("SPILLGATE_UDS is in use by another process. Stop it, or choose another path.")
