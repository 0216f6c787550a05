"""Records that programs print as blocks of one field a line: `psql -x`, MySQL, `sqlite3 -line`, LDIF, vCard,
ICS, packages of Debian, lists and documents of YAML."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

_LEAST_BLOCKS = 3
_ALIKE, _FIELDS = 0.8, 0.95
_NAME = r"[A-Za-z_$@*][\w$@*./()% -]{0,40}?"

_RULED = re.compile(r"-\[ RECORD \d+ \][-+]*\s*|\*{3,} +\d+\. row \*{3,}\s*")
_RULED_FIELD = re.compile(r"(?P<name>[^|]{0,200}?) *\| ?(?P<value>.*)|\s*(?P<key>[^:]{1,100}): ?(?P<text>.*)")
_EQUALS = re.compile(rf"\s*(?P<name>{_NAME}) = ?(?P<value>.*)")
_COLON = re.compile(rf"(?P<name>{_NAME})\s*::?(?:\s+(?P<value>.*)|\s*)")
_ITEM = re.compile(rf"(?P<dash>- )(?P<name>{_NAME}):(?:\s+(?P<value>.*)|\s*)")
_MEMBER = re.compile(rf"(?P<dash>  )(?P<name>{_NAME}):(?:\s+(?P<value>.*)|\s*)")
_KEY = re.compile(rf"(?P<name>{_NAME}):(?:\s+(?P<value>.*)|\s*)")
_PROPERTY = re.compile(r"(?P<name>[A-Z][A-Z0-9-]{0,60})(?:;[^:\n]{0,200})?:(?P<value>.*)")
_FOOTER = re.compile(r"\(\d+ rows?\)\s*|\d+ rows? in set.*")

Block = dict[str, str]


class Blocks(NamedTuple):
    """`names` are the fields of all blocks, in the order of their first occurrence. `others` counts the
    blocks with another first field, which are left out. `of` is the YAML key of the list of blocks;
    everything outside that list is left out."""

    names: Sequence[str]
    rows: Sequence[Block]
    others: int = 0
    of: str = ""


def blocks_in(text: str) -> Blocks | None:
    """Returns None if the text is not nearly all blocks of one kind."""
    text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    first = next(filter(str.strip, lines), "")
    if _RULED.fullmatch(first):
        return _of(_ruled(lines))
    if first.startswith("BEGIN:"):
        return _of(_between(lines))
    if _ITEM.fullmatch(first):
        return _alike(_items(lines))
    if yaml := _yaml(lines):
        return yaml
    if "\n\n" not in text:
        return None
    return _alike(_stanzas(lines, _EQUALS if _EQUALS.fullmatch(first) else _COLON))


def _of(rows: Sequence[Block]) -> Blocks | None:
    return Blocks(list(dict.fromkeys(chain.from_iterable(rows))), rows) if rows else None


def _alike(found: Sequence[Block] | None) -> Blocks | None:
    """Returns the blocks that begin with the most frequent first field, if most blocks begin with it and have
    more than one field."""
    firsts = Counter(next(iter(block)) for block in found or ())
    if found is None or not firsts:
        return None
    ((first, count),) = firsts.most_common(1)
    rows = [block for block in found if next(iter(block)) == first]
    are_long = sum(len(block) > 1 for block in rows) >= _ALIKE * count
    if count < _LEAST_BLOCKS or count < _ALIKE * len(found) or not are_long:
        return None
    made = _of(rows)
    return made._replace(others=len(found) - count) if made else None


def _put(block: Block, name: str, value: str) -> None:
    """A field that occurs again in its block gets another line."""
    block[name] = f"{block[name]}\n{value}" if name in block else value


def _go_on(block: Block, text: str, mark: str = "\n") -> None:
    last = next(reversed(block))
    block[last] = f"{block[last]}{mark}{text}" if block[last] else text


def _ruled(lines: Sequence[str]) -> list[Block]:
    """Splits at the rule with a number above each block."""
    blocks: list[Block] = []
    for line in lines:
        if _RULED.fullmatch(line):
            blocks.append({})
        elif line.strip() and not _FOOTER.fullmatch(line):
            field = _RULED_FIELD.fullmatch(line)
            name = ((field["name"] or field["key"] or "") if field else "").strip()
            value = (field["value"] if field["key"] is None else field["text"]) if field else line
            if name:
                _put(blocks[-1], name, _without_plus(value))
            elif blocks[-1]:
                _go_on(blocks[-1], _without_plus(value))
    return [*filter(None, blocks)]


def _without_plus(value: str) -> str:
    """psql prints + where a value continues on the next line."""
    return re.sub(r"\s*\+\s*\Z", "", value).rstrip()


def _stanzas(lines: Sequence[str], field: re.Pattern[str]) -> list[Block] | None:
    """Splits at blank lines. An indented line continues the value above it; a line with # is a comment."""
    blocks: list[Block] = [{}]
    odd = fields = 0
    for line in lines:
        if not line.strip():
            blocks += [{}] if blocks[-1] else []
        elif line.startswith("#"):
            continue
        elif found := field.fullmatch(line):
            fields += 1
            _put(blocks[-1], found["name"].strip(), (found["value"] or "").strip())
        elif line[:1] in " \t" and blocks[-1] and field is _COLON:
            _go_on(blocks[-1], line.strip())
        elif not _FOOTER.fullmatch(line):
            odd += 1
        if odd > 5 and odd > fields:
            return None
    return [*filter(None, blocks)] if fields >= _FIELDS * (fields + odd) else None


