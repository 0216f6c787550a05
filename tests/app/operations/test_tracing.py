"""Spans: what they say of each kind of request, whose trace they are in, and that no content is in them."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from app.cli.main import main
from app.main import create_app
from app.operations import spans
from app.operations.spans import SpanExport
from app.operations.telemetry import Metrics
from app.operations.tracing import trace_target
from app.runtime import open_runtime
from app.settings import Settings
from domain.errors import ConfigError
from tests.asgi import post_scope
from tests.collector import Collector
from tests.conftest import settings_of
from tests.extraction.backend import Backend, report
from tests.faults.service_process import SERVE, Service

pytestmark = pytest.mark.anyio

TRACE, CALLER = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
PARENT = {"traceparent": f"00-{TRACE:032x}-{CALLER:016x}-01", "tracestate": "vendor=1"}
MARK = "Zk9-never-in-a-span"
BIG = "".join(f"line {number} of {MARK}\n" for number in range(3000))
MCP = {"Accept": "application/json, text/event-stream"}


class Traced:
    """The service in this process, and the spans that it exported."""

    def __init__(self, client: httpx.AsyncClient, exporter: InMemorySpanExporter) -> None:
        self.client = client
        self._exporter = exporter

    def spans(self) -> list[ReadableSpan]:
        """Those that ended since the last call, in the order in which they ended."""
        found = list(self._exporter.get_finished_spans())
        self._exporter.clear()
        return found

    async def stored(self, **fields: Any) -> str:
        sent = {"session_id": "s", "tool_name": "journal", "content": BIG, **fields}
        handle = str((await self.client.post("/results", json=sent)).json()["handle"])
        self.spans()
        return handle


@asynccontextmanager
async def traced(**settings: Any) -> AsyncIterator[Traced]:
    given = settings_of(**{"storage_url": "memory:", **settings})
    exporter = InMemorySpanExporter()
    async with open_runtime(given) as opened:
        observer = SpanExport(SimpleSpanProcessor(exporter), opened.metrics)
        app = create_app(given, replace(opened, observer=observer))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        client = httpx.AsyncClient(transport=transport, base_url="http://localhost:8377")
        async with app.router.lifespan_context(app), client:
            yield Traced(client, exporter)


def attributes(span: ReadableSpan, *, of: str = "spillgate.") -> dict[str, Any]:
    return {name: value for name, value in (span.attributes or {}).items() if name.startswith(of)}


def assert_continues(span: ReadableSpan, kind: SpanKind = SpanKind.SERVER) -> None:
    """The span is a child of the caller's."""
    assert span.parent is not None
    assert span.context is not None
    assert (span.context.trace_id, span.parent.trace_id, span.parent.span_id) == (TRACE, TRACE, CALLER)
    assert span.context.trace_state.get("vendor") == "1"
    assert (span.kind, span.parent.is_remote) == (kind, True)


async def test_a_governed_result_is_a_span_of_its_callers_trace() -> None:
    async with traced() as service:
        sent = {"session_id": "s", "tool_name": "journal", "tool_call_id": "c1", "content": BIG}
        told = (await service.client.post("/results", json=sent, headers=PARENT)).json()
        (span,) = service.spans()
        assert_continues(span)
        assert span.name == "spillgate.govern"
        assert span.status.status_code is StatusCode.UNSET
        assert span.resource.attributes["service.name"] == "spillgate"
        assert 0 < (span.end_time or 0) - (span.start_time or 0) < 60e9
        measure = told["measure"]
        assert dict(span.attributes or {}) == {
            "gen_ai.tool.name": "journal",
            "gen_ai.tool.call.id": "c1",
            "gen_ai.conversation.id": "s",
            "http.route": "/results",
            "http.response.status_code": 201,
            "spillgate.outcome": "store",
            "spillgate.trigger": "size_cap",
            "spillgate.handle": told["handle"],
            "spillgate.bytes": len(BIG),
            "spillgate.tokens": measure["tokens"],
            "spillgate.tokens_exact": measure["tokens_exact"],
            "spillgate.tokens_saved": measure["tokens"]
            - (told["budget"]["used_tokens"] + told["budget"]["reserved_tokens"]),
            "spillgate.durability": "memory",
        }


