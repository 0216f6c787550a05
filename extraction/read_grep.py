"""read-grep: a model searches one stored result with two tools, Read and Grep."""

import codecs
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import msgspec

from content.grep import LINE_BYTES, Grep
from content.greppable import Found, Scan, Scanner, needs_view
from content.lines import Line, LinePage, LinePager
from content.model_text import Matches, fitting, fitting_matches
from content.text import cut_head
from content.threads import in_thread_if_long
from domain.errors import BadPattern, ContextExceeded
from domain.extraction import Answer, Coverage, ExtractStatus, Mode
from domain.llm import Message, Prompt, Reply, Role, ToolCall, ToolSpec
from extraction import prompts
from extraction.asked_bytes import AskedBytes
from extraction.prompts import fenced, new_nonce
from extraction.reports import Inquiry, Report, inquire
from extraction.task import (
    Progress,
    StrategyFailed,
    Task,
    cap_answer,
    data_tokens,
    input_tokens,
    output_tokens,
)

_BLOCK = 1 << 20

_LINES = 200
_MOST_LINES = 2000
_MATCHES = 100
_MOST_CONTEXT = 20
# The most bytes of matches with their context, before overlapping context is merged.
_SCANNED_BYTES = 1 << 18

# Bytes kept for the notes around the output of a call, and the least bytes of the output itself.
_FRAME_BYTES = 400
_LEAST_BYTES = 200

_VIEW = (
    "[The data stands on very long lines. This is a view of it with line breaks added; line numbers "
    "count in this view.]\n"
)
_CUT = " …[line cut: Grep shows the text around a match]"


class _ReadArguments(msgspec.Struct):
    offset: int | None = None
    limit: int | None = None


class _GrepArguments(msgspec.Struct):
    pattern: str
    context: int | None = None
    ignore_case: bool | None = None


class ReadGrepTools:
    """Answers each tool call with a text, even a wrong call. A text has at most `max_bytes`, and at most
    `max_tokens` as `count` counts them."""

    def __init__(
        self, asked: AskedBytes, *, max_bytes: int, max_tokens: int, count: Callable[[str], int], nonce: str
    ) -> None:
        self._asked = asked
        self._nonce = nonce
        self._max_bytes = max_bytes
        self._max_tokens = max(1, max_tokens)
        self._count = count
        measure = asked.stored.measure
        self._viewed = needs_view(measure.bytes, measure.lines)

    async def answer(self, call: ToolCall) -> str:
        arguments = call.arguments.strip() or "{}"
        try:
            match call.name:
                case "Read":
                    return await self._read(msgspec.json.decode(arguments, type=_ReadArguments, strict=False))
                case "Grep":
                    return await self._grep(msgspec.json.decode(arguments, type=_GrepArguments, strict=False))
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            return f"The arguments of {call.name} are wrong: {error}."
        except BadPattern as error:
            return error.detail
        return "There is no such tool. Use Read or Grep."

    async def _read(self, arguments: _ReadArguments) -> str:
        offset = max(1, arguments.offset or 1)
        limit = min(max(1, arguments.limit or _LINES), _MOST_LINES)
        pager = LinePager(offset, limit, self._max_bytes)
        page = await self._scan(pager)
        if not page.lines:
            return f"There is no line {offset}: the data has {page.total_lines} lines."
        return self._fitted(partial(_lines_text, page))

    async def _grep(self, arguments: _GrepArguments) -> str:
        if not arguments.pattern:
            return "The pattern is empty."
        context = min(max(0, arguments.context or 0), _MOST_CONTEXT)
        grep = Grep(
            arguments.pattern,
            context=context,
            ignore_case=bool(arguments.ignore_case),
            limit=_MATCHES,
            max_bytes=_SCANNED_BYTES,
        )
        page = await self._scan(grep)
        if not page.matches:
            return "No line matches."
        return self._fitted(
            partial(_matches_text, Matches(page.matches, page.total_matches, spans=grep.spans))
        )

    async def _scan(self, scanner: Scanner[Found]) -> Found:
        """What the scanner finds in the data; in its greppable view if the data has very long lines."""
        scanning = Scan(scanner, greppable=self._viewed)
        # Ranges may cut characters: the decoder drops incomplete ones.
        narrowed = self._asked.size != self._asked.stored.measure.bytes
        decoder = codecs.getincrementaldecoder("utf-8")("ignore") if narrowed else None

        def feed(block: bytes) -> None:
            scanning.feed(decoder.decode(block).encode() if decoder else block)

        for start in range(0, self._asked.size, _BLOCK):
            block = await self._asked.read(start, min(start + _BLOCK, self._asked.size))
            await in_thread_if_long(self._asked.size, feed, block)
        return await in_thread_if_long(self._asked.size, scanning.finish)

    def _fitted(self, render: Callable[[int], tuple[str, str]]) -> str:
        """Renders as much as the caps in bytes and tokens allow."""
        room = self._max_bytes - _FRAME_BYTES
        text = self._framed(*render(room))
        while room > _LEAST_BYTES and (excess := self._excess(text)) > 1:
            room = max(_LEAST_BYTES, int(room / excess * 0.98))
            text = self._framed(*render(room))
        return text

    def _excess(self, text: str) -> float:
        # A text grows when what looks like a fence in it is neutralised.
        return max(self._count(text) / self._max_tokens, len(text.encode()) / self._max_bytes)

    def _framed(self, text: str, note: str) -> str:
        return f"{_VIEW if self._viewed else ''}{fenced('data', text, self._nonce)}\n{note}"


