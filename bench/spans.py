"""What a span costs a request on the event loop: while none are exported, and while they are."""

import time
from collections.abc import Awaitable, Callable, Sequence
from statistics import median

import anyio
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from app.operations.spans import Tracer
from app.operations.telemetry import Metrics
from app.operations.tracing import GOVERN, note_governed
from domain.budget import Budget
from domain.decisions import Outcome, OutcomeKind, Trigger
from domain.handles import SessionKey, new_handle
from domain.results import Durability, Measure, ToolResult

TIMES = 10_000
ROUNDS = 9
_TRACEPARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_KEY = SessionKey("default", "session-1")
_RESULT = ToolResult(_KEY, "execute_shell", "call_8d1f")
_OUTCOME = Outcome(
    OutcomeKind.STORE,
    "text",
    Trigger.SIZE_CAP,
    new_handle(_KEY, 0, "call_8d1f", "0" * 64),
    Measure(200_000, 5000, 200_000, 50_000, True),
    Budget(100_000, 1000, 0, True),
    "entry-1",
    durability=Durability.DISK,
)


class _Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


class _Body:
    status = 201


async def _microseconds(request: Callable[[], Awaitable[None]]) -> float:
    """Processor time for one request: the median of the rounds."""
    rounds = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        for _ in range(TIMES):
            await request()
        rounds.append((time.thread_time() - began) / TIMES * 1_000_000)
    return median(rounds)


async def measured() -> dict[str, float]:
    """Microseconds of the event loop's thread that a request has to spend on its span."""
    tracer = Tracer(BatchSpanProcessor(_Nowhere()), Metrics())

    async def bare(scope: object = None, receive: object = None, send: object = None) -> None:
        pass

    async def off(scope: object = None, receive: object = None, send: object = None) -> None:
        note_governed(_RESULT, _OUTCOME, 100)

    async def on() -> None:
        scope = {"headers": [(b"host", b"localhost"), (b"traceparent", _TRACEPARENT)], "request_body": _Body}
        await tracer.serve(off, GOVERN, "/results", scope, None, None)  # type: ignore[arg-type]

    without = await _microseconds(bare)
    found = {"off": await _microseconds(off) - without, "on": await _microseconds(on) - without}
    tracer.close()
    return found


def main() -> None:
    found = anyio.run(measured)
    print("| spans | µs of a request |\n|---|---|")
    for name, microseconds in found.items():
        print(f"| {name} | {microseconds:.2f} |")


if __name__ == "__main__":
    main()