async def test_a_result_that_passes_has_no_handle_and_what_remains_of_an_enforced_budget() -> None:
    async with traced(require_budget=True) as service:
        sent = {"tool_name": "t\ud800", "content": "small"}
        told = (await service.client.post("/results", content=json.dumps(sent))).json()
        (span,) = service.spans()
        assert span.parent is None
        noted = attributes(span)
        assert noted["spillgate.outcome"] == "pass"
        assert not noted.keys() & {"spillgate.handle", "spillgate.trigger", "spillgate.durability"}
        assert noted["spillgate.tokens_saved"] == 0
        assert noted["spillgate.budget.remaining"] == told["budget"]["remaining_tokens"]
        encode_spans([span]).SerializeToString()


async def test_a_caller_decides_whether_its_trace_is_recorded() -> None:
    async with traced() as service:
        unsampled = {"traceparent": PARENT["traceparent"][:-2] + "00"}
        sent = {"tool_name": "t", "content": "small"}
        assert (await service.client.post("/results", json=sent, headers=unsampled)).status_code == 200
        assert service.spans() == []
        for wrong in ("", "x", "00-0-0-01", f"00-{0:032x}-{0:016x}-01", "ff" + PARENT["traceparent"][2:]):
            await service.client.post("/results", json=sent, headers={"traceparent": wrong})
            (span,) = service.spans()
            assert span.parent is None


HANDLE = "{handle}"
READING = [
    ("GET", "/results/{handle}/lines", None, "spillgate.read"),
    ("GET", f"/results/{{handle}}/grep?pattern=line 7.*{MARK}", None, "spillgate.read"),
    ("GET", "/results/{handle}/content?accounted=true", None, "spillgate.read"),
    ("POST", "/extract", {"handle": HANDLE, "extract": f"What is {MARK}?"}, "spillgate.extract"),
    (
        "POST",
        "/tools/call",
        {"session_id": "s", "name": "tool_output", "arguments": {"handle": HANDLE, "extract": f"{MARK}?"}},
        "spillgate.extract",
    ),
    (
        "POST",
        "/tools/call",
        {"session_id": "s", "name": "tool_output_grep", "arguments": {"handle": HANDLE, "pattern": MARK}},
        "spillgate.read",
    ),
]


@pytest.mark.parametrize(("method", "path", "body", "name"), READING)
async def test_each_way_to_read_or_ask_is_a_span_with_the_handle(
    method: str, path: str, body: Any, name: str
) -> None:
    async with traced() as service:
        handle = await service.stored()
        sent = filled(body, handle)
        answer = await service.client.request(method, path.format(handle=handle), json=sent, headers=PARENT)
        assert answer.status_code == 200, answer.text
        (span,) = service.spans()
        assert_continues(span)
        assert span.name == name
        noted = span.attributes or {}
        assert noted["spillgate.handle"] == handle
        assert noted["gen_ai.conversation.id"] == "s"
        assert noted["gen_ai.tool.name"] == "journal"
        assert isinstance(noted["spillgate.bytes"], int)
        assert noted["spillgate.bytes"] > 0
        assert noted["spillgate.tokens_saved"] == -noted["spillgate.tokens"]  # type: ignore[operator]
        is_question = name == "spillgate.extract"
        assert noted.get("gen_ai.operation.name") == ("retrieval" if is_question else None)
        assert noted.get("spillgate.strategy") == ("retrieve" if is_question else None)
        assert MARK.encode() not in encode_spans([span]).SerializeToString()


def filled(body: Any, handle: str) -> Any:
    if isinstance(body, dict):
        return {name: filled(value, handle) for name, value in body.items()}
    return handle if body == HANDLE else body


async def test_a_call_over_mcp_continues_the_trace_that_its_message_names() -> None:
    for is_in_meta in [True, False]:
        async with traced() as service:
            handle = await service.stored()
            for name, argument, expected in (
                ("tool_output", "extract", "spillgate.extract"),
                ("tool_output_grep", "pattern", "spillgate.read"),
            ):
                params: dict[str, Any] = {"name": name, "arguments": {"handle": handle, argument: "line 7"}}
                if is_in_meta:
                    params["_meta"] = PARENT
                message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                headers = MCP if is_in_meta else MCP | PARENT
                assert "line 7" in (await service.client.post("/mcp", json=message, headers=headers)).text
                (span,) = service.spans()
                assert_continues(span)
                assert span.name == expected
                assert (span.attributes or {})["mcp.method.name"] == "tools/call"
            for method, params in (("ping", {}), ("tools/call", {"name": 7})):
                message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                await service.client.post("/mcp", json=message, headers=MCP)
            (span,) = service.spans()
            assert (span.attributes or {})["error.type"] == "invalid_params"


