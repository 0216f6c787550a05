"""Compares an instruction with passages by an embedding model. If that fails, words alone rank them."""

from array import array
from collections.abc import Sequence
from functools import partial

import anyio
from anyio.to_thread import run_sync

from domain.errors import (
    ContextExceeded,
    ModelBadReply,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    PromptRefused,
)
from domain.llm import Message, Prompt, Role
from extraction.passage_index import Likeness, PassageIndex, Vectors
from extraction.reports import gather
from extraction.retrieve.question import parse
from extraction.task import DEADLINE_PASSED, Asking, Task

MOST_PASSAGES = 2000
"""The most passages that one question compares. Of more, the best by words and an even sample."""

BEST_BY_WORDS = 200

MOST_TEXTS = 32
"""The most passages in one request: what common servers accept by default."""

_TEXT_BYTES = 2000
_INSTRUCTION_CHARS = 2000
_AT_A_TIME = 4

_MOST_SECONDS = 12.0
"""The longest time that an answer waits for embeddings. It is longer than the silence after which a model is
left alone."""

_TIME_SHARE = 0.5

_FEW_CALLS = "the session's cap of model calls is too small"
_WARNING = "passages were ranked by words alone ({})"


async def compare(task: Task, index: PassageIndex, data: bytes) -> tuple[Likeness | None, tuple[str, ...]]:
    """Returns the likeness and warnings for the caller. The likeness is None without an embedding model, or
    if the model fails. Vectors are kept with the index, so that the next question does not pay for them
    again."""
    if task.embedder is None or not task.extract.strip():
        return None, ()
    now = anyio.current_time()
    ends = now + min(_MOST_SECONDS, _TIME_SHARE * max(0.0, task.ends - now))
    embedding = _Embedding(task, task.embedder, index, data, ends)
    try:
        return await embedding.likeness(), ()
    except ModelError as error:
        return None, (_WARNING.format(error.detail),)
    finally:
        task.indexes.trim()


class _Embedding:
    """The embeddings that one question needs."""

    def __init__(self, task: Task, asking: Asking, index: PassageIndex, data: bytes, ends: float) -> None:
        self._asking = asking
        self._index = index
        self._data = data
        self._ends = ends
        self._instruction = task.extract[:_INSTRUCTION_CHARS]
        self._run = partial(run_sync, abandon_on_cancel=True, limiter=task.indexes.threads)

    async def likeness(self) -> Likeness | None:
        """Raises ModelError."""
        vectors = self._index.vectors
        try:
            with anyio.fail_after(max(0.0, self._ends - anyio.current_time())):
                await vectors.lock.acquire()
        except TimeoutError:
            raise ModelUnavailable(DEADLINE_PASSED) from None
        try:
            numbers, missing = await self._run(self._chosen)
            vectors.forget_all_but(numbers)
            self._check_calls(len(missing))
            vector = await self._of_instruction(vectors)
            await self._add(vectors, len(vector), missing)
            # Another question may put vectors of another length in their place.
            return await self._run(vectors.likeness, vector, numbers)
        finally:
            vectors.lock.release()

    def _check_calls(self, passages: int) -> None:
        """Raises ModelRefused if the session's cap of calls is too small: then nothing is paid for."""
        left = self._asking.calls_left
        if left is not None and left < 1 + -(-passages // MOST_TEXTS):
            raise ModelRefused(_FEW_CALLS)

    async def _of_instruction(self, vectors: Vectors) -> "array[float]":
        vector = vectors.of_instruction(self._instruction)
        if vector is None:
            # The instruction goes alone and first: one short text shows whether the model answers.
            (vector,) = await self._embedded([self._instruction])
            vectors.keep_instruction(self._instruction, vector)
        return vector

    def _chosen(self) -> tuple[Sequence[int], list[tuple[int, str]]]:
        """The numbers of the passages to compare, and the texts of those that have no vector yet."""
        index, vectors = self._index, self._index.vectors.of_passages
        count = len(index.passages)
        numbers: Sequence[int] = range(count)
        if count > MOST_PASSAGES:
            sample = MOST_PASSAGES - BEST_BY_WORDS
            words = index.rank(parse(self._instruction).phrases, BEST_BY_WORDS)
            numbers = sorted({*words, *(part * count // sample for part in range(sample))})
        texts = ((number, self._text(number)) for number in numbers if number not in vectors)
        # Backends refuse a text of white space.
        return numbers, [(number, text) for number, text in texts if text.strip()]

    def _text(self, number: int) -> str:
        passage = self._index.passages[number]
        body = self._data[passage.start : min(passage.end, passage.start + _TEXT_BYTES)]
        return f"{passage.path}\n{body.decode('utf-8', 'ignore')}".lstrip()

    async def _add(self, vectors: Vectors, dimensions: int, missing: Sequence[tuple[int, str]]) -> None:
        """Embeds the passages, a few requests at a time. Vectors that came before a failure are kept."""
        batches = iter([missing[at : at + MOST_TEXTS] for at in range(0, len(missing), MOST_TEXTS)])

        async def work() -> None:
            for batch in batches:
                embeddings = await self._embedded([text for _, text in batch])
                if any(len(one) != dimensions for one in embeddings):
                    raise ModelBadReply("the embeddings have a wrong number of dimensions")
                vectors.of_passages.update(zip((number for number, _ in batch), embeddings, strict=True))

        await gather([work] * _AT_A_TIME)

    async def _embedded(self, texts: Sequence[str]) -> "Sequence[array[float]]":
        """Raises ModelError. Halves a request that is refused: some backends accept fewer texts at a time."""
        prompt = Prompt(tuple(Message(Role.USER, text) for text in texts), 0)
        try:
            return (await self._asking.ask(prompt, max(0.0, self._ends - anyio.current_time()))).vectors
        except (PromptRefused, ContextExceeded):
            if len(texts) == 1:
                raise
            half = len(texts) // 2
            return [*await self._embedded(texts[:half]), *await self._embedded(texts[half:])]
