"""Log lines and metrics: whole, cheap, and without content."""

import asyncio
import json
import logging
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.operations import telemetry
from app.operations.logs import (
    JsonFormatter,
    LineStyle,
    LogHandler,
    RequestLog,
    TextFormatter,
    configure_logging,
    flush_log,
)
from app.operations.telemetry import Metrics, memory_limit
from domain.accounting import AccountingEntry, EntryType
from domain.budget import Budget
from domain.errors import BodyTooLarge, StoreFull
from domain.extraction import Answer, Coverage, ExtractStatus, Mode, Question
from domain.handles import Handle, SessionKey
from domain.outcomes import Outcome, OutcomeKind, Trigger
from domain.results import Measure, StoredResult, ToolResult
from tests.conftest import Serve
from tests.keys import key_file
from tests.redis_server import RedisServer

MARKER = "S3cretMarker"
HANDLE = Handle("default", "00000000-0000-4000-8000-000000000000")
RESULT = ToolResult(SessionKey("acme", "default"), "t")
ANSWERED = AccountingEntry("entry-2", EntryType.EXTRACT, 0, "acme", "default", "t", tokens_out=5)
MEASURE = Measure(bytes=1000, lines=3, chars=1000, tokens=300, tokens_exact=True)
PASSED = Outcome(OutcomeKind.PASS, None, None, None, MEASURE, Budget(1000, 0, 0, True), "entry-1")
STORED = replace(PASSED, kind=OutcomeKind.STORE, text="read it", trigger=Trigger.SIZE_CAP, handle=HANDLE)


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[TextIO]:
    names = ["", "httpx", "httpcore", "asyncio"]
    before = [(logging.getLogger(name), logging.getLogger(name).level) for name in names]
    handlers = logging.getLogger().handlers[:]
    with (tmp_path / "log").open("a+") as stream:
        configure_logging("info", "json", stream)
        yield stream
    logging.getLogger().handlers[:] = handlers
    for logger, level in before:
        logger.setLevel(level)


def text_of(stream: TextIO) -> str:
    flush_log()
    stream.seek(0)
    return stream.read()


def lines_of(stream: TextIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text_of(stream).splitlines()]


def test_a_line_is_json_with_its_fields(stream: TextIO) -> None:
    logging.getLogger("app.any").info("began %d", 7, extra={"fields": {"port": 1, "event": "hidden"}})
    (line,) = lines_of(stream)
    assert line.pop("ts").endswith("+00:00")
    assert line == {"level": "info", "logger": "app.any", "event": "began 7", "port": 1}


@pytest.mark.parametrize(
    ("style", "is_terminal", "is_text"),
    [
        ("auto", True, True),
        ("auto", False, False),
        ("text", False, True),
        ("json", True, False),
    ],
)
def test_lines_are_text_on_a_terminal_and_json_elsewhere(
    stream: TextIO, monkeypatch: pytest.MonkeyPatch, style: LineStyle, is_terminal: bool, is_text: bool
) -> None:
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
    configure_logging("info", style, stream)
    logging.getLogger("app.any").warning(
        "began\x1b[2J", extra={"fields": {"port": 1, "none": None, "tool": "a\nb"}}
    )
    written = text_of(stream)
    assert written.startswith("{") is not is_text
    assert "\x1b" not in written
    if is_text:
        assert written[8:] == " warning  began\\x1b[2J  port=1  tool=a\\nb\n"


def test_a_block_has_a_line_for_each_field() -> None:
    record = logging.makeLogRecord(
        {"msg": "listening", "block": True, "fields": {"address": "here", "docs": "there"}}
    )
    assert TextFormatter().format(record).splitlines()[1:] == ["  address    here", "  docs       there"]