async def test_each_row_of_a_conversation_is_a_part_of_its_request() -> None:
    calls = [{"id": f"c{n}", "function": {"name": f"tool{n}", "arguments": MARK}} for n in range(2)]
    rows: list[Any] = [
        {"role": "user", "content": MARK},
        {"role": "assistant", "content": None, "tool_calls": calls},
    ]
    rows += [{"role": "tool", "tool_call_id": f"c{n}", "content": BIG + str(n)} for n in range(2)]
    sent = {"input_type": "request", "litellm_trace_id": "s", "structured_messages": rows}
    sent |= {"request_headers": {"x-litellm-session-id": "s"}, "model": "m", "tools": []}
    async with traced() as service:
        answer = await service.client.post("/beta/litellm_basic_guardrail_api", json=sent, headers=PARENT)
        assert answer.json()["action"] == "GUARDRAIL_INTERVENED"
        first, second, whole = service.spans()
        assert_continues(whole)
        assert whole.context is not None
        assert {(one.attributes or {})["gen_ai.tool.name"] for one in (first, second)} == {"tool0", "tool1"}
        for part in (first, second):
            assert (part.name, part.kind) == ("spillgate.govern", SpanKind.INTERNAL)
            assert part.parent is not None
            assert part.parent.span_id == whole.context.span_id
            assert attributes(part)["spillgate.outcome"] == "store"
        assert not attributes(whole)
        assert MARK.encode() not in encode_spans([first, second, whole]).SerializeToString()


async def test_a_refusal_is_named_by_its_code() -> None:
    cases: list[tuple[str, Any, Any, int, str | None, bool]] = [
        ("/results", {"tool_name": MARK}, {}, 422, "invalid_field", False),
        ("/results", {"tool_name": "t", "content": BIG}, {"storage_max_bytes": 1}, 507, "store_full", True),
        ("/extract", {"handle": MARK, "extract": MARK}, {}, 404, "result_not_found", False),
        ("/hooks/codex", [MARK], {}, 200, None, False),
    ]
    for path, body, settings, status, error, has_failed in cases:
        async with traced(**settings) as service:
            assert (await service.client.post(path, json=body, headers=PARENT)).status_code == status
            (span,) = service.spans()
            assert_continues(span)
            noted = span.attributes or {}
            assert (noted["http.response.status_code"], noted.get("error.type")) == (status, error)
            assert span.status.status_code is (StatusCode.ERROR if has_failed else StatusCode.UNSET)
            assert MARK.encode() not in encode_spans([span]).SerializeToString()


@pytest.mark.parametrize(
    ("tool", "arguments", "name", "error"),
    [
        ("tool_output", {"handle": MARK, "extract": MARK}, "spillgate.extract", "result_not_found"),
        ("tool_output", {"handle": MARK}, "spillgate.read", "invalid_field"),
        ("tool_output_lines", {"handle": MARK, "offset": 1}, "spillgate.read", "result_not_found"),
        ("tool_output_grep", {"handle": HANDLE, "pattern": "("}, "spillgate.read", "bad_pattern"),
        ("tool_output_dance", {}, "spillgate.read", "not_found"),
    ],
)
async def test_a_call_that_is_answered_with_what_is_wrong_names_the_error(
    tool: str, arguments: Any, name: str, error: str
) -> None:
    async with traced() as service:
        handle = await service.stored()
        sent = {"session_id": "s", "name": tool, "arguments": filled(arguments, handle)}
        told = await service.client.post("/tools/call", json=sent, headers=PARENT)
        (span,) = service.spans()
        assert (told.status_code, told.json()["is_error"], span.name) == (200, True, name)
        assert (span.attributes or {})["error.type"] == error
        assert span.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("path", ["/results", "/tools/call", "/mcp"])
