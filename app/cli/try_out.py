"""`try`: what the model would read of one result under each outcome, as the service governs it."""

import argparse
import asyncio
import json
import logging
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import IO

from app.cli.options import settings_of
from app.files import why_unreadable
from app.governing.governor import govern
from app.runtime import Runtime, open_runtime
from app.settings import Settings
from domain.errors import ConfigError, SpillgateError
from domain.handles import SessionKey
from domain.outcomes import Outcome, OutcomeKind
from domain.results import ToolResult
from machine.tables import table
from policies.documents import Profile
from policies.outcomes import OUTCOMES

_PIECE_BYTES = 1 << 18
_HEADS = ("outcome", "became", "trigger", "bytes", "tokens", "saved")


@dataclass(frozen=True, slots=True)
class Trial:
    """`tried` is the outcome that the policy was made to name, `chosen` whether it names it by itself. `text`
    is what the model would read, None for the result byte for byte; `tokens` are those of what it reads."""

    tried: OutcomeKind
    chosen: bool
    outcome: Outcome
    text: str | None
    tokens: int

    @property
    def row(self) -> tuple[str, ...]:
        measure = self.outcome.measure
        size = measure.bytes if self.text is None else len(self.text.encode())
        saved = 1 - self.tokens / measure.tokens if measure.tokens else 0.0
        name = f"{self.tried}{' *' if self.chosen else ''}"
        return name, self.outcome.kind, self._why, f"{size:,}", f"{self.tokens:,}", f"{saved:.1%}"

    @property
    def _why(self) -> str:
        if self.outcome.trigger is not None:
            return self.outcome.trigger
        return "none" if self.text is None else "view caps"


def run(options: argparse.Namespace) -> int:
    """Prints the table and the texts that were requested. Returns 1 if the service refuses. Raises
    ConfigError."""
    for name, known in (("show", ("all", *OUTCOMES)), ("profile", tuple(Profile))):
        if getattr(options, name) not in (None, *known):
            raise ConfigError(f"--{name}: one of {', '.join(known)}.")
    # Log lines about these results are not about the service.
    logging.getLogger().addHandler(logging.NullHandler())
    result = _result(options)
    with _content(options.file) as source:
        try:
            trials = asyncio.run(try_out(settings_of(options), source, result))
        except SpillgateError as error:
            print(f"spillgate: {error.detail}", file=sys.stderr)
            return 1
        print(summary(result, trials))
        sys.stdout.writelines(texts(trials, options.show, source))
    return 0


def _result(options: argparse.Namespace) -> ToolResult:
    """Returns a result with the arguments of a tool that reads this file."""
    piped = options.file == "-"
    return ToolResult(
        SessionKey("trial", "try"),
        options.tool or ("execute_shell" if piped else "read_file"),
        tool_arguments=options.arguments or (None if piped else json.dumps({"path": options.file})),
        model=options.model,
        policy=json.dumps({"profile": options.profile}) if options.profile else None,
    )


@contextmanager
def _content(path: str) -> Iterator[IO[bytes]]:
    """The file, opened to be read more than once: a pipe is copied to a file first. Raises ConfigError."""
    with nullcontext(sys.stdin.buffer) if path == "-" else _opened(path) as given:
        if given.seekable():
            yield given
            return
        with tempfile.TemporaryFile() as spooled:
            shutil.copyfileobj(given, spooled)
            yield spooled


def _opened(path: str) -> IO[bytes]:
    try:
        return open(path, "rb")
    except OSError as error:
        raise ConfigError(f"FILE: {why_unreadable(error, path)}.") from None


async def try_out(settings: Settings, source: IO[bytes], result: ToolResult) -> list[Trial]:
    """A trial of every outcome, under the policy of the settings and the result. `source` holds the content,
    and is read once for each. Raises ConfigError, SpillgateError."""
    elsewhere = ("storage_", "store_", "ledger_", "llm_")
    here = {
        name: field.default for name, field in Settings.model_fields.items() if name.startswith(elsewhere)
    }
    here |= {"storage_url": "memory:", "allow_request_overrides": True}
    async with open_runtime(settings.model_copy(update=here)) as rt:
        return [await _tried(kind, source, result, rt) for kind in OUTCOMES]


async def _tried(kind: OutcomeKind, source: IO[bytes], result: ToolResult, rt: Runtime) -> Trial:
    own = json.loads(result.policy or "{}")
    forced = json.dumps({**own, "on_oversize": kind, "mode": "enforce"})
    key = SessionKey("trial", f"try-{kind}")
    source.seek(0)
    outcome = (await govern(replace(result, key=key, policy=forced), _pieces(source), rt)).outcome
    chosen = rt.policies.policy(result.tool_name, None, result.policy).on_oversize is kind
    await rt.store.delete_session(key, epoch=1)
    tokens = outcome.measure.tokens
    if outcome.text is not None:
        tokens = await rt.count(outcome.text, rt.known_models.tokenizer(result.model))
    return Trial(kind, chosen, outcome, outcome.text, tokens)


async def _pieces(source: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := source.read(_PIECE_BYTES):
        yield piece


def summary(result: ToolResult, trials: list[Trial]) -> str:
    """The table, above it what was measured, below it what its signs mean."""
    measure = trials[0].outcome.measure
    about = "" if measure.tokens_exact else "about "
    return (
        f"{result.tool_name}: {measure.bytes:,} bytes, {measure.lines:,} lines, "
        f"{measure.chars:,} characters, {about}{measure.tokens:,} tokens\n\n"
        f"{table((trial.row for trial in trials), _HEADS, indent='  ')}\n\n"
        "  * what the policy in force names. `became` differs where an outcome gives way to store."
    )


def texts(trials: list[Trial], shown: str, source: IO[bytes]) -> Iterator[str]:
    """What the model would read: of one outcome, or of all, each under its name."""
    for trial in trials:
        if shown in (trial.tried, "all"):
            yield f"\n──── {trial.tried} ────\n"
            if trial.text is None:
                source.seek(0)
                yield source.read().decode("utf-8")
            else:
                yield trial.text
            yield "\n"
