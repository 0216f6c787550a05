"""Asks a model for a report, and the next model if the report is missing, empty or cut; parses and keeps
it."""

import hashlib
import re
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import anyio
import anyio.to_thread
import msgspec

from content.kind import Kind
from content.source_text import SourceText
from content.text import cut_head, decode_part
from domain.errors import ContextExceeded, ModelBadReply, ModelError, SpillgateError, StorageError
from domain.extraction import ByteRange
from domain.llm import Message, ModelTerms, Prompt, Reply, Role
from extraction import prompts
from extraction.prompts import Document, closing
from extraction.task import Asking, StrategyFailed, Task, buffer_tokens, cap_text, marked_cut, output_tokens

T = TypeVar("T")

_HEAD_BYTES = 8 * 1024

# A backend may send more than the allowed tokens.
_MOST_BYTES_A_TOKEN = 8

# Runs of spaces are bounded, so that a reply of nothing but spaces takes no longer than any other.
_SPACES = r"\s{0,8}"
# Matches any nonce: compiling a pattern for each call would take longer than using it.
_NAME = r"ai-agent-([A-Za-z0-9]{1,64})-FINAL(?![\w-])"
_OPENING = re.compile(rf"<{_SPACES}{_NAME}[^<>]{{0,200}}>", re.IGNORECASE)
_CLOSING = re.compile(rf"<{_SPACES}/{_SPACES}{_NAME}", re.IGNORECASE)
_THOUGHT = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)\b", re.IGNORECASE)
_FENCES = ("```", "~~~")

_LOOKED_BACK = 80
"""Characters before a tag in which the beginning of its line is looked for."""