async def test_a_client_that_disconnects_is_no_failure_of_the_service(path: str) -> None:
    sent = {"name": "tool_output_lines", "arguments": {}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": sent}
    body = json.dumps(message if path == "/mcp" else sent).encode()
    received = iter(() if path == "/results" else [{"type": "http.request", "body": body}])

    async def receive() -> Any:
        return next(received, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        """Nothing receives it."""

    async with traced() as service:
        forever = asyncio.Event()

        async def session(*asked: object) -> None:
            await forever.wait()

        app: Any = service.client._transport.app  # type: ignore[attr-defined]
        app.state.runtime.ledger.session = session
        await app(post_scope(path, body, accept=MCP["Accept"]), receive, send)
        (span,) = service.spans()
    cause = "cancelled" if path == "/mcp" else "client_disconnected"
    assert (span.attributes or {})["error.type"] == cause
    assert span.status.status_code is StatusCode.UNSET


async def test_several_headers_of_vendors_are_one_list() -> None:
    async with traced() as service:
        headers = [*PARENT.items(), ("tracestate", "other=2")]
        await service.client.post("/results", json={"tool_name": "t", "content": "x"}, headers=headers)
        (span,) = service.spans()
        assert_continues(span)
        assert span.context is not None
        assert span.context.trace_state.get("other") == "2"


async def test_calls_of_models_are_client_spans_with_their_usage() -> None:
    async with (
        Backend("error_500", "answers", answer=lambda body: report(body, MARK)) as backend,
        traced(llm_base_url=backend.base_url, llm_models=("m",)) as service,
    ):
        handle = await service.stored()
        sent = {"handle": handle, "extract": f"What is {MARK}?", "mode": "full-chunked"}
        told = (await service.client.post("/extract", json=sent, headers=PARENT)).json()
        *calls, whole = sorted(service.spans(), key=lambda one: one.name, reverse=False)
        assert_continues(whole)
        assert whole.context is not None
        assert len(calls) == told["usage"]["llm_calls"] == backend.requests
        noted = [dict(one.attributes or {}) for one in calls]
        for call in calls:
            assert (call.name, call.kind) == ("chat m", SpanKind.CLIENT)
            assert call.parent is not None
            assert call.parent.span_id == whole.context.span_id
        assert {one["gen_ai.operation.name"] for one in noted} == {"chat"}
        assert {one["gen_ai.request.model"] for one in noted} == {"m"}
        assert all(one["gen_ai.provider.name"] for one in noted)
        assert sum(one["gen_ai.usage.input_tokens"] for one in noted) == told["usage"]["input_tokens"]
        assert sum(one["gen_ai.usage.output_tokens"] for one in noted) == told["usage"]["output_tokens"]
        failed = [one for one in calls if one.status.status_code is StatusCode.ERROR]
        assert ["error.type" in one for one in noted].count(True) == len(failed) == 1
        assert ("stop",) in [one.get("gen_ai.response.finish_reasons") for one in noted]
        assert MARK.encode() not in encode_spans([*calls, whole]).SerializeToString()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        yield collector


async def test_a_collector_gets_every_span_and_no_content(collector: Collector, tmp_path: Path) -> None:
    service = Service(tmp_path / "state", tmp_path / "log", SERVE, {"log_level": "debug"})
    await service.listening()
    try:
        async with service.client() as client:
            sent = {"tool_name": "t", "session_id": "s", "content": BIG, "tool_arguments": MARK}
            handle = (await client.post("/results", json=sent, headers=PARENT)).json()["handle"]
            for method, path, body, _ in READING:
                await client.request(method, path.format(handle=handle), json=filled(body, handle))
            broken = await client.post("/results", content=f'{{"content": "{MARK}')
            assert broken.status_code == 400
            expected = 2 + len(READING)
            async with asyncio.timeout(30):
                while (
                    f"spillgate_spans_exported_total {expected}.0" not in (await client.get("/metrics")).text
                ):
                    await asyncio.sleep(0.02)
            assert f"spillgate_spans_total {expected}.0" in (await client.get("/metrics")).text
        assert await service.stop() == 0
    finally:
        service.kill()
    assert len(collector.spans()) == expected
    assert MARK.encode() not in collector.received()
    governed = collector.spans()[0]
    assert governed.trace_id == TRACE.to_bytes(16)
    assert governed.parent_span_id == CALLER.to_bytes(8)
    lines = service.lines()
    listening = next(line for line in lines if line["event"] == "listening")
    assert listening["traces"] == collector.url
    stored = next(line for line in lines if "output stored" in line["event"])
    assert stored["trace_id"] == f"{TRACE:032x}"


@pytest.mark.parametrize("fault", ["away", "silent", "endless", "error_500", "error_503"])
async def test_a_bad_collector_is_never_in_the_way(
    fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with Collector(fault) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
        monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
        service = Service(tmp_path / "state", tmp_path / "log", SERVE, {})
        await service.listening()
        try:
            async with service.client() as client:
                for _ in range(3):
                    for _ in range(10):
                        sent = {"tool_name": "t", "content": "small"}
                        assert (await client.post("/results", json=sent)).status_code == 200
                    await collector.asked()
                metrics = (await client.get("/metrics")).text
                assert "spillgate_spans_total 30.0" in metrics
                if fault == "endless":
                    # Its status said that it took them. Reading its body would never have ended.
                    async with asyncio.timeout(30):
                        while "spillgate_spans_exported_total 0.0" in (await client.get("/metrics")).text:
                            await asyncio.sleep(0.02)
                else:
                    assert "spillgate_spans_exported_total 0.0" in metrics
                assert (await client.get("/readyz")).status_code == 200
            # Far less than the 30 s that the SDK would wait.
            service.terminate()
            assert await service.ended(15) == 0
        finally:
            service.kill()
        if fault == "error_500":
            said = [line["event"] for line in service.lines() if line["logger"] == "spillgate.traces"]
            assert said == ["The collector accepts no spans. They are lost until it does; requests go on."]
        assert not service.failures()


async def test_a_collector_that_comes_back_is_logged_once(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_runtime(Settings(storage_url="memory:")) as rt:
        exporter = spans.CountingExporter(
            spans.OTLPSpanExporter(session=spans.StatusOnlySession(), timeout=0.2), rt.metrics
        )
        for fault in ("error_500", "error_500", "", ""):
            collector.fault = fault
            exporter.export([])
    said = [one.message for one in caplog.records if one.name == "spillgate.traces"]
    assert [one.partition(".")[0] for one in said] == [
        "The collector accepts no spans",
        "The collector accepts spans again",
    ]


ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318/"}


def test_the_standard_variables_say_where_spans_go() -> None:
    cases: list[tuple[dict[str, str], str | None, str | None]] = [
        ({}, None, None),
        (ENDPOINT, "http://collector:4318/v1/traces", None),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c/x"}, "https://c/x", None),
        (ENDPOINT | {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/x"}, "http://c/x", None),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "true"}, None, None),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"}, None, None),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "zipkin"}, None, "OTEL_TRACES_EXPORTER"),
        (ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, None, "http/protobuf"),
        (
            ENDPOINT
            | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"},
            "http://collector:4318/v1/traces",
            None,
        ),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}, None, "must be a URL"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:port"}, None, "must be a URL"),
    ]
    for environ, endpoint, fault in cases:
        found = trace_target(environ)
        assert found.endpoint == endpoint
        assert (fault or "") in (found.fault or "")
        assert (found.fault is None) == (fault is None)


async def test_without_the_extra_the_service_runs_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setenv("SPILLGATE_STORAGE_URL", f"disk://{tmp_path}/state")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    async with open_runtime(Settings(storage_url="memory:")) as rt:
        assert any("requirements-extras.lock" in warning for warning in rt.warnings)
    assert main(["check-config"]) == 0
    assert "requirements-extras.lock" in capsys.readouterr().err


def test_a_batch_that_cannot_be_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1")
    with pytest.raises(ConfigError, match="OTEL_BSP_"):
        spans.open_spans(Metrics())


OFF = """
import asyncio, sys
from app.runtime import open_runtime
from app.settings import Settings

async def main():
    async with open_runtime(Settings(storage_url="memory:")):
        pass

asyncio.run(main())
print([name for name in ("opentelemetry", "google.protobuf", "requests") if name in sys.modules])
"""


def test_without_an_endpoint_nothing_of_opentelemetry_is_imported() -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", OFF],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
        env=environ,
    )
    assert done.stdout.strip() == "[]", done.stderr