def _between(lines: Sequence[str]) -> list[Block]:
    """Splits at BEGIN and END: takes the innermost blocks, of the most frequent kind."""
    found: list[tuple[str, Block]] = []
    opened: list[tuple[str, Block]] = []
    for line in lines:
        if line.startswith("BEGIN:"):
            opened.append((line[6:].strip(), {}))
        elif line.startswith("END:"):
            found += [opened.pop()] if opened else []
        elif opened and line[:1] in (" ", "\t") and opened[-1][1]:
            _go_on(opened[-1][1], line[1:], "")
        elif opened and (field := _PROPERTY.fullmatch(line)):
            _put(opened[-1][1], field["name"], field["value"].strip())
    kinds = Counter(kind for kind, _ in found)
    most = max(kinds, key=kinds.__getitem__, default="")
    return [block for kind, block in found if kind == most and block]


def _yaml(lines: Sequence[str]) -> Blocks | None:
    """Splits at lines of ---, or takes a document with a list that is most of it."""
    rules = [number for number, line in enumerate(lines) if line.rstrip() == "---"]
    parts = [lines[start + 1 : end] for start, end in pairwise((-1, *rules, len(lines)))]
    filled = [part for part in parts if next(_without_comments(part), None) is not None]
    if len(filled) == 1:
        return _alike(_items(filled[0])) or _list_of(filled[0])
    documents = [_document(part) for part in filled] if len(filled) >= _LEAST_BLOCKS else []
    found = [one for one in documents if one is not None]
    return _alike(found) if found and len(found) == len(documents) else None


def _document(lines: Sequence[str]) -> Block | None:
    """Returns the keys of a document. Deeper lines belong to the key above them."""
    block: Block = {}
    for line in _without_comments(lines):
        if found := _KEY.fullmatch(line):
            _put(block, found["name"], _bare(found["value"]))
        elif block and line[:1] in (" ", "-"):
            _go_on(block, line.strip())
        else:
            return None
    return block or None


def _list_of(lines: Sequence[str]) -> Blocks | None:
    """Returns the records of a list under a key of the document."""
    document, lists, name = _document(lines), dict[str, list[str]](), ""
    for line in _without_comments(lines) if document else ():
        if found := _KEY.fullmatch(line):
            name = found["name"]
        else:
            lists.setdefault(name, []).append(line)
    name = max(lists, key=lambda one: len(lists[one]), default="")
    inside = lists.get(name, [""])
    indent = len(inside[0]) - len(inside[0].lstrip())
    if 2 * len(inside) < len(lines) or any(line[:indent].strip() for line in inside):
        return None
    made = _alike(_items([line[indent:] for line in inside]))
    return made._replace(of=name) if made else None


def _items(lines: Sequence[str]) -> list[Block] | None:
    """Splits a YAML list whose items are fields. Deeper lines belong to the field above them."""
    blocks: list[Block] = []
    for line in _without_comments(lines):
        if found := _ITEM.fullmatch(line):
            blocks.append({found["name"]: _bare(found["value"])})
        elif not blocks or line[:1] not in (" ", "-"):
            return None
        elif found := _MEMBER.fullmatch(line):
            _put(blocks[-1], found["name"], _bare(found["value"]))
        else:
            _go_on(blocks[-1], line.strip())
    return blocks


def _without_comments(lines: Sequence[str]) -> Iterator[str]:
    return (line for line in lines if line.strip() not in ("", "---") and not line.lstrip().startswith("#"))


def _bare(value: str | None) -> str:
    text = (value or "").strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
