"""The objects of a result, and its info: their names, and how the info is written and read.

tool_output/<tenant>/session-<id>/file-<uuid>.json              the info: if it exists, the result does
tool_output/<tenant>/session-<id>/file-<uuid>.<body>.<number>   the last segment of its body
segments/<body>.<number>                                        those before it, of a body over 4 MiB
schema                                                          the number of this schema
probe, probe-<id>                                               shows whether the store takes writes

Each segment is an object of its own. So a process that is killed leaves no multipart upload behind: obstore
can neither list nor abort those of another process.
"""

import re
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from domain.errors import ResultNotFound
from domain.handles import Handle, SessionKey, is_name, parse_handle
from domain.results import StoredResult
from storage.base.damage import DamagedInfo, decode_info, encode_info

if TYPE_CHECKING:
    from obstore import ObjectMeta

SCHEMA = 1
"""The schema of these objects."""

SEGMENT = 4 << 20
TOP = "tool_output"
SEGMENTS = "segments"
_SEGMENT_PATH = re.compile(rf"{SEGMENTS}/([0-9a-f]{{32}})\.(0|[1-9][0-9]{{0,6}})")


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """`body` names the segments; each has `segment` bytes but for the last, and a CRC-32 in `checksums`.
    `used_at` is the last use that was written down (Unix ms)."""

    stored: StoredResult
    body: str
    size: int
    segment: int
    checksums: tuple[int, ...]
    used_at: int

    @property
    def path(self) -> str:
        return info_path(self.stored.tenant, self.stored.handle)

    @property
    def segments(self) -> list[str]:
        """The paths of the segments of its body, in order."""
        last = len(self.checksums) - 1
        earlier = [segment_path(self.body, number) for number in range(last)]
        return [*earlier, f"{self.path.removesuffix('.json')}.{self.body}.{last}"]

    def is_intact(self, number: int, data: bytes) -> bool:
        size = min(self.segment, self.size - number * self.segment)
        return len(data) == size and zlib.crc32(data) == self.checksums[number]

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


def segment_path(body: str, number: int) -> str:
    """The path of any segment but the last."""
    return f"{SEGMENTS}/{body}.{number}"


@dataclass(slots=True)
class ListedBody:
    """The segments but the last of one body, in a listing. A bucket may hold many: their paths are not kept.
    `newest_at` is in Unix ms by the clock of the bucket."""

    name: str
    count: int = 0
    size: int = 0
    newest_at: int = 0

    def add(self, number: int, meta: "ObjectMeta") -> None:
        self.count = max(self.count, number + 1)
        self.size += meta["size"]
        self.newest_at = max(self.newest_at, _modified_at(meta))

    @property
    def segments(self) -> list[str]:
        return [segment_path(self.name, number) for number in range(self.count)]


@dataclass(slots=True)
class ListedResult:
    """The objects of one result in a listing. Times are Unix ms by the clock of the bucket."""

    path: str
    """The path of the info, whether it was found or not."""
    info_at: int | None = None
    segments: list[str] = field(default_factory=list)
    size: int = 0
    newest_at: int = 0

    def add(self, meta: "ObjectMeta") -> None:
        at = _modified_at(meta)
        self.newest_at = max(self.newest_at, at)
        if meta["path"] == self.path:
            self.info_at = at
        else:
            self.segments.append(meta["path"])
            self.size += meta["size"]

    @property
    def tenant(self) -> str:
        return self.path.split("/")[1]

    @property
    def large_bodies(self) -> list[str]:
        """The names of its bodies of several segments."""
        names = [path.split(".")[-2:] for path in self.segments]
        return [body for body, number in names if number != "0"]


def body_of(path: str) -> tuple[str, int] | None:
    """Returns body and number of a segment that is not the last; None for the path of any other object."""
    match = _SEGMENT_PATH.fullmatch(path)
    return None if match is None else (match[1], int(match[2]))


def _modified_at(meta: "ObjectMeta") -> int:
    return int(meta["last_modified"].timestamp() * 1000)


def result_of(path: str) -> str | None:
    """Returns the path of the info of the result to which this object belongs; None for any other object."""
    folder, _, name = path.rpartition("/")
    top, _, rest = folder.partition("/")
    tenant, _, session = rest.partition("/")
    file, *more = name.split(".")
    if top != TOP or not is_name(tenant) or not (more == ["json"] or len(more) == 2):
        return None
    try:
        return info_path(tenant, parse_handle(f"{session}/{file}"))
    except ResultNotFound:
        return None
