"""Where a result stands under its root, and what its info file holds.

<root>/tool_output/<tenant>/session-<id>/file-<uuid>         the body, as it came
<root>/tool_output/<tenant>/session-<id>/.file-<uuid>.json   what is known of it; its mtime is its last use
<root>/drafts/                                               bodies on their way; emptied at every start
<root>/lock                                                  held by the one process that owns the root
"""

import os
from dataclasses import dataclass

import msgspec

from domain.errors import InvalidField, ResultNotFound
from domain.handles import Handle, SessionKey, is_name, parse_handle
from domain.results import StoredResult
from storage.base.info import DamagedInfo, decode_info
from storage.disk.syscalls import open_file

MAX_INFO_BYTES = 8 << 20
"""More than any info can have: 1 MiB of tool_arguments, each byte of them escaped as six."""


@dataclass(frozen=True, slots=True)
class Info:
    """`body_bytes` tells a whole body from a torn one."""

    body_bytes: int
    stored: StoredResult


_decode_json = msgspec.json.Decoder(Info).decode


def read_info(tenant: str, handle: Handle, directory: int) -> tuple[Info, int]:
    """With its last use in Unix ns. Raises FileNotFoundError, also for what is not a regular file, and
    DamagedInfo."""
    fd = open_file(info_name(handle), directory)
    try:
        found = os.fstat(fd)
        if found.st_size > MAX_INFO_BYTES:
            raise DamagedInfo("it is larger than any info file")
        info = decode_info(os.read(fd, found.st_size), _decode_json)
    finally:
        os.close(fd)
    if (info.stored.tenant, info.stored.handle) != (tenant, handle):
        raise DamagedInfo("it belongs to another result")
    return info, found.st_mtime_ns


def body_name(handle: Handle) -> str:
    return f"file-{handle.file_id}"


def info_name(handle: Handle) -> str:
    return f".file-{handle.file_id}.json"


def directory_name(key: SessionKey) -> str:
    return f"session-{key.session_id}"


def path_of(key: SessionKey, name: str = "") -> str:
    """Relative to the root, for messages."""
    return "/".join(part for part in ("tool_output", key.tenant, directory_name(key), name) if part)


def is_key(key: SessionKey) -> bool:
    return is_name(key.tenant) and is_name(key.session_id)


def check_names(tenant: str, handle: Handle) -> None:
    """Whoever parsed them checked already; a path is worth checking twice."""
    try:
        safe = is_name(tenant) and parse_handle(str(handle)) == handle
    except ResultNotFound:
        safe = False
    if not safe:
        raise InvalidField("The tenant or handle is not safe as a path. Use names that Spillgate gave out.")


def key_of(tenant: str, name: str) -> SessionKey | None:
    """The session whose directory has this name; None for what is not ours."""
    key = SessionKey(tenant, name.removeprefix("session-"))
    return key if name.startswith("session-") and is_key(key) else None


def handle_of(key: SessionKey, name: str) -> Handle | None:
    """The handle whose body or info has this name; None for what is not ours."""
    bare = name[1:-5] if name.startswith(".") and name.endswith(".json") else name
    try:
        return parse_handle(f"session-{key.session_id}/{bare}")
    except ResultNotFound:
        return None
