"""The sockets on which a service listens: that of its settings, the user's own, and that of the metrics."""

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from app.http.edge.unix_socket import unix_socket
from app.settings import PREFIX, Settings
from domain.errors import ConfigError, PortInUse
from machine.addresses import Address, socket_path

BACKLOG = 2048

UNSENT_BYTES = 16 << 10
"""Unsent bytes of a connection that the kernel holds. They count as memory of the container."""

_NEAR = 20
"""Ports behind one that is taken, of which a free one is looked for."""

_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
"""The loopback address of a service that listens on all addresses."""


class Sockets(NamedTuple):
    """Listening sockets. `url` and `path` are where the user's own clients may reach the service: "" for
    none. `metrics_port` is None without a socket for metrics alone."""

    listening: list[socket.socket]
    address: str
    url: str
    path: str
    metrics_port: int | None


@contextlib.contextmanager
def open_sockets(settings: Settings) -> Iterator[Sockets]:
    """Listening from the start, they are seen as live by other processes. Raises ConfigError for what cannot
    be bound."""
    with contextlib.ExitStack() as opened:
        metrics = [opened.enter_context(contextlib.closing(one)) for one in _metrics_sockets(settings)]
        metrics_port = metrics[0].getsockname()[1] if metrics else None
        if settings.uds is not None:
            path = settings.uds.absolute()
            sock = opened.enter_context(_at_path(path))
            yield Sockets([sock, *metrics], f"unix:{path}", "", str(path), metrics_port)
            return
        sock = opened.enter_context(contextlib.closing(_tcp_socket(settings.host, settings.port)))
        host, port = sock.getsockname()[:2]
        url = str(Address(_ANY.get(host, host), port))
        own = _own_socket(opened)
        path_of_own = socket_path() if own else ""
        yield Sockets([sock, *own, *metrics], str(Address(host, port)), url, path_of_own, metrics_port)


def _own_socket(opened: contextlib.ExitStack) -> list[socket.socket]:
    """The user's own, beside the port. None where it cannot be bound: then clients of the user ask at the
    port."""
    with contextlib.suppress(ConfigError):
        return [opened.enter_context(_at_path(Path(socket_path())))]
    return []


@contextlib.contextmanager
def _at_path(path: Path) -> Iterator[socket.socket]:
    """Raises ConfigError."""
    with contextlib.closing(unix_socket(path, BACKLOG)) as sock:
        inode = path.stat().st_ino
        try:
            yield sock
        finally:
            with contextlib.suppress(OSError):
                if path.stat().st_ino == inode:
                    path.unlink()


def _metrics_sockets(settings: Settings) -> list[socket.socket]:
    """The socket for metrics alone, if there is to be one."""
    if settings.metrics_listener is None:
        return []
    host, port = settings.metrics_listener
    return [_tcp_socket(host, port, ("METRICS_ADDRESS",) * 2)]


_SERVICE = ("HOST", "PORT")


def _tcp_socket(host: str, port: int, settings: tuple[str, str] = _SERVICE) -> socket.socket:
    """`settings` are those that named host and port. Raises ConfigError."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise ConfigError(f"{PREFIX}{settings[0]} is not a name or address of this machine.") from None
    family, kind, number, _, address = min(addresses, key=lambda one: one[0] != socket.AF_INET)
    sock = socket.socket(family, kind, number)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE and settings == _SERVICE:
            raise PortInUse(port, _free_near(family, address, port)) from None
        raise ConfigError(_why_unbound(error, port, settings)) from None
    return sock


def _free_near(family: int, address: Any, port: int) -> int:
    for near in range(port + 1, min(port + _NEAR, 1 << 16)):
        sock = socket.socket(family, socket.SOCK_STREAM)
        with contextlib.closing(sock), contextlib.suppress(OSError):
            sock.bind((address[0], near, *address[2:]))
            return near
    return 0


def _why_unbound(error: OSError, port: int, settings: tuple[str, str]) -> str:
    host_setting, port_setting = (f"{PREFIX}{name}" for name in settings)
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} is in use. Stop what listens there, or set {port_setting} to another one."
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"Port {port} may not be bound by this user. Set {port_setting} to one above 1023."
    return f"{host_setting} cannot be bound: {os.strerror(error.errno or 0)}."
