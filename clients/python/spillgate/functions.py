"""Plain functions as tools: `governed` bounds what one returns, `governed_tools` what those of a dict
return."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, overload

from spillgate.client import AsyncSpillgate, Spillgate
from spillgate.exchange import TOOL_NAMES, Governed

P = ParamSpec("P")
Client = Spillgate | AsyncSpillgate
Function = Callable[..., Any]


@overload
def governed(function: Callable[P, Any], /) -> Callable[P, Any]: ...


@overload
def governed(
    *, client: Client | None = None, tool_name: str = ""
) -> Callable[[Callable[P, Any]], Callable[P, Any]]: ...


def governed(
    function: Function | None = None, /, *, client: Client | None = None, tool_name: str = ""
) -> Any:
    """`@governed` or `@governed(client=…, tool_name=…)`: the function gets the text of each stored result
    that its arguments refer to, and returns what it returned if that passed, else the text for the model.
    Without a client it is one of the environment's. An asynchronous function needs an AsyncSpillgate."""
    if function is None:
        return functools.partial(_governed, client=client, tool_name=tool_name)
    return _governed(function, client, tool_name)


def governed_tools(functions: Mapping[str, Function], *, client: Client | None = None) -> dict[str, Function]:
    """The same functions, governed with their keys as names, and Spillgate's own tools beside them: one
    lookup by name executes every call of the model, and `client.tools()` says which to offer. All
    functions are asynchronous, or none is."""
    caller = client or _default(any(map(inspect.iscoroutinefunction, functions.values())))
    wrapped = {name: _governed(one, caller, name) for name, one in functions.items()}
    return wrapped | {name: _own_tool(caller, name) for name in TOOL_NAMES}


def _governed(function: Function, client: Client | None, tool_name: str) -> Function:
    name = tool_name or function.__name__
    waits = inspect.iscoroutinefunction(function)
    caller = client or _default(waits)
    if waits != isinstance(caller, AsyncSpillgate):
        raise TypeError(f"`{name}`: an asynchronous function takes an AsyncSpillgate, any other a Spillgate.")

    @functools.wraps(function)
    def synchronous(*args: Any, **kwargs: Any) -> Any:
        assert isinstance(caller, Spillgate)
        resolved = caller.resolve([list(args), kwargs], name)
        if resolved.refusal:
            return resolved.refusal
        result = function(*resolved.arguments[0], **resolved.arguments[1])
        arguments = _arguments(function, args, kwargs)
        shown = caller.govern(name, None, result, arguments=arguments, passes_on="any")
        return _returned(result, shown)

    @functools.wraps(function)
    async def asynchronous(*args: Any, **kwargs: Any) -> Any:
        assert isinstance(caller, AsyncSpillgate)
        resolved = await caller.resolve([list(args), kwargs], name)
        if resolved.refusal:
            return resolved.refusal
        result = await function(*resolved.arguments[0], **resolved.arguments[1])
        arguments = _arguments(function, args, kwargs)
        shown = await caller.govern(name, None, result, arguments=arguments, passes_on="any")
        return _returned(result, shown)

    return asynchronous if waits else synchronous


def _own_tool(caller: Client, name: str) -> Function:
    """A function of one of Spillgate's tools. Called as the model calls it, by name."""

    def synchronous(**arguments: Any) -> Any:
        return caller.call(name, arguments)

    async def asynchronous(**arguments: Any) -> str:
        assert isinstance(caller, AsyncSpillgate)
        return await caller.call(name, arguments)

    return asynchronous if isinstance(caller, AsyncSpillgate) else synchronous


@functools.cache
def _default(waits: bool) -> Client:
    """One for all functions that name none, so that they share connections."""
    return AsyncSpillgate() if waits else Spillgate()


def _returned(result: Any, shown: Governed) -> Any:
    return result if shown.complete else shown.content


def _arguments(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return dict(inspect.signature(function).bind(*args, **kwargs).arguments)