def test_an_exception_as_text_shows_its_type_and_place_and_not_its_message() -> None:
    try:
        raise ValueError(MARKER)
    except ValueError as error:
        record = logging.makeLogRecord(
            {"msg": "failed", "exc_info": (ValueError, error, error.__traceback__)}
        )
    shown = TextFormatter().format(record)
    assert MARKER not in shown
    assert "    ValueError\n" in shown
    assert shown.endswith("_not_its_message")


def test_an_exception_shows_its_type_and_place_and_not_its_message(stream: TextIO) -> None:
    try:
        try:
            raise KeyError(MARKER)
        except KeyError as cause:
            raise ValueError(MARKER) from cause
    except ValueError as error:
        logging.getLogger("uvicorn.error").error("Exception in ASGI application\n", exc_info=error)
    (line,) = lines_of(stream)
    assert MARKER not in text_of(stream)
    assert (line["error"]["type"], line["error"]["cause"]) == ("ValueError", "KeyError")
    assert line["error"]["frames"][-1].endswith("_not_its_message")


def test_what_asyncio_says_of_an_exception_is_left_out(stream: TextIO) -> None:
    logging.getLogger("asyncio").error(
        "Task exception was never retrieved\nfuture: <Task ValueError('%s')>", MARKER
    )
    assert lines_of(stream)[0]["event"] == "Task exception was never retrieved"
    assert MARKER not in text_of(stream)


@pytest.mark.parametrize(
    ("last", "event"),
    [
        (f"ValueError: {MARKER}", "ValueError"),
        ("domain.errors.ConfigError: Set this to that.", "domain.errors.ConfigError: Set this to that."),
    ],
)
def test_a_failed_start_shows_a_message_only_if_it_is_ours(stream: TextIO, last: str, event: str) -> None:
    trace = f"Traceback (most recent call last):\n  File 'x', line 1\n    x('{MARKER}')\n{last}\n"
    logging.getLogger("uvicorn.error").error(trace)
    assert lines_of(stream)[0]["event"] == event
    assert MARKER not in text_of(stream)


def test_what_cannot_be_encoded_is_logged_all_the_same() -> None:
    fields = {"path": object(), "text": "\udfff"}
    record = logging.makeLogRecord({"msg": "lone \ud800", "fields": fields})
    assert json.loads(JsonFormatter().format(record))["event"] == "lone \ud800"


def test_a_line_that_fails_leaves_no_trace_of_what_it_was_given(
    stream: TextIO, capsys: pytest.CaptureFixture[str]
) -> None:
    record = logging.LogRecord("app", logging.WARNING, "x", 1, "%d", (MARKER,), None)
    (handler,) = (one for one in logging.getLogger().handlers if isinstance(one, LogHandler))
    handler.handle(record)
    assert MARKER not in capsys.readouterr().err + text_of(stream)


def test_a_stored_result_is_a_line_without_its_content(stream: TextIO) -> None:
    key = SessionKey("acme", "default")
    result = ToolResult(key, "mcp__files__read", tool_arguments=MARKER, provider="openai", tool_kind="mcp")
    now = 1_700_000_000_000
    stored = StoredResult(
        "acme", HANDLE, result.tool_name, MARKER, "mcp", "openai", False, MEASURE, "0" * 64, now, now, 0
    )
    entry = AccountingEntry(
        "entry-1",
        EntryType.TOOL,
        now,
        "acme",
        "default",
        result.tool_name,
        trigger=Trigger.SIZE_CAP,
        outcome=OutcomeKind.STORE,
    )
    RequestLog().stored(result, stored, entry, warns=False)
    (line,) = lines_of(stream)
    assert MARKER not in text_of(stream)
    assert line["level"] == "info"
    assert line["event"] == "Tool 'mcp__files__read' output stored for tool_output (size_cap)."
    assert {name: line[name] for name in ("tool", "tool_namespace", "provider", "tool_kind", "reason")} == {
        "tool": "mcp__files__read",
        "tool_namespace": "files",
        "provider": "openai",
        "tool_kind": "mcp",
        "reason": "size_cap",
    }
    assert (line["handle"], line["bytes"], line["lines"], line["tokens"]) == (str(HANDLE), 1000, 3, 300)
    assert line["tool_output"] is True