def _lines_text(page: LinePage, room: int) -> tuple[str, str]:
    fitted = fitting([(line.number, f"{line.number}: {_shown(line)}") for line in page.lines], room)
    following = fitted.next or page.next_offset
    more = f"the next is line {following}" if following else "this is the end"
    return fitted.text, f"[{page.total_lines} lines in all; {more}.]"


def _shown(line: Line) -> str:
    data = line.text.encode()
    whole = len(data) <= LINE_BYTES and not line.truncated
    return line.text if whole else cut_head(data, LINE_BYTES).decode() + _CUT


def _matches_text(matches: Matches, room: int) -> tuple[str, str]:
    fitted = fitting_matches(matches, room)
    more = (
        "" if fitted.fitting == matches.total else f"; {fitted.fitting} of them are shown: narrow the pattern"
    )
    return fitted.text, f"[Matching lines: {matches.total}{more}.]"


NEEDS_MODEL = True

MAX_TURNS = 15
MAX_CALLS = 10

# One turn to look something up, one to report.
_LEAST_TURNS = 2

# Tool calls of one turn beyond MAX_CALLS are refused, and those beyond this number are ignored.
_MOST_CALLS = 2 * MAX_CALLS

# What the conversation keeps at most of a model's message: bytes of its text, characters of a call's name and
# arguments.
_SAID_BYTES = 16 * 1024
_NAME_CHARS = 100
_ARGUMENT_CHARS = 16 * 1024

_TOOL_BYTES = 16 * 1024
_TOOL_SHARE = 10

_TOOLS = (prompts.READ_TOOL, prompts.GREP_TOOL)
# The next turn is the last one if less time is left than this share of all the time, or than these seconds
# (at most half of the time).
_LAST_SHARE = 0.2
_LAST_SECONDS = 3.0

# Tokens that a message takes besides its text and calls.
_MESSAGE_TOKENS = 16


async def answer(task: Task) -> Answer:
    """Raises StrategyFailed, ModelError."""
    inquiry = await inquire(task)
    spans = task.asked.located(0, task.asked.size)
    key = inquiry.key("read-grep", spans, task.max_bytes)
    body = await inquiry.known(key)
    if not body:
        search = Dialogue(inquiry)
        task.progress(Progress("plan", {"strategy": Mode.READ_GREP, "turns": search.turns}))
        report = await search.report()
        await inquiry.keep(key, report)
        body = report.text
    whole = Answer(body, Mode.READ_GREP, ExtractStatus.COMPLETE, Coverage(1, 1, 1.0))
    return cap_answer(whole, task.max_bytes)


def _shortened(call: ToolCall) -> ToolCall:
    """Cuts long names and arguments. Read and Grep reject such a call in any case."""
    return replace(call, name=call.name[:_NAME_CHARS], arguments=call.arguments[:_ARGUMENT_CHARS])


