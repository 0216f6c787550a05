"""Checks the types of Redis replies: a server that is not Redis, or is damaged, may answer anything."""

from collections.abc import Callable, Sequence
from typing import Any

ReplyCheck = Callable[[Any], bool]


def _is_text(reply: Any) -> bool:
    return isinstance(reply, bytes)


def _is_number(reply: Any) -> bool:
    return isinstance(reply, int | float)


def _is_digits(reply: Any) -> bool:
    return isinstance(reply, bytes) and reply.isdigit()


def _or_none(shape: ReplyCheck) -> ReplyCheck:
    return lambda reply: reply is None or shape(reply)


def _each(shape: ReplyCheck) -> ReplyCheck:
    return lambda reply: isinstance(reply, list | tuple) and all(map(shape, reply))


def _row(*shapes: ReplyCheck) -> ReplyCheck:
    return lambda reply: (
        isinstance(reply, list | tuple)
        and len(reply) == len(shapes)
        and all(shape(one) for shape, one in zip(shapes, reply, strict=True))
    )


def _either(*shapes: ReplyCheck) -> ReplyCheck:
    return lambda reply: any(shape(reply) for shape in shapes)


def _is_hash(reply: Any) -> bool:
    return isinstance(reply, dict) or (_each(_is_text)(reply) and len(reply) % 2 == 0)


_none = _row()
_texts = _each(_is_text)
_stream = _each(_row(_is_text, _either(lambda fields: isinstance(fields, dict), _or_none(_is_hash))))
_COMMANDS: dict[str, ReplyCheck] = {
    "GET": _or_none(_is_text),
    "HGET": _or_none(_is_text),
    "HGETALL": _is_hash,
    "HKEYS": _texts,
    "HMGET": _each(_or_none(_is_text)),
    "PEXPIRE": _is_number,
    "SCAN": _row(_either(_is_number, _is_digits), _texts),
    "TIME": _row(_either(_is_number, _is_digits), _either(_is_number, _is_digits)),
    "UNLINK": _is_number,
    "XLEN": _is_number,
    "XRANGE": _stream,
    "XREVRANGE": _stream,
    "ZCARD": _is_number,
    "ZCOUNT": _is_number,
    "ZRANGE": _texts,
    "ZRANGEBYLEX": _texts,
    "ZRANGEBYSCORE": _each(_is_digits),
    "ZSCORE": _or_none(_is_number),
}
_SCRIPTS: dict[str, ReplyCheck] = {
    "find": _either(_none, _row(_is_text, _or_none(_is_text))),
    "leave": _row(_is_number, _is_number),
    "publish": _row(_is_number, _is_text, _is_text),
    "remove": lambda reply: _texts(reply) and len(reply) % 2 == 0,
    "roll": _row(_is_number, _is_number),
    "session": _or_none(_is_text),
    "sweep": _row(_is_number, _is_number, _is_text, _is_text, _texts),
    "touch": _either(_none, _row(_is_number, _is_text)),
}


def is_expected(command: Sequence[Any], reply: Any) -> bool:
    """Whether the reply has the type that the command has. `command` begins with the name of the command, or
    of a script."""
    name = str(command[0])
    shape = _COMMANDS.get(name) or _SCRIPTS.get(name)
    if name == "HMGET" and isinstance(reply, list) and len(reply) != len(command) - 2:
        return False
    return shape is None or shape(reply)
