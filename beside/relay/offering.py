"""When a client's model gets our tools, from which of the client's relays, and under which names.

A client that asks for the tools again when they change gets them once something is stored, any other client
from the start. Of several relays of one client, one offers: its tools answer for all of them.
"""

import fcntl
import os
import threading
import time
from contextlib import suppress
from hashlib import sha256

from beside.relay.messages import LazyJson, client_info
from domain.mcp import MCP_CLIENTS, McpClient
from machine.descriptors import try_lock

RELISTED_SECONDS = 0.5
"""The first result that is stored waits so long for the client to ask for the tools again: they are then in
the model's next request."""

_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_PREFIX = 100
_AGAIN_SECONDS = 0.02
"""The wait for another relay that holds the lock for a moment while it looks who has it."""


class Offering:
    """`is_listed`: the list that the client got last has our tools. `is_missing`: it lacks them because the
    service could not be asked. `listens_as`: the id, as JSON, of the request by which a client of the
    stateless era wants to be told of changes."""

    def __init__(self, folder: str, service: str, server: str = "") -> None:
        """`service` tells services and keys apart: relays of one are asked about results of the others.
        `server` is the name of this server in the client's settings, "" if that is not known."""
        key = sha256(f"{os.getppid()} {service}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
        self._path = os.path.join(folder, f"tools-{key}")
        self._server = server
        self._client: McpClient | None = None
        self._lock: int | None = None
        self._is_stored = False
        self._is_stateless = False
        self.is_listed = False
        self.is_missing = False
        self.listens_as: str | None = None
        self.relisted = threading.Event()
        self.relisted.set()

    def note_client(self, message: LazyJson) -> None:
        """Reads which client asks, from a request of either era."""
        info = client_info(message)
        if isinstance(info, dict):
            self._is_stateless = message.inner("params", "clientInfo") is None
            self._client = MCP_CLIENTS.get(str(info.get("name")))

    @property
    def may_relist(self) -> bool:
        return self._client is not None and self._client.relists

    @property
    def is_late(self) -> bool:
        """Whether the relay can notify the client that the tools have changed."""
        return self.may_relist and (self.listens_as is not None or not self._is_stateless)

    @property
    def prefix(self) -> str:
        """The prefix of our tools' names that the model sees."""
        if self._client is not None and self._lock is None:
            with suppress(OSError):
                lock = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    if _is_locked(lock):
                        return os.read(lock, _MOST_PREFIX).decode("ascii", "ignore")
                finally:
                    os.close(lock)
        return self._own_prefix

    @property
    def _own_prefix(self) -> str:
        if not self._server or self._client is None:
            return ""
        return self._client.prefix.format(self._server)[:_MOST_PREFIX]

    def offers(self) -> bool:
        """Returns whether a list that the client gets now includes our tools."""
        return (self._is_stored or not self.is_late) and self._claims()

    def store(self) -> bool:
        """Records that something is stored. Returns whether to notify the client that the tools have
        changed."""
        self._is_stored = True
        return self.is_late and not self.is_listed and self._claims()

    def _claims(self) -> bool:
        """True unless another relay of the client offers. The lock is held as long as this process runs."""
        if self._client is None or self._lock is not None:
            return True
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            lock = os.open(self._path, _LOCK, 0o600)
            is_locked = try_lock(lock)
            if not is_locked:
                time.sleep(_AGAIN_SECONDS)
                is_locked = try_lock(lock)
        except OSError:
            return True
        if not is_locked:
            os.close(lock)
            return False
        os.truncate(lock, 0)
        os.write(lock, self._own_prefix.encode())
        self._lock = lock
        return True

    def close(self) -> None:
        if self._lock is not None:
            with suppress(OSError):
                os.unlink(self._path)


def _is_locked(lock: int) -> bool:
    """Returns whether another process holds the lock."""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False
