"""The time of the process: it runs steadily, and follows the clock that it shares with other processes.

The reference is the clock of Redis or PostgreSQL if the store or the ledger is there, otherwise that of this
machine.
A reference that jumps by more than a minute is not followed, and nothing is swept, until an operator confirms
it: what looks expired may only look so.
"""

import logging
import time
from contextlib import suppress

import anyio

from app.operations.clock_file import ClockFile, KeptClock, boot_id
from domain.errors import StorageError
from domain.ports import Clock, SharedClock

JUMP_MS = 60_000
"""A reference that differs by more from what was expected of it has jumped. A machine whose clock differs by
more from the reference is not ready."""

WARNED_MS = 5_000
"""A machine whose clock differs by more from the reference has a warning."""

LOOK_SECONDS = 1.0
SETTLED_SECONDS = 5.0
"""A process that goes by a shared clock sweeps nothing before it has seen it run for so long: if the clock
has jumped, the processes that have seen it jump note that within a second."""

STALE_SECONDS = 10.0
"""It does not sweep either if it has not seen the shared clock for this time."""

MOST_OFF_MS = 31 * 86_400_000
"""The longest time that a machine may have been off before a restart. A clock that shows more has jumped."""

RESTARTED_SECONDS = 600.0
"""Nothing is swept for so long after a start that does not know how long the machine was off: within that
time machines that set their clock by the network have done so, and a jump is seen."""

KEEP_SECONDS = 60.0

_CONFIRM = (
    "Nothing is deleted until an operator has checked the clock and confirms it with POST /clock/confirm: "
    "see docs/operations.md, Clocks."
)

log = logging.getLogger("spillgate.clock")


_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Nothing sets it, and it runs while the machine sleeps: on Linux the first, on macOS the second."""


def system_clock() -> int:
    return time.time_ns() // 1_000_000


def _uptime_ms() -> int:
    return time.clock_gettime_ns(_UPTIME) // 1_000_000


class SteadyClock:
    """Unix ms. Runs with the monotonic clock: a step of the machine's clock does not change it."""

    def __init__(self, now: int | None = None) -> None:
        self.set(system_clock() if now is None else now)

    def __call__(self) -> int:
        return self._ahead + _uptime_ms()

    def set(self, now: int) -> None:
        self._ahead = now - _uptime_ms()


