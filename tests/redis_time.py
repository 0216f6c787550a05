"""The time of a redis-server as a test sets it: scripts read a clock of the test in place of TIME."""

from collections.abc import Callable
from functools import cache

import pytest

from storage.redis import connection

_TIME = """local redis = setmetatable({{ call = function(command, ...)
  if command == 'TIME' then
    return {{ '{seconds}', '{microseconds}' }}
  end
  return redis.call(command, ...)
end }}, {{ __index = redis }})
"""


def tell_scripts_the_time(monkeypatch: pytest.MonkeyPatch, clock: Callable[[], int]) -> None:
    """`clock` returns Unix ms."""
    source_of = connection.script_source

    def source(name: str) -> tuple[str, str]:
        seconds, rest = divmod(clock(), 1000)
        return _with_time(source_of(name)[0], seconds, rest * 1000)

    monkeypatch.setattr(connection, "script_source", source)


@cache
def _with_time(source: str, seconds: int, microseconds: int) -> tuple[str, str]:
    return connection.named(_TIME.format(seconds=seconds, microseconds=microseconds) + source)
