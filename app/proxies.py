"""The address of a caller: that of its connection, or what a trusted balancer says in X-Forwarded-For."""

from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

UNIX = "unix"
"""The address of a caller on a Unix socket."""

Network = IPv4Network | IPv6Network


@lru_cache(maxsize=8)
def proxies(names: tuple[str, ...]) -> tuple[frozenset[str], tuple[Network, ...]]:
    """The `unix` of the names, and their networks. Raises ValueError."""
    networks = tuple(ip_network(name, strict=False) for name in names if name != UNIX)
    return frozenset({UNIX}.intersection(names)), networks


def caller_address(peer: str | None, forwarded: str, names: tuple[str, ...]) -> str:
    """`peer`: None on a Unix socket. `forwarded`: the X-Forwarded-For of the request. From its end, each
    address that a trusted one names counts, up to the first that is not trusted."""
    address = UNIX if peer is None else peer
    for hop in reversed(forwarded.split(",") if forwarded and names else ()):
        if not _is_trusted(address, names):
            break
        try:
            address = str(ip_address(hop.strip()))
        except ValueError:
            break
    return address


@lru_cache(maxsize=1024)
def _is_trusted(address: str, names: tuple[str, ...]) -> bool:
    sockets, networks = proxies(names)
    if address == UNIX:
        return address in sockets
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    parsed = getattr(parsed, "ipv4_mapped", None) or parsed
    return any(parsed in network for network in networks)
