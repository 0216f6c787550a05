"""Source text parsed in a process apart: hostile text makes grammars crash and swell."""

import atexit
import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from content.grammars import Grammar

_SCRIPT = Path(__file__).with_name("parser_child.py")
# Secrets of the service stay out of a process that reads hostile text.
_ENVIRONMENT = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")
# The child's own bound is processor time; this one is for a machine that gives it none.
_SECONDS = 10.0
# Ordinary source takes a tenth of it: whoever waits longer waits behind hostile ones.
_PATIENCE_SECONDS = 0.5


class Found(NamedTuple):
    """First byte and end of the name, end of the definition; rows count from 0."""

    keyword: str
    start: int
    name_end: int
    end: int
    row: int
    last: int


@dataclass(frozen=True, slots=True)
class Parsed:
    """`broken`: the text does not follow its grammar, and something may be missing. In no order."""

    broken: bool
    found: list[Found]


class Parser:
    """One child for all threads, started when first asked and again after its death. It may take a quarter of
    a second of processor time; threads wait half a second for their turn. Nothing is held of the interpreter
    meanwhile."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def definitions(self, grammar: Grammar, text: bytes) -> Parsed | None:
        """None: it could not be parsed within its bounds, or its turn did not come."""
        asked = json.dumps((grammar.module, grammar.function, grammar.query, grammar.names)).encode()
        if not self._turn.acquire(timeout=_PATIENCE_SECONDS):
            return None
        try:
            broken, found = json.loads(self._answer(asked, text))
            return Parsed(broken, [Found(*definition) for definition in found])
        except (OSError, EOFError, ValueError):
            self._end()
            return None
        finally:
            self._turn.release()

    def close(self) -> None:
        with self._turn:
            self._end()

    def _answer(self, *frames: bytes) -> bytes:
        stdin, stdout = self._pipes()
        for frame in frames:
            stdin.write(len(frame).to_bytes(4) + frame)
        stdin.flush()
        ready = select.poll()
        ready.register(stdout, select.POLLIN)
        if not ready.poll(_SECONDS * 1000):
            raise EOFError
        size = int.from_bytes(stdout.read(4))
        answer = stdout.read(size)
        if not answer or len(answer) < size:
            raise EOFError
        return answer

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        if self._child is None or self._child.poll() is not None:
            self._end()
            self._child = subprocess.Popen(  # noqa: S603 - our own script
                [sys.executable, "-P", str(_SCRIPT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            )
        assert self._child.stdin
        assert self._child.stdout
        return self._child.stdin, self._child.stdout

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            # What a dead child has not read cannot be flushed.
            with contextlib.suppress(OSError):
                if pipe:
                    pipe.close()


PARSER = Parser()
atexit.register(PARSER.close)
