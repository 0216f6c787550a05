"""Rows in, rows out: the tool results in the messages of a conversation, governed and replaced.

A client sends the whole conversation with each request, and keeps its tool results as they were. Each is
governed once, by the id of its call; in later requests the same text stands in its place, so that the caches
of model providers stay valid.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from app.doors.govern_call import arguments_of, govern_call
from app.doors.hooks.call import MAX_NAME, Call, in_blocks, texts_of
from app.doors.seen_rows import Seen
from app.edge.documents import Document
from app.operations.tracing import GOVERN, begin_part, end_part, note_refused
from app.runtime import Runtime
from domain.errors import SpillgateError
from domain.handles import SessionKey
from domain.results import Door

T = TypeVar("T")

_AT_A_TIME = 16
_STEP_ROWS = 16
"""The event loop serves others after so many rows: they take it up to 1 ms."""

_INLINE_BYTES = 1 << 16
_HOUR_MS = 3_600_000
_UNNAMED = "tool"
_POSITION = "\0"


@dataclass(frozen=True, slots=True)
class Governed:
    """`rows` are as many as came. `seen` has an item for each tool result that was governed, by the index of
    its row. `error`: why some results were left as they are."""

    rows: list[Any]
    seen: dict[int, Seen]
    error: SpillgateError | None

    @property
    def is_changed(self) -> bool:
        return any(one.text is not None for one in self.seen.values())


class ToolRow(NamedTuple):
    """A row that holds a tool's result. `place`: its index. `digest`: of its texts."""

    place: int
    call: Call
    digest: str


class Conversation:
    """One request's rows of OpenAI's chat form, in a JSON document, and the session that they belong to."""

    def __init__(self, rows: Sequence[Any], session_id: str, document: Document) -> None:
        self._rows = rows
        self._session_id = session_id
        self._document = document

    async def tool_rows(self) -> list[ToolRow]:
        """The rows to govern: not those of Spillgate's own tools, nor rows without text."""
        found = []
        async for index, call in _in_steps(self._calls()):
            if call is not None and call.is_governable:
                literals = [self._document.literal(text) for text in call.texts]
                is_small = sum(map(len, literals)) <= _INLINE_BYTES
                # In a thread, the loop goes on meanwhile.
                digest = _digest(literals) if is_small else await anyio.to_thread.run_sync(_digest, literals)
                found.append(ToolRow(index, call, digest))
        return found

    async def governed(
        self, wanted: Sequence[ToolRow], key: SessionKey, door: Callable[[ToolRow], Door | None], rt: Runtime
    ) -> Governed:
        """`door` is called for each row. After an error of one row, those that were not governed yet stay as
        they are. Raises StorageError if the session cannot be read."""
        seen: dict[int, Seen] = {}
        errors: list[SpillgateError] = []
        # Rows with the same call and content: governed once.
        fresh: dict[bytes, list[ToolRow]] = {}
        session = await rt.ledger.session(key)
        life = f"{key.tenant}\0{key.session_id}\0{session.epoch if session else 0}"
        async for row in _in_steps(wanted):
            name = sha256(f"{life}\0{row.call.call_id}\0{row.call.tool}\0{row.digest}".encode()).digest()
            found = rt.seen_rows.find(name, rt.clock())
            if found is None:
                fresh.setdefault(name, []).append(row)
            else:
                seen[row.place] = found

        async def govern() -> None:
            for name, rows in waiting:
                if errors:
                    return
                call, document = rows[0].call, self._document
                part = begin_part(GOVERN)
                try:
                    arguments = arguments_of(call, document)
                    outcome = await govern_call(call, arguments, document, key.tenant, door(rows[0]), rt)
                except SpillgateError as error:
                    note_refused(error)
                    errors.append(error)
                    return
                finally:
                    end_part(part)
                found = Seen(outcome.text, outcome.handle is not None, outcome.measure.tokens)
                rt.seen_rows.keep(name, found, rt.clock() + min(_HOUR_MS, rt.retention_ms // 4))
                seen.update((row.place, found) for row in rows)

        waiting = iter(fresh.items())
        async with anyio.create_task_group() as tasks:
            for _ in range(min(_AT_A_TIME, len(fresh))):
                tasks.start_soon(govern)
        return Governed(self._replaced(seen), seen, errors[0] if errors else None)

    def _calls(self) -> Iterator[tuple[int, Call | None]]:
        """For each row, the call whose result it is, or None. A result names its call; the row before it that
        made the call names tool and arguments."""
        made: dict[str, tuple[str, Any]] = {}
        for index, row in enumerate(self._rows):
            call = None
            match row:
                case {"role": "assistant", "tool_calls": list(calls)}:
                    made.update(_made(calls))
                case {"role": "tool" | "function", "content": content}:
                    texts = [content] if isinstance(content, str) else texts_of(content)
                    call_id, name = row.get("tool_call_id"), row.get("name")
                    call_id = call_id if isinstance(call_id, str) and _is_short(call_id) else None
                    tool, arguments = made.get(call_id or "", (name if isinstance(name, str) else "", None))
                    if texts:
                        call = Call(
                            tool=tool or _UNNAMED,
                            session=self._session_id,
                            texts=texts,
                            answer=lambda text: {"content": text},
                            call_id=call_id,
                            arguments=arguments,
                        )
            yield index, call

    def _replaced(self, seen: dict[int, Seen]) -> list[Any]:
        rows = list(self._rows)
        for index, one in seen.items():
            if one.text is not None:
                content = rows[index]["content"]
                shown = one.text if isinstance(content, str) else in_blocks(content, one.text)
                rows[index] = {**rows[index], "content": shown}
        return rows


def _made(calls: Sequence[Any]) -> Iterator[tuple[str, tuple[str, Any]]]:
    for call in calls:
        match call:
            case {"id": str(id), "function": {"name": str(name)} as function}:
                yield id, (name, function.get("arguments"))


def _is_short(call_id: str) -> bool:
    """False too for a position that stands for a long id."""
    return 0 < len(call_id) <= MAX_NAME and not call_id.startswith(_POSITION)


def _digest(literals: Iterable[memoryview]) -> str:
    digest = sha256()
    for text in literals:
        digest.update(text)
        digest.update(b"\n")
    return digest.hexdigest()


async def _in_steps(rows: Iterable[T]) -> AsyncIterator[T]:
    for number, row in enumerate(rows, 1):
        yield row
        if number % _STEP_ROWS == 0:
            await anyio.lowlevel.checkpoint()
