"""The text that a tool answers with: what is read of one stored result, charged to the model's session."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from app.answering.reading import Subject
from app.answering.tool_definitions import Tool
from app.runtime import Runtime
from content.text import cut_head
from domain.accounting import AccountingEntry, EntryStatus, EntryType
from domain.errors import BadPattern, InvalidField

_LEAST_BYTES = 600

_EXHAUSTED = (
    "The answer does not fit what is left of the context budget. Take the final turn, or report the "
    "context's usage and ask for less of the result."
)


@dataclass(frozen=True, slots=True)
class ToolText:
    """`text` is what the model reads. `is_error`: it says why there is no answer. `entry_id` is the id of the
    accounting's entry, None if nothing was charged."""

    text: str
    is_error: bool = False
    entry_id: str | None = None


class Reading:
    """One stored result that is read back for a model. The model called `tool`; `call` is its question."""

    def __init__(
        self, rt: Runtime, subject: Subject, tool: Tool, call: str, most_bytes: int | None = None
    ) -> None:
        """`most_bytes`: of the answer, if they are fewer than the size cap."""
        self.rt = rt
        self.subject = subject
        self.stored = subject.stored
        self.shown = subject.shown
        self.tool = tool
        self._cap = min(subject.most_bytes, most_bytes or subject.most_bytes)
        self.usual_bytes = min(self._cap, subject.policy.max_answer_bytes)
        self._started = rt.clock()
        self.found_nothing = False

    async def answered(self, make: Callable[[int], Awaitable[str]]) -> ToolText:
        """Returns the text that `make` writes for a number of bytes, and charges it. If the budget has no
        room for the text, asks `make` once for a shorter one."""
        if self.subject.is_exhausted:
            return await self._failed(_EXHAUSTED, "budget exhausted")
        try:
            text = await self._text(make, self._cap)
            entry_id, tokens = await self._reserved(text)
            if entry_id is None:
                room = await self.subject.room(self.rt, len(text.encode()), tokens)
                if room > _LEAST_BYTES:
                    text = await self._text(make, room)
                    entry_id, _ = await self._reserved(text)
        except (BadPattern, InvalidField) as error:
            self.rt.observer.told(error, [str(self.stored.handle)])
            return await self._failed(error.detail, error.code)
        if entry_id is None:
            return await self._failed(_EXHAUSTED, "budget exhausted")
        return ToolText(text, entry_id=entry_id)

    async def _failed(self, reason: str, error: str) -> ToolText:
        """Charges a text in any case, because the model reads it in any case."""
        text = cut_head(reason.encode(), self._cap).decode()
        entry = replace(await self._entry(text), status=EntryStatus.FAILED, error=error)
        await self.subject.settle(self.rt, entry)
        self.rt.observer.read(entry)
        return ToolText(text, is_error=True, entry_id=entry.id)

    async def _text(self, make: Callable[[int], Awaitable[str]], max_bytes: int) -> str:
        return cut_head((await make(max_bytes)).encode(), max_bytes).decode()

    async def _reserved(self, text: str) -> tuple[str | None, int]:
        """Returns the id of the entry and the tokens of the text; None as the id if the budget has no room
        for the text."""
        entry = await self._entry(text)
        tokens = entry.tokens_out
        if await self.subject.reserve(self.rt, entry, text) is None:
            return None, tokens
        self.rt.observer.read(entry)
        return entry.id, tokens

    async def _entry(self, text: str) -> AccountingEntry:
        tokens = await self.rt.count(text, self.subject.model.tokenizer)
        entry = self.subject.entry(self.rt, EntryType.READ, text, tokens, self._started)
        return replace(entry, details=replace(entry.details, found_nothing=self.found_nothing))
