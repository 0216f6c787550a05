"""The process that parses: it may crash, and it is killed for too much time or memory. It holds nothing.

A script of its own that imports nothing of ours: it starts fast and stays small. A frame on either pipe is
a length of four bytes, then that many. Asked in two: JSON of module, function, query and names, and the
source text. Answered in one: JSON, whether the text breaks the grammar, and a list of `Found`.
"""

import contextlib
import importlib
import json
import resource
import signal
import sys
from functools import cache

from tree_sitter import Language, Node, Parser, Query, QueryCursor

# Source of 64 KiB takes 7 to 20 ms and a few megabytes here; a hostile one gigabytes, or minutes.
CPU_SECONDS = 0.25
MEMORY_BYTES = 256 * 1024 * 1024

# Keyword, first byte and end of the name, end of the definition, rows from 0 of the name and of the end.
Found = tuple[str, int, int, int, int, int]


@cache
def _loaded(module: str, function: str, query: str) -> tuple[Language, Query]:
    language = Language(getattr(importlib.import_module(module), function)())
    return language, Query(language, query)


def _definitions(
    language: Language, query: Query, names: dict[str, str], text: bytes
) -> tuple[bool, list[Found]]:
    root = Parser(language).parse(text).root_node
    first: dict[int, tuple[int, Found]] = {}
    for pattern, captured in QueryCursor(query).matches(root):
        found = _found(captured, names, text)
        if found and (found[1] not in first or pattern < first[found[1]][0]):
            first[found[1]] = pattern, found
    return root.has_error, [found for _, found in first.values()]


def _found(captured: dict[str, list[Node]], names: dict[str, str], text: bytes) -> Found | None:
    word, name = captured.pop("word", None), captured.pop("name", None)
    keyword, (node,) = captured.popitem()
    if word:
        keyword = text[word[0].start_byte : word[0].end_byte].decode()
    parts = name or _name(node, names.get(node.type, "name"))
    if not parts:
        return None
    row, column = node.end_point
    last = row - 1 if column == 0 and row > node.start_point.row else row
    return keyword, parts[0].start_byte, parts[-1].end_byte, node.end_byte, parts[0].start_point.row, last


def _name(node: Node, fields: str) -> list[Node]:
    parts = [part for part in map(node.child_by_field_name, fields.split()) if part]
    return _declared(parts[0], node.type == "type_definition") if parts and fields == "declarator" else parts


def _declared(node: Node, any_kind: bool) -> list[Node]:
    """The name within what C declares: pointers, references and parameters stand around it. Nothing for a
    variable."""
    function = any_kind
    while node.type.endswith("_declarator"):
        function = function or node.type == "function_declarator"
        inner = node.child_by_field_name("declarator") or next(iter(node.named_children), None)
        if inner is None or node.type == "parenthesized_declarator":
            break
        node = inner
    return [node] if function and not node.type.endswith("_declarator") else []


def _receive() -> bytes:
    size = sys.stdin.buffer.read(4)
    if len(size) < 4:
        raise SystemExit
    return sys.stdin.buffer.read(int.from_bytes(size))


def main() -> None:
    # SIGPROF is left to its default, which ends the process: no handler would run within the parser.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    while True:
        grammar = json.loads(_receive())
        text = _receive()
        language, query = _loaded(*grammar[:3])
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        found = _definitions(language, query, grammar[3], text)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answer = json.dumps(found).encode()
        sys.stdout.buffer.write(len(answer).to_bytes(4) + answer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