class ClockWatch:
    """Compares the clocks once a second. `machine` is the clock of this machine."""

    def __init__(
        self,
        clock: SteadyClock,
        shared: SharedClock | None = None,
        machine: Clock = system_clock,
        file: ClockFile | None = None,
    ) -> None:
        """`file`: what the process before knew of the machine's clock, and what the next one is to know."""
        self._clock = clock
        self._shared = shared
        self._machine = machine
        self._file = file if shared is None else None
        self._kept_at = self._sweeps_from = float("-inf")
        if self._file is not None and (kept := self._file.read()) is not None:
            self._go_on(kept)
        self._expected: dict[str, SteadyClock] = {}
        self._first_seen = self._last_seen = 0.0
        self.offset_ms = 0
        """How much the machine's clock is ahead of the reference."""
        self.jump_ms = 0
        """By how much the reference has jumped, forward or back (below 0), without a confirmation; 0: it has
        not."""

    @property
    def now(self) -> int:
        return self._clock()

    @property
    def reference(self) -> str:
        return "machine" if self._shared is None else self._shared.software.lower()

    @property
    def may_sweep(self) -> bool:
        if self.jump_ms or self.fault:
            return False
        now = time.monotonic()
        if self._shared is None:
            return now >= self._sweeps_from
        is_settled = self._first_seen and now - self._first_seen >= SETTLED_SECONDS
        return bool(is_settled) and now - self._last_seen < STALE_SECONDS

    @property
    def fault(self) -> str:
        """Why this process is not ready; empty if it is ready."""
        if self._shared is None or abs(self.offset_ms) <= JUMP_MS:
            return ""
        return f"{self._difference()} Until both agree within a minute it is not ready, and deletes nothing."

    @property
    def warnings(self) -> tuple[str, ...]:
        warnings = []
        if self.jump_ms:
            whose = "this machine" if self._shared is None else self._shared.software
            warnings.append(f"The clock of {whose} jumped by {_shown(self.jump_ms)}. {_CONFIRM}")
        if self._shared is not None and abs(self.offset_ms) > WARNED_MS:
            warnings.append(self.fault or self._difference())
        return tuple(warnings)

    def _difference(self) -> str:
        where = "ahead of" if self.offset_ms > 0 else "behind"
        whose = "" if self._shared is None else self._shared.software
        return (
            f"The clock of this machine is {_shown(abs(self.offset_ms), '')} {where} that of {whose}: set it."
        )

    async def look(self) -> None:
        """Raises StorageError if the shared clock cannot be read."""
        if self._shared is None:
            self._look_at_machine()
        else:
            await self._look_at(self._shared)

    def _look_at_machine(self) -> None:
        now = self._machine()
        self.offset_ms = now - self._clock()
        self.jump_ms = self.offset_ms if abs(self.offset_ms) > JUMP_MS else 0
        if not self.jump_ms:
            self._clock.set(now)
        if time.monotonic() >= self._kept_at + KEEP_SECONDS:
            self.keep()

    def _go_on(self, kept: KeptClock) -> None:
        """Continues the time of the process before. What `look` then finds between it and the machine's clock
        is a jump."""
        passed = _uptime_ms() - kept.uptime
        if kept.boot and kept.boot == boot_id() and passed >= 0:
            self._clock.set(kept.now + passed)
            return
        self._sweeps_from = time.monotonic() + RESTARTED_SECONDS
        if kept.jump or not -JUMP_MS <= self._machine() - kept.now <= MOST_OFF_MS:
            self._clock.set(kept.now)

    def keep(self) -> None:
        """Writes down what the next process is to know."""
        if self._file is not None:
            self._kept_at = time.monotonic()
            self._file.write(KeptClock(boot_id(), _uptime_ms(), self._clock(), self.jump_ms))

    async def _look_at(self, shared: SharedClock) -> None:
        began = time.monotonic()
        reading = await shared.read()
        ended = time.monotonic()
        # A server read its clock at some moment during the request.
        half = int((ended - began) * 500)
        times = {name: at + half for name, at in reading.times.items()}
        jumps = [self._jump_of(name, at, half) for name, at in times.items()]
        now = sorted(times.values())[len(times) // 2]
        self.offset_ms = self._machine() - now
        is_confirmed = self.jump_ms and not reading.jump_ms
        jump = reading.jump_ms or (0 if is_confirmed else max(jumps, key=abs))
        if jump and not reading.jump_ms:
            await shared.note_jump(jump)
        self.jump_ms = jump
        if not (jump and self._expected):
            self._follow(now, half)
            self._expected = {name: SteadyClock(at) for name, at in times.items()}
        self._first_seen = self._first_seen or ended
        self._last_seen = ended

    def _follow(self, now: int, half: int) -> None:
        """Leaves a difference that the round trip of `half` milliseconds to each side may explain."""
        if not self._expected or abs(self._clock() - now) > half:
            self._clock.set(now)

    def _jump_of(self, name: str, now: int, half: int) -> int:
        if not self._expected:
            return 0
        difference = now - self._expected.get(name, self._clock)()
        return difference if abs(difference) > JUMP_MS + half else 0

    async def confirm(self) -> int:
        """Accepts a jump. Returns by how much the reference had jumped, 0 if it had not. Raises
        StorageError."""
        await self.look()
        jump = self.jump_ms
        if jump:
            if self._shared is None:
                self._clock.set(self._machine())
            else:
                await self._shared.confirm()
            log.info("A jump of the clock by %s was confirmed.", _shown(jump))
            await self.look()
            self.keep()
        return jump


async def watch_clock(watch: ClockWatch) -> None:
    """Logs are written by the checks of readiness, which log each warning once."""
    while True:
        with suppress(StorageError):
            await watch.look()
        await anyio.sleep(LOOK_SECONDS)


def _shown(ms: int, sign: str = "+") -> str:
    """Formats a span of time, such as `+5 h 0 min` or `-12 s`."""
    seconds = round(abs(ms) / 1000)
    sign = "-" if ms < 0 else sign
    for size, unit, less, name in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            return f"{sign}{seconds // size} {unit} {seconds % size // less} {name}"
    return f"{sign}{seconds} s"