def samples_of(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    text, kind = metrics.render()
    assert kind.startswith("text/plain")
    families = text_string_to_metric_families(text.decode())
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_what_was_governed_is_counted_once() -> None:
    metrics = Metrics()
    metrics.governed(RESULT, PASSED, 300, 0.002)
    metrics.governed(RESULT, STORED, 60, 0.2)
    metrics.governed(RESULT, replace(STORED, is_retry=True), 60, 0.2)
    for _ in range(2):
        found = samples_of(metrics)
        assert found["spillgate_results_total", ("pass", "none")] == 1
        assert found["spillgate_results_total", ("store", "size_cap")] == 1
        assert found["spillgate_result_bytes_total", ("store",)] == 1000
        assert found["spillgate_tokens_total", ("in",)] == 600
        assert found["spillgate_tokens_total", ("out",)] == 360
        assert found["spillgate_tokens_total", ("saved",)] == 240
        assert found["spillgate_govern_seconds_count", ("store",)] == 1
        assert found["spillgate_up_info", ("0.2.0",)] == 1


def test_what_answering_costs_is_counted_as_spent() -> None:
    metrics = Metrics()
    metrics.governed(RESULT, replace(STORED, measure=replace(MEASURE, tokens=10)), 60, 0.1)
    metrics.read(ANSWERED)
    assert samples_of(metrics)["spillgate_tokens_total", ("spent",)] == 55


def test_extractions_errors_and_sizes_are_shown() -> None:
    metrics = Metrics()
    answer = Answer("body", Mode.RETRIEVE, ExtractStatus.COMPLETE, Coverage(1, 1, 1.0))
    metrics.extracted(Question(HANDLE, "?"), answer, ANSWERED)
    metrics.refused(BodyTooLarge(), "POST /results", carries_result=True)
    metrics.watch_bodies(lambda: 77)
    metrics.stored_bytes.set(5)
    metrics.stored_bytes_cap.set(9)
    found = samples_of(metrics)
    assert found["spillgate_extractions_total", ("complete", "retrieve")] == 1
    assert found["spillgate_errors_total", ("body_too_large",)] == 1
    assert found["spillgate_body_bytes_in_flight", ()] == 77
    assert (found["spillgate_stored_bytes", ()], found["spillgate_stored_bytes_cap", ()]) == (5, 9)


def test_results_that_are_refused_show_for_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()
    metrics.refused(StoreFull(), "GET /results", carries_result=False)
    series = "spillgate_refusing", ("store_full",)
    assert samples_of(metrics)[series] == 0
    metrics.refused(StoreFull(), "POST /results", carries_result=True)
    later = time.monotonic() + 29
    for at, expected in ((later, 1), (later + 2, 0)):
        monkeypatch.setattr(telemetry, "monotonic", lambda at=at: at)
        assert samples_of(metrics)[series] == expected


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        ("0::/", {"memory.max": "1000\n"}, 1000),
        ("0::/", {"memory.max": "max\n"}, 0),
        ("0::/", {}, 0),
        ("", {"memory.max": "1000"}, 0),
        ("0::/pod/main", {"pod/main/memory.max": "max", "pod/memory.max": "800", "memory.max": "900"}, 800),
        ("0::/pod/main", {"pod/main/memory.max": "700", "pod/memory.max": "800"}, 700),
        # As a container without a namespace of its own shows the path of the host.
        ("0::/host/1f", {"memory.max": "600"}, 600),
        ("4:memory:/a\n0::/", {"memory/a/memory.limit_in_bytes": "500"}, 500),
        ("4:cpu,memory:/", {"memory/memory.limit_in_bytes": "9223372036854771712"}, 0),
        ("4:cpu:/a", {"memory/a/memory.limit_in_bytes": "500"}, 0),
    ],
)
def test_the_memory_limit_is_the_least_of_the_control_groups(
    tmp_path: Path, own: str, limits: dict[str, str], expected: int
) -> None:
    for name, text in limits.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "own").write_text(own)
    assert memory_limit(tmp_path / "cgroup", tmp_path / "own") == expected
    assert memory_limit(tmp_path / "cgroup", tmp_path / "none") == 0


