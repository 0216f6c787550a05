"""The objects of a result, and its info: their names, and how the info is written and read.

tool_output/<tenant>/session-<id>/file-<uuid>.json     the info: if it exists, the result does
tool_output/<tenant>/session-<id>/file-<uuid>.<body>   its body
schema                                                 the number of this schema
probe, probe-<id>                                      shows whether the store takes writes

Each publication writes a new object for the body, which never changes.
"""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from domain.errors import ResultNotFound
from domain.handles import Handle, SessionKey, is_name, parse_handle
from domain.results import StoredResult
from storage.base.damage import DamagedInfo, decode_info, encode_info

if TYPE_CHECKING:
    from obstore import ObjectMeta

SCHEMA = 2
"""The schema of these objects."""

TOP = "tool_output"
_BODY = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """`body` names the object of the body, which has `size` bytes. `used_at` is the last recorded use (Unix
    ms)."""

    stored: StoredResult
    body: str
    size: int
    used_at: int

    @property
    def path(self) -> str:
        return info_path(self.stored.tenant, self.stored.handle)

    @property
    def body_path(self) -> str:
        return f"{self.path.removesuffix('json')}{self.body}"

    def encoded(self) -> bytes:
        return encode_info(self)


_decode = msgspec.json.Decoder(ObjectInfo).decode


def read_info(data: bytes, path: str) -> ObjectInfo:
    """Raises DamagedInfo."""
    info = decode_info(data, _decode)
    if info.path != path:
        raise DamagedInfo("it belongs to another result")
    return info


def session_path(key: SessionKey) -> str:
    return f"{TOP}/{key.tenant}/session-{key.session_id}"


def info_path(tenant: str, handle: Handle) -> str:
    return f"{TOP}/{tenant}/{handle}.json"


@dataclass(slots=True)
class ListedResult:
    """The objects of one result in a listing. Times are Unix ms by the clock of the bucket."""

    path: str
    """The path of the info, whether it was found or not."""
    info_at: int | None = None
    bodies: list[str] = field(default_factory=list)
    size: int = 0
    newest_at: int = 0

    def add(self, meta: "ObjectMeta") -> None:
        at = _modified_at(meta)
        self.newest_at = max(self.newest_at, at)
        if meta["path"] == self.path:
            self.info_at = at
        else:
            self.bodies.append(meta["path"])
            self.size += meta["size"]

    @property
    def tenant(self) -> str:
        return self.path.split("/")[1]


def _modified_at(meta: "ObjectMeta") -> int:
    return int(meta["last_modified"].timestamp() * 1000)


def result_of(path: str) -> str | None:
    """Returns the path of the info of the result to which this object belongs; None for any other object."""
    folder, _, name = path.rpartition("/")
    top, _, rest = folder.partition("/")
    tenant, _, session = rest.partition("/")
    file, _, ending = name.partition(".")
    if top != TOP or not is_name(tenant) or not (ending == "json" or _BODY.fullmatch(ending)):
        return None
    try:
        return info_path(tenant, parse_handle(f"{session}/{file}"))
    except ResultNotFound:
        return None