_SAYS_NOTHING = re.compile(r"(?:</?ai-agent-[^<>]*>?|[\s.…-])*")
_NO_REPORT = "the model gave no report"
_LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Report:
    """A model's report. `model` is its name, "" if unknown."""

    text: str
    model: str


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A task for models. `terms` are those of the first model at the start."""

    task: Task
    asking: Asking
    terms: ModelTerms
    document: Document
    kind: Kind

    async def read(self, start: int, end: int) -> str:
        return decode_part(await self.task.asked.read(start, end))

    def key(self, step: str, spans: Iterable[ByteRange], *more: object) -> str:
        """The key of a finding: a hash of all that the finding depends on."""
        facts = [
            step,
            str(self.task.asked.stored.handle),
            self.task.asked.stored.sha256,
            [(span.start, span.end) for span in spans],
            self.task.extract,
            self.terms.name,
            prompts.PROMPT_VERSION,
            *more,
        ]
        return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()

    async def known(self, key: str) -> str | None:
        with suppress(StorageError):
            return await self.task.findings.find(key)
        return None

    async def keep(self, key: str, report: Report) -> None:
        """Keeps the report if it is from the first model, which the key names."""
        if report.model in ("", self.terms.name):
            # Without the finding, the next question asks the model again.
            with suppress(StorageError):
                await self.task.findings.keep(key, report.text)

    async def report(
        self, messages: tuple[Message, ...], nonce: str, seconds: float, reply: Reply | None = None
    ) -> Report:
        """Asks for a report, or takes it from a first `reply` to the messages.

        A model whose reply has no report is asked once more. The next model is asked if the second reply has
        none either, or if a report is empty or was stopped by the limit of output tokens. A stopped report is
        used if there is no other. Raises ModelError.
        """
        ends = anyio.current_time() + seconds
        models: set[str] = set()
        stopped: Report | None = None
        while True:
            try:
                reply = reply or await self._ask(messages, ends, models)
                text = parse_report(reply.text, nonce)
                has_next = self.asking.has_model_without({*models, reply.model})
                if text is None and (reply.stop_reason != _LENGTH or not has_next):
                    reply = await self._ask((*messages, *self.asking_again(reply, nonce)), ends, models)
                    text = parse_report(reply.text, nonce)
            except ContextExceeded:
                # The prompt fits the first model. The window of a later model may be too small for it.
                if not models:
                    raise
                break
            except ModelError:
                if stopped is None:
                    raise
                break
            model, is_stopped = reply.model, reply.stop_reason == _LENGTH and not is_closed(reply.text, nonce)
            reply = None
            if text and not _SAYS_NOTHING.fullmatch(text):
                if not is_stopped:
                    return Report(cap_text(text, self._most_bytes), model)
                stopped = stopped or Report(marked_cut(text, self._most_bytes), model)
            models.add(model)
            if not self.asking.has_model_without(models):
                break
            if text is None:
                self.asking.leave_out(model, _NO_REPORT)
        if stopped is not None:
            return stopped
        raise ModelBadReply(_NO_REPORT if text is None else "the model's report was empty")

    def asking_again(self, reply: Reply, nonce: str) -> tuple[Message, ...]:
        """The reply, shortened to what the prompt's buffer holds, and the question for its report."""
        text = cut_head(reply.text.encode(errors="replace"), buffer_tokens(self.terms) // 2).decode()
        # Some backends refuse an empty message.
        messages = (Message(Role.ASSISTANT, text),) if text.strip() else ()
        return (*messages, prompts.ask_again(nonce))

    async def _ask(self, messages: tuple[Message, ...], ends: float, models: set[str]) -> Reply:
        seconds = max(0.0, ends - anyio.current_time())
        return await self.asking.ask(Prompt(messages, output_tokens(self.terms)), seconds, models)

    @property
    def _most_bytes(self) -> int:
        return _MOST_BYTES_A_TOKEN * output_tokens(self.terms)


async def inquire(task: Task) -> Inquiry:
    """Starts an inquiry. Raises StrategyFailed without a model."""
    if task.asking is None:
        raise StrategyFailed("no model is configured")
    stored = task.asked.stored
    head = await task.asked.read(0, min(_HEAD_BYTES, task.asked.size))
    text = SourceText(head, stored.tool_name, task.asked.path, total_bytes=task.asked.size)
    kind = text.format.kind
    excerpt = task.asked.size != stored.measure.bytes
    document = prompts.about(stored, kind, text.data, excerpt, task.asking.terms.context_window)
    return Inquiry(task, task.asking, task.asking.terms, document, kind)


async def gather(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Runs the calls concurrently and returns their results in order. The first ModelError or SpillgateError
    cancels the other calls and is raised."""
    results: dict[int, T] = {}
    errors: list[SpillgateError | ModelError] = []

    async def run(index: int, call: Callable[[], Awaitable[T]]) -> None:
        try:
            results[index] = await call()
        except (SpillgateError, ModelError) as error:
            # The frames of its traceback hold the prompt, and this list.
            errors.append(error.with_traceback(None))
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for index, call in enumerate(calls):
            group.start_soon(run, index, call)
    if errors:
        raise errors.pop(0)
    return [results[index] for index in range(len(calls))]


def parse_report(reply: str, nonce: str) -> str | None:
    """Returns the report, "" if it is empty, None if there is none. Tags are recognised in any letter case,
    with any spaces and attributes; those in a think block are ignored. Takes the last closed report that says
    something, else the last one without a closing tag. An opening tag that begins a line takes precedence
    over one inside a sentence."""
    found = _reports(reply, nonce)
    said = [one for one in found if not _SAYS_NOTHING.fullmatch(one.text)]
    ranked = sorted(said or found, key=lambda one: (one.is_closed, one.begins_line))
    return ranked[-1].text if ranked else None


class _Found(NamedTuple):
    """The text between two tags; up to the end of the reply, if it is not closed."""

    text: str
    is_closed: bool
    begins_line: bool


def _reports(reply: str, nonce: str) -> list[_Found]:
    """The text that each closing tag closes, in order, then the text that is still open at the end."""
    tags = sorted((*_tags(_OPENING, reply, nonce), *_tags(_CLOSING, reply, nonce)), key=re.Match.start)
    is_thought = _thoughts(reply)
    found: list[_Found] = []
    opening: re.Match[str] | None = None
    for tag in tags:
        if tag.re is _OPENING:
            if opening is None or is_thought(opening.end()) or _begins_line(tag) or not _begins_line(opening):
                opening = tag
        elif opening is not None:
            if not is_thought(tag.end()):
                text = _bare(reply[opening.end() : tag.start()])
                found.append(_Found(text, True, _begins_line(opening)))
            opening = None
    if opening is not None and not is_thought(opening.end()):
        text = _bare(_unclosed(reply[opening.end() :], reply[: opening.start()], closing(nonce)))
        found.append(_Found(text, False, _begins_line(opening)))
    return found


def _begins_line(tag: re.Match[str]) -> bool:
    """True if no words stand before the tag in its line: nothing, or another tag."""
    start = tag.start()
    before = tag.string[max(0, start - _LOOKED_BACK) : start].rpartition("\n")[2].rstrip()
    return not before or before.endswith(">")


def is_closed(reply: str, nonce: str) -> bool:
    """Whether the reply holds the closing tag of a report."""
    return bool(_tags(_CLOSING, reply, nonce))


def _tags(pattern: re.Pattern[str], reply: str, nonce: str) -> list[re.Match[str]]:
    return [tag for tag in pattern.finditer(reply) if tag[1].lower() == nonce.lower()]


def _thoughts(reply: str) -> Callable[[int], bool]:
    """Returns a function that tells whether a place is in a think block: after it, more blocks end than
    begin."""
    marks = list(_THOUGHT.finditer(reply))
    places, least = [mark.start() for mark in marks], [0] * (len(marks) + 1)
    for number in reversed(range(len(marks))):
        least[number] = (-1 if marks[number][1] else 1) + min(0, least[number + 1])
    return lambda place: least[bisect_left(places, place)] < 0


def _unclosed(report: str, before: str, tag: str) -> str:
    """Removes a partial closing tag, and the end of a code fence that began before the report."""
    cut = report.rfind("</")
    if cut >= 0 and tag.lower().startswith(report[cut:].strip().lower()):
        report = report[:cut]
    if before.rstrip().rpartition("\n")[2].startswith(_FENCES):
        report = report.rstrip().removesuffix("```").removesuffix("~~~")
    return report


def _bare(report: str) -> str:
    """Removes spaces and a code fence around the whole report."""
    report = report.strip()
    first, _, rest = report.partition("\n")
    body, _, last = rest.rpartition("\n")
    mark, info = first[:3], first[3:].strip()
    if mark in _FENCES and last.strip() == mark and mark not in body and (not info or info.isalnum()):
        return body.strip()
    return report
