"""Where a service listens: the address in a URL, or the places of the user's own service.

A port number does not say whose process listens there. The user's own service is recognised by its socket,
whose directory and listener must belong to the user; or by an address file of the user, which the service
keeps locked and whose secret it proves to know. The commands of the service use this file too:
`machine/addresses.py` is a link to it.
"""

import hmac
import json
import os
import socket
import stat
import struct
import sys
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import urlsplit

if sys.platform != "win32":
    import fcntl

SOCKET = "socket"
"""The name of the user's own socket in `directory()`."""

MOST_FILE_BYTES = 4096
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_LOCAL_PEERCRED = (0, 1)
"""Level and option of getsockopt on macOS, from <sys/un.h>. It returns a version and the user id, four bytes
each, then the groups."""


class NotOwn(ConnectionError):
    """The listener, or the directory of its socket, is not known to belong to the user. Nothing was sent."""


class Address(NamedTuple):
    """`path` is that of a Unix socket; without one, host and port are used. `prefix` goes before a route.
    With `is_own` the listener must be the user's: a socket's listener has the user's id, a port's listener
    proves that it knows the `secret`."""

    host: str = "localhost"
    port: int = 80
    is_tls: bool = False
    path: str = ""
    prefix: str = ""
    is_own: bool = False
    secret: str = ""

    @property
    def name(self) -> str:
        """The value of the header Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.path or self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"

    def __str__(self) -> str:
        if self == OWN:
            return f"unix:{socket_path()}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"unix:{self.path}" if self.path else f"http{'s' * self.is_tls}://{host}:{self.port}"


OWN = Address(is_own=True)
"""The user's own service, wherever it listens: see `places`."""


def address_of(url: str) -> Address:
    """The address in `http://host:port/prefix`, `https://...` or `unix:/path`. Raises ValueError."""
    if url.startswith("unix:"):
        return Address(path="/" + url.removeprefix("unix:").lstrip("/"))
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("The URL must be http://host:port, https://host:port or unix:/path.")
    is_tls = parts.scheme == "https"
    return Address(
        parts.hostname, parts.port or (443 if is_tls else 80), is_tls, prefix=parts.path.rstrip("/")
    )


def configured_address() -> Address:
    """The address in SPILLGATE_URL, whose listener is trusted; else SPILLGATE_UDS, whose listener must be the
    user's; else OWN. Raises ValueError."""
    if url := os.environ.get("SPILLGATE_URL"):
        return address_of(url)
    if path := os.environ.get("SPILLGATE_UDS"):
        return Address(path=os.path.abspath(path), is_own=True)
    return OWN


def state_folder() -> str:
    """The user's folder for Spillgate. A path that cannot exist if the home directory is unknown: a folder
    named `~` must not appear in the working directory."""
    base = os.path.expanduser(os.environ.get("XDG_STATE_HOME") or "~/.local/state")
    return os.path.join(base if os.path.isabs(base) else os.devnull, "spillgate")


def directory() -> str:
    """Where the user's own service has its socket, its lock and its log: in the directory of its store."""
    store = os.environ.get("SPILLGATE_STORAGE_URL", "").partition("disk:")[2].removeprefix("//")
    return os.path.join(store or state_folder(), "embedded")


def socket_path() -> str:
    return os.path.join(directory(), SOCKET)


def address_path() -> str:
    """The address file, which is one for all stores of the user."""
    return os.path.join(state_folder(), "embedded", "address")


def places(address: Address) -> list[Address]:
    """The addresses to try in turn: those of the user's own service for OWN, else `address` alone. Raises
    NotOwn."""
    if address != OWN:
        return [address]
    if sys.platform == "win32":
        raise NotOwn("this system cannot say whose service listens: set SPILLGATE_URL")
    own = Address(path=socket_path(), is_own=True)
    return [own, *(one for one in announced() if one != own)]


def announced() -> list[Address]:
    """The addresses in the address file: the socket and the port of a running service; [] if none runs. The
    file must belong to the user, be closed to others, and be locked by the service."""
    try:
        # O_NONBLOCK: opening a FIFO would wait for its writer.
        file = os.open(address_path(), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        info = os.fstat(file)
        is_private = stat.S_ISREG(info.st_mode) and not stat.S_IMODE(info.st_mode) & 0o077
        if not is_private or info.st_uid != os.geteuid() or not _is_locked(file):
            return []
        return _addresses_in(os.read(file, MOST_FILE_BYTES))
    finally:
        os.close(file)


def announcement(url: str, path: str, secret: str) -> bytes:
    """The content of the address file of a service at this URL and this socket; "" if it has none."""
    return json.dumps({"url": url, "socket": path, "secret": secret}).encode() + b"\n"


def _addresses_in(content: bytes) -> list[Address]:
    try:
        match json.loads(content):
            case {"url": str(url), "socket": str(path), "secret": str(secret)} if secret:
                at_path = [Address(path=path, is_own=True)] if path else []
                at_port = [address_of(url)._replace(is_own=True, secret=secret)] if url else []
                return [*at_path, *at_port]
    except (ValueError, RecursionError):
        pass
    return []


def _is_locked(file: int) -> bool:
    """Whether another process holds an exclusive lock on the file."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # A file system without locks.
        return False
    return False


def check_directory(path: str) -> None:
    """Raises NotOwn unless the directory is the user's, and no other user may write to it; OSError if there
    is none."""
    info = os.lstat(path)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & _OTHERS_MAY_WRITE:
        raise NotOwn(f"{path} must be a directory of this user, to which no other may write")


def check_listener(connection: socket.socket) -> None:
    """Raises NotOwn unless a process of this user listens on the Unix socket."""
    if _listener(connection) != os.geteuid():
        raise NotOwn("the process that listens there is not this user's")


def _listener(connection: Any) -> int | None:
    """The user id of the listening process; None if the system does not report it."""
    if sys.platform == "linux":
        size = struct.calcsize("3i")
        return int(struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[1])
    if sys.platform == "darwin":
        return int(struct.unpack_from("2I", connection.getsockopt(*_LOCAL_PEERCRED, 76))[1])
    return None


def proof_of(secret: str, url: str, challenge: str) -> str:
    """What GET /proof answers to a challenge. The URL is part of it: a proof for one URL is not valid for
    another."""
    return hmac.new(secret.encode(), f"spillgate {url} {challenge}".encode(), sha256).hexdigest()


def is_proven(address: Address, challenge: str, proof: object) -> bool:
    expected = proof_of(address.secret, str(address), challenge)
    return isinstance(proof, str) and proof.isascii() and hmac.compare_digest(proof, expected)
