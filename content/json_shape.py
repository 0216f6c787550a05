"""The shape of a JSON value in few bytes: each key with one real value, lists with their lengths."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from content.tables import few_values, spelled

_SAMPLED, _FIRST = 24, 12
"""The most elements of a list, and members of an object whose keys are ids, that are read."""

_MOST_KEYS = 150
_DEEPEST = 6
_LEAST_IDS = 9
_ID_SHARE = 0.7
_ID = re.compile(r"\d+|[0-9a-f-]{8,}|.*[\d_:/@-].*\d.*|.*[/@:].*", re.IGNORECASE)
_KEY_CHARS = 60
_LEAST_TEXT, _MOST_TEXT = 8, 64 << 10


class Detail(NamedTuple):
    """How much of a shape is shown: levels, characters of a value, keys of an object that have values,
    keys of the first level and of each below; whether the values of texts that have few are shown."""

    depth: int
    chars: int
    valued: int = 999
    keys: int = 999
    inner: int = 999
    has_values: bool = False


_DETAILS = (
    Detail(6, 60), Detail(5, 40), Detail(4, 40), Detail(4, 24), Detail(3, 40), Detail(3, 24), Detail(3, 14),
    Detail(3, 14, inner=12), Detail(3, 10, inner=8), Detail(2, 40), Detail(2, 24), Detail(2, 14),
    Detail(2, 9), Detail(2, 9, inner=12), Detail(2, 9, inner=8), Detail(2, 9, 20), Detail(2, 9, 12),
    Detail(2, 9, 6), Detail(2, 9, 6, inner=6), Detail(2, 0, 0, inner=5), Detail(2, 9, 4, inner=3),
    Detail(1, 16, 6), Detail(1, 9, 3), Detail(1, 9, 1, 60), Detail(1, 9, 1, 40), Detail(1, 9, 1, 28),
    Detail(1, 9, 1, 18), Detail(1, 9, 1, 9), Detail(1, 0, 0, 4), Detail(0, 0, 0, 0),
)  # fmt: skip
"""The most detailed first. Each needs fewer bytes than the one before, or nearly so."""


@dataclass(slots=True)
class _Node:
    """What was seen at one path. `is_open`: the text was cut within it, so that nothing is counted.
    `sampled`: not all values were looked at."""

    seen: int = 0
    value: object = None
    members: dict[str, "_Node"] = field(default_factory=dict)
    item: "_Node | None" = None
    lengths: tuple[int, int] | None = None
    is_open: bool = False
    ids: tuple[int, str] | None = None
    """How many members have ids as keys, and the first of these."""
    is_text: bool = False
    """The values are texts that hold JSON."""
    texts: list[str] = field(default_factory=list)

    def add(self, value: object, open_ids: frozenset[int], depth: int = 0) -> None:
        self.seen += 1
        if id(value) in open_ids:
            self.is_open = True
        if (inner := _in_text(value)) is not None:
            self.is_text, value = True, inner
        if isinstance(value, dict):
            self._add_members(value, open_ids, depth)
        elif isinstance(value, list):
            self._add_items(value, open_ids, depth)
        else:
            if self.value in (None, ""):
                self.value = value
            if isinstance(value, str) and value:
                self.texts.append(value)

    def _add_members(self, members: dict[str, object], open_ids: frozenset[int], depth: int) -> None:
        if depth >= _DEEPEST:
            return
        if _are_ids(members):
            self.ids = max(self.ids or (0, ""), (len(members), next(iter(members))))
            item = self.item = self.item or _Node()
            for one in islice(members.values(), _SAMPLED):
                item.add(one, open_ids, depth + 1)
            return
        for key, one in islice(members.items(), _MOST_KEYS):
            node = self.members.get(key)
            if node is None:
                node = self.members[key] = _Node()
            node.add(one, open_ids, depth + 1)

    def _add_items(self, items: list[object], open_ids: frozenset[int], depth: int) -> None:
        count = len(items)
        low, high = self.lengths or (count, count)
        self.lengths = min(low, count), max(high, count)
        node = self.item = self.item or _Node()
        if depth >= _DEEPEST:
            return
        for one in _sample(items):
            node.add(one, open_ids, depth + 1)
        if count > _SAMPLED:
            node.measure(items)

    def measure(self, rows: Sequence[object]) -> None:
        """Measures the lists in all rows, although only some of the rows were read."""
        for key, node in self.members.items():
            if node.lengths is not None and not node.members:
                lists = (row.get(key) for row in rows if isinstance(row, dict))
                lengths = [len(one) for one in lists if isinstance(one, list)]
                node.lengths = min(lengths), max(lengths)

    def is_list(self) -> bool:
        return self.lengths is not None and not self.members


def _in_text(value: object) -> dict[str, object] | list[object] | None:
    """Returns the object or list in a text that is JSON; None for other values."""
    if not isinstance(value, str) or value[:1] not in ("{", "[") or not _LEAST_TEXT < len(value) < _MOST_TEXT:
        return None
    try:
        inner = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return inner if inner and isinstance(inner, dict | list) else None


def _sample(items: list[object]) -> Iterable[object]:
    if len(items) <= _SAMPLED:
        return items
    step = max(1, len(items) // (_SAMPLED - _FIRST))
    return [*items[:_FIRST], *items[_FIRST:-1:step][: _SAMPLED - _FIRST - 1], items[-1]]


def _are_ids(members: dict[str, object]) -> bool:
    """True if the keys are ids of similar members, and not names."""
    if len(members) < _LEAST_IDS:
        return False
    some = list(islice(members.items(), _SAMPLED))
    if len({type(value) for _, value in some}) > 1:
        return False
    named = [value.keys() for _, value in some if isinstance(value, dict)]
    if len(named) == len(some) and named[0]:
        shared = sum(2 * len(keys & named[0]) >= len(keys | named[0]) for keys in named)
        return shared >= _ID_SHARE * len(some)
    return sum(_ID.fullmatch(key) is not None for key, _ in some) >= _ID_SHARE * len(some)


def json_shape_of(value: object, room: int, *, is_whole: bool, prefix: str = "") -> str:
    """`prefix` and the shape in at most `room` bytes. Without `is_whole` the value is that of a text that was
    cut: what may go on is not counted."""
    node = _Node()
    node.add(value, frozenset() if is_whole else frozenset(_last_chain(value)))
    # The last text may be cut.
    return _fitted(node, room, prefix, is_whole=is_whole)


def shape_of_rows(rows: Sequence[object], room: int, prefix: str = "") -> str:
    """Returns the same for the first of many values."""
    node = _Node()
    for row in rows:
        node.add(row, frozenset())
    return _fitted(node, room, prefix, is_whole=True)


def _fitted(node: _Node, room: int, prefix: str, *, is_whole: bool) -> str:
    low, high = 0, len(_DETAILS) - 1
    while low < high:
        middle = (low + high) // 2
        if len(_text(node, _DETAILS[middle]).encode("utf-8", "replace")) + len(prefix) <= room:
            high = middle
        else:
            low = middle + 1
    text = prefix + _text(node, _DETAILS[low]._replace(has_values=is_whole))
    return text if len(text.encode("utf-8", "replace")) <= room else prefix + _text(node, _DETAILS[low])


def _last_chain(value: object) -> Iterator[int]:
    """Yields the containers in which a cut text ends."""
    while isinstance(value, dict | list):
        yield id(value)
        if not value:
            return
        value = value[-1] if isinstance(value, list) else next(reversed(value.values()))


def _text(node: _Node, detail: Detail) -> str:
    return _shown(node, detail, detail.depth, detail.keys)


def _shown(node: _Node, detail: Detail, depth: int, most: int) -> str:
    inside = _inside(node, detail, depth, most)
    return f"JSON text {inside}" if node.is_text and inside else inside


def _inside(node: _Node, detail: Detail, depth: int, most: int) -> str:
    if node.is_list():
        return _list(node, detail, depth, most)
    if node.ids is not None and not node.members:
        count, first = node.ids
        inside = _shown(node.item, detail, depth, most) if node.item else ""
        of = "" if node.is_open else f"{count:,} "
        return f"{{{of}keys like {json.dumps(first[:_KEY_CHARS], ensure_ascii=False)}: {inside}}}"
    if node.members:
        return f"{{{_members(node, detail, depth, most)}}}" if depth > 0 else "{…}"
    if detail.has_values and detail.chars and (values := few_values(node.texts)):
        return "|".join(json.dumps(value, ensure_ascii=False) for value in values)
    return _scalar(node.value, detail.chars)


def _list(node: _Node, detail: Detail, depth: int, most: int) -> str:
    low, high = node.lengths or (0, 0)
    item = node.item
    if high == 0 and not node.is_open:
        return "[]"
    count = "" if node.is_open else f"{low:,}" if low == high else f"{low:,}–{high:,}"
    is_nested = item is not None and (item.members or item.item)
    if item is None or (depth <= 0 and is_nested):
        inside = "{…}" if item and item.members else "[…]"
    else:
        inside = _shown(item, detail, depth if item.members else depth - 1, most)
    if not inside:
        return f"{count} values" if count else "[…]"
    return f"{count} × {inside}" if count else f"[{inside}, …]"


def _members(node: _Node, detail: Detail, depth: int, most: int) -> str:
    parts = []
    for place, (key, one) in enumerate(islice(node.members.items(), most)):
        how = detail if place < detail.valued else detail._replace(chars=0, depth=0)
        name = spelled(key if len(key) <= _KEY_CHARS else key[:_KEY_CHARS] + "…")
        maybe = "?" if one.seen < node.seen and node.ids is None else ""
        inside = (
            _shown(one, how, depth - 1, min(detail.inner, most))
            if how.chars or one.members or one.item
            else ""
        )
        parts.append(f"{name}{maybe}: {inside}" if inside else f"{name}{maybe}")
    if len(node.members) > most:
        parts.append(f"… {len(node.members) - most} more")
    return ", ".join(parts)


def _scalar(value: object, chars: int) -> str:
    if not chars:
        return ""
    if isinstance(value, str) and len(value) > chars:
        value = value[: chars - 1] + "…"
    return json.dumps(value, ensure_ascii=False, default=str)
