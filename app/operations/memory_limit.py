"""The memory limit of this process, by its control groups."""

from contextlib import suppress
from pathlib import Path, PurePath

_GROUPS, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_NO_LIMIT = 1 << 60
"""Version 1 writes a number above this where no limit is set; version 2 writes `max`."""


def memory_limit(groups: Path = _GROUPS, own: Path = _OWN) -> int:
    """The memory limit of this process, the smallest of its control group and of those above it, in bytes; 0
    if no limit is set. `groups` is where control groups are mounted; `own` lists those of this process. In a
    container the root of the mount is the container's own group."""
    lines = []
    with suppress(OSError):
        lines = own.read_text().splitlines()
    found = [_NO_LIMIT]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount, name = groups, "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = groups / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = PurePath(path.lstrip("/"))
        for one in (group, *group.parents):
            with suppress(OSError, ValueError):
                found.append(int((mount / one / name).read_text()))
    least = min(found)
    return least if least < _NO_LIMIT else 0