def value_of(scrape: str, name: str) -> float:
    (line,) = [line for line in scrape.splitlines() if line.startswith(f"{name} ")]
    return float(line.rpartition(" ")[2])


async def scraped_while_stuck(client: httpx.AsyncClient, waiting: int, free: Callable[[], object]) -> str:
    """The metrics while five results wait for a ledger that does not answer until `free` is called, `waiting`
    of them for their turn."""
    runtime = client._transport.app.state.runtime  # type: ignore[attr-defined]
    sent = {"tool_name": "t", "content": "x"}
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        posts = [tasks.create_task(client.post("/results", json=sent)) for _ in range(5)]
        while runtime.ledger.load.waiting < waiting:
            await asyncio.sleep(0.001)
        scrape = tasks.create_task(client.get("/metrics"))
        # The scrape asks the ledger, too, once it has read what waits.
        shown = re.compile(rb'spillgate_waiting\{backend="ledger"\} [1-9]')
        while not shown.search(runtime.metrics.render(None, {})[0]):
            await asyncio.sleep(0.01)
        free()
    assert {task.result().status_code for task in posts} == {200}
    return scrape.result().text


@pytest.mark.anyio
@pytest.mark.usefixtures("patient_redis")
async def test_connections_in_use_and_operations_that_wait_for_one_are_shown(
    serve: Serve, redis_url: str, redis_server: RedisServer
) -> None:
    async with serve(storage_url=f"{redis_url}?max_connections=2") as client:
        await client.post("/results", json={"tool_name": "t", "content": "x"})
        scrapes = [(await client.get("/metrics")).text]
        redis_server.pause()
        try:
            scrapes.append(await scraped_while_stuck(client, 3, redis_server.resume))
        finally:
            redis_server.resume()
    names = [
        f'spillgate_{name}{{backend="ledger"}}' for name in ("connections", "connections_cap", "waiting")
    ]
    (_, most, _), (in_use, _, waiting) = [[value_of(scrape, name) for name in names] for scrape in scrapes]
    # An operation that was given up has left its connection. The sweeper may wait, too.
    assert 1 <= in_use <= most == 2
    assert waiting >= 3
    assert value_of(scrapes[0], 'spillgate_waiting{backend="store"}') == 0
    assert value_of(scrapes[0], "spillgate_ledger_entries") == 1


