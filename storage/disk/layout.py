"""The paths of a result under its root, and its info file: its format, read and checked.

<root>/tool_output/<tenant>/session-<id>/file-<uuid>         the body, byte for byte
<root>/tool_output/<tenant>/session-<id>/.file-<uuid>.json   its info; the mtime is the last use
<root>/schema                                                the schema, and the version that wrote it
<root>/drafts/                                               unpublished bodies; emptied at every start
<root>/lock                                                  held by the one process that owns the root
"""

import os
from dataclasses import dataclass

import msgspec

from domain.errors import InvalidField, ResultNotFound
from domain.handles import Handle, SessionKey, is_name, parse_handle
from domain.results import StoredResult
from storage.base.damage import DamagedInfo, decode_info
from storage.disk.syscalls import open_file

MAX_INFO_BYTES = 8 << 20
"""Larger than any info: 1 MiB of tool_arguments, each byte escaped as six."""


@dataclass(frozen=True, slots=True)
class Info:
    """`body_bytes` is the size of the complete body."""

    body_bytes: int
    stored: StoredResult


_decode_json = msgspec.json.Decoder(Info).decode


def read_info(tenant: str, handle: Handle, directory: int) -> tuple[Info, int]:
    """Returns the info and its last use in Unix ns. Raises FileNotFoundError (also if it is not a regular
    file) and DamagedInfo."""
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
    """Returns the path relative to the root, for messages."""
    return "/".join(part for part in ("tool_output", key.tenant, directory_name(key), name) if part)


def is_key(key: SessionKey) -> bool:
    return is_name(key.tenant) and is_name(key.session_id)


def check_names(tenant: str, handle: Handle) -> None:
    """Raises InvalidField for names that are not safe as a path. A second check: the caller parsed them."""
    try:
        safe = is_name(tenant) and parse_handle(str(handle)) == handle
    except ResultNotFound:
        safe = False
    if not safe:
        raise InvalidField("The tenant or handle is not safe as a path. Use names that Spillgate gave out.")


def key_of(tenant: str, name: str) -> SessionKey | None:
    """Returns the session whose directory has this name; None for any other name."""
    key = SessionKey(tenant, name.removeprefix("session-"))
    return key if name.startswith("session-") and is_key(key) else None


def handle_of(key: SessionKey, name: str) -> Handle | None:
    """Returns the handle whose body or info has this name; None for any other name."""
    bare = name[1:-5] if name.startswith(".") and name.endswith(".json") else name
    try:
        return parse_handle(f"session-{key.session_id}/{bare}")
    except ResultNotFound:
        return None
