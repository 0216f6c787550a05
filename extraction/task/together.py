"""Calls made at the same time, as one."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

from domain.errors import ModelError, SpillgateError

T = TypeVar("T")


async def together(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Their results, in order. The first error that is raised on purpose ends the others, and is raised;
    nothing is left running, however this ends."""
    results: dict[int, T] = {}
    errors: list[SpillgateError | ModelError] = []

    async def run(index: int, call: Callable[[], Awaitable[T]]) -> None:
        try:
            results[index] = await call()
        except (SpillgateError, ModelError) as error:
            errors.append(error)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for index, call in enumerate(calls):
            group.start_soon(run, index, call)
    if errors:
        raise errors[0]
    return [results[index] for index in range(len(calls))]