class Dialogue:
    """The turns between one model and its two tools, kept within the model's window, the time, and the
    session's cap of calls."""

    def __init__(self, inquiry: Inquiry) -> None:
        """Raises StrategyFailed if the window or the cap is too small for a conversation."""
        calls = inquiry.asking.calls_left
        # With no call left the first one is refused, with the reason.
        self.turns = min(MAX_TURNS, calls) if calls else MAX_TURNS
        if self.turns < _LEAST_TURNS:
            raise StrategyFailed("the session's cap of model calls leaves one, and a search needs two")
        self._inquiry = inquiry
        self._nonce = new_nonce()
        self._messages: list[Message] = []
        self._sizes: list[int] = []
        self._total = sum(inquiry.asking.count(tool.description + tool.parameters) for tool in _TOOLS)
        self._room = input_tokens(inquiry.terms)
        self._tools = ReadGrepTools(
            inquiry.task.asked,
            max_bytes=_TOOL_BYTES,
            max_tokens=inquiry.terms.context_window // _TOOL_SHARE,
            count=inquiry.asking.count,
            nonce=self._nonce,
        )
        self._seconds = inquiry.task.seconds_left
        task = inquiry.task
        for message in prompts.read_grep_prompt(
            inquiry.document, task.extract, self._nonce, task.max_bytes, self.turns, MAX_CALLS
        ):
            self._add(message)
        self._opening = len(self._messages)
        last_turn = self._size(prompts.read_grep_last_turn(self._nonce))
        data_tokens(inquiry.terms, self._total + last_turn)

    async def report(self) -> Report:
        """Raises ModelError."""
        reply = await self._last_reply()
        # If the reply holds no report, the model is asked for one once more.
        again = sum(map(self._size, self._inquiry.asking_again(reply, self._nonce)))
        self._make_room(self._room - again)
        seconds = self._inquiry.task.seconds_left
        return await self._inquiry.report(tuple(self._messages), self._nonce, seconds, reply)

    async def _last_reply(self) -> Reply:
        for turn in range(1, self.turns):
            if self._is_late(turn - 1):
                break
            reply = await self._asked(_TOOLS)
            if not reply.tool_calls:
                return reply
            await self._call(reply)
            self._inquiry.task.progress(Progress("chunk", {"turn": turn, "calls": len(reply.tool_calls)}))
        self._add(prompts.read_grep_last_turn(self._nonce))
        return await self._asked(())

    def _is_late(self, turns: int) -> bool:
        left = self._inquiry.task.seconds_left
        # Time for one more turn of the mean length, and for as long a last turn.
        needed = 2 * (self._seconds - left) / max(1, turns)
        return left < max(_LAST_SHARE * self._seconds, min(_LAST_SECONDS, self._seconds / 2), needed)

    async def _asked(self, tools: tuple[ToolSpec, ...]) -> Reply:
        inquiry = self._inquiry
        self._make_room(self._room)
        while True:
            try:
                prompt = Prompt(tuple(self._messages), output_tokens(inquiry.terms), tools)
                return await inquiry.asking.ask(prompt, inquiry.task.seconds_left)
            except ContextExceeded:
                # The backend counts more tokens than our tokenizer does.
                self._room //= 2
                if not (self._drop_answers(0, len(self._messages)) or self._drop_turns(0, keep=0)):
                    raise

    async def _call(self, reply: Reply) -> None:
        calls = tuple(map(_shortened, reply.tool_calls[:_MOST_CALLS]))
        said = cut_head(reply.text.encode(errors="replace"), _SAID_BYTES).decode()
        self._add(Message(Role.ASSISTANT, said, calls))
        for index, call in enumerate(calls):
            text = await self._tools.answer(call) if index < MAX_CALLS else prompts.too_many(MAX_CALLS)
            self._add(Message(Role.TOOL, text, tool_call_id=call.id))

    def _add(self, message: Message) -> None:
        self._messages.append(message)
        self._sizes.append(self._size(message))
        self._total += self._sizes[-1]

    def _size(self, message: Message) -> int:
        calls = "".join(call.name + call.arguments for call in message.tool_calls)
        return self._inquiry.asking.count(message.content + calls) + _MESSAGE_TOKENS

    def _make_room(self, room: int) -> None:
        """Shortens the conversation to `room` tokens: drops the text of old tool answers, then whole old
        turns, and only then the same of the newest turn. What always remains, the opening and the last
        message, fits every window: see __init__."""
        for keep in (1, 0):
            starts = self._turn_starts()
            self._drop_answers(room, starts[-1] if keep and starts else len(self._messages))
            self._drop_turns(room, keep)

    def _turn_starts(self) -> list[int]:
        return [index for index, one in enumerate(self._messages) if one.role is Role.ASSISTANT]

    def _drop_answers(self, room: int, end: int) -> bool:
        """Drops tool answers before the message `end`, oldest first, until the conversation has `room`
        tokens. Returns whether any were dropped."""
        before = self._total
        for index in range(self._opening, end):
            if self._total <= room:
                break
            message = self._messages[index]
            if message.role is Role.TOOL and message.content != prompts.DROPPED:
                self._messages[index] = replace(message, content=prompts.DROPPED)
                self._total -= self._sizes[index]
                self._sizes[index] = self._size(self._messages[index])
                self._total += self._sizes[index]
        return self._total < before

    def _drop_turns(self, room: int, keep: int) -> bool:
        """Drops whole turns, oldest first, until `room` tokens or `keep` turns are left. A turn is a message
        of the model and the tool answers that follow it. Returns whether any were dropped."""
        before = self._total
        while self._total > room and len(starts := self._turn_starts()) > keep:
            start = end = starts[0]
            while end == start or (end < len(self._messages) and self._messages[end].role is Role.TOOL):
                end += 1
            self._total -= sum(self._sizes[start:end])
            del self._messages[start:end], self._sizes[start:end]
        return self._total < before