@pytest.mark.anyio
async def test_changes_that_wait_for_the_writer_are_shown(serve: Serve, tmp_path: Path) -> None:
    async with serve() as client:
        await client.post("/results", json={"tool_name": "t", "content": "x"})
        other = sqlite3.connect(tmp_path / "state" / "ledger.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        scrape = await scraped_while_stuck(client, 5, lambda: other.execute("ROLLBACK"))
        other.close()
        after = (await client.get("/metrics")).text
    name = 'spillgate_waiting{backend="ledger"}'
    # The sweeper may wait, too.
    assert value_of(scrape, name) >= 5
    assert value_of(after, name) < 5
    assert value_of(after, "spillgate_ledger_entries") == 6
    assert value_of(after, 'spillgate_connections_cap{backend="ledger"}') == 0


@pytest.mark.anyio
async def test_the_last_line_says_how_many_bytes_no_model_read(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serve() as client:
        for content in ("small", "x" * 100_000):
            await client.post("/results", json={"tool_name": "t", "content": content})
    fields = caplog.records[-1].fields  # type: ignore[attr-defined]
    assert caplog.records[-1].message == "stopped"
    assert fields["results"] == 2
    assert 99_000 < fields["bytes_kept_out_of_context"] < 100_000


@pytest.mark.anyio
async def test_each_line_of_a_request_names_its_request_tenant_session_and_call(
    serve: Serve, tmp_path: Path, stream: TextIO
) -> None:
    keys = key_file(tmp_path / "keys", "team:secret")
    call = {"session_id": "s-1", "tool_call_id": "c-1"}
    big, small = ({"tool_name": "t", "content": text, **call} for text in ("x" * 20_000, "another"))
    configure_logging("debug", "json", stream)
    async with serve(api_keys_file=keys) as client:
        client.headers["Authorization"] = "Bearer secret"
        answer = await client.post("/results", json=big, headers={"X-Request-ID": "trace/1"})
        assert answer.headers["x-request-id"] == "trace/1"
        refused = await client.post("/results", json=small, headers={"X-Request-ID": 'no"t plain'})
        handle = answer.json()["handle"]
        await client.post("/extract", json={"handle": handle, "extract": "x"})
    lines = [line for line in lines_of(stream) if "request_id" in line]
    of = {name: line["request_id"] for line in lines for name in [line["event"]]}
    assert refused.headers["x-request-id"] == of["refused"] != "trace/1"
    assert refused.headers["x-request-id"].startswith("req-")
    assert all(line["tenant"] == "team" and line["session_id"] == "s-1" for line in lines)
    assert {line["tool_call_id"] for line in lines if line["request_id"] != of["Extraction answered."]} == {
        "c-1"
    }
    access = [line for line in lines if line["logger"] == "spillgate.access"]
    assert [(line["route"], line["status"]) for line in access] == [
        ("POST /results", 201),
        ("POST /results", 422),
        ("POST /extract", 200),
    ]
    others = [line for line in lines if line["event"] not in ("request", "stopped")]
    assert [line["request_id"] for line in others] == [line["request_id"] for line in access]


@pytest.mark.anyio
async def test_a_refusal_and_a_deletion_name_the_tenant_and_the_key(
    serve: Serve, tmp_path: Path, stream: TextIO
) -> None:
    keys = key_file(tmp_path / "keys", "team:agent::ci", "ops:admin:admin:ada", "ops:metrics:metrics")
    async with serve(api_keys_file=keys, tenant_requests_per_second=0.001) as client:
        for method, path, key in (
            ("PUT", "/sessions/s", "agent"),
            ("GET", "/sessions", "agent"),
            ("POST", "/extract", "metrics"),
            ("GET", "/sessions", "unknown"),
            ("DELETE", "/tenants/team", "admin"),
        ):
            headers = {"Authorization": f"Bearer {key}"}
            await client.request(method, path, headers=headers, json=None if method == "GET" else {})
    shown = lines_of(stream)
    refused = [(one["code"], one.get("tenant"), one.get("key")) for one in shown if one["event"] == "refused"]
    assert refused == [
        ("too_many_requests", "team", "ci"),
        ("forbidden", "ops", None),
        ("unauthorized", None, None),
    ]
    (deleted,) = [one for one in shown if one["event"] == "Deletion of a tenant."]
    counts = {"deleted": "team", "results": 0, "sessions": 1, "entries": 0, "complete": True}
    assert deleted.items() >= {**counts, "level": "warning", "tenant": "ops", "key": "ada"}.items()


@pytest.mark.anyio
@pytest.mark.parametrize("level", ["info", "debug"])
async def test_each_request_is_a_line_at_the_level_debug(serve: Serve, stream: TextIO, level: str) -> None:
    configure_logging(level, "json", stream)
    async with serve() as client:
        assert (await client.get("/livez")).headers["x-request-id"].startswith("req-")
        assert (await client.get("/no/such/route")).headers["x-request-id"]
    routes = [line["route"] for line in lines_of(stream) if line["logger"] == "spillgate.access"]
    assert routes == (["GET /livez", "GET"] if level == "debug" else [])
