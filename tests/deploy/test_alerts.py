"""The alerts, the board and the scrape: what they ask for is what the service shows, and each alert fires."""

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.conftest import Serve
from tests.deploy.manifests import DEPLOY, ROOT
from tests.extraction.backend import Backend

pytestmark = pytest.mark.anyio

RULES: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"][0]["rules"]
BOARD: dict[str, Any] = json.loads((DEPLOY / "grafana.json").read_text())
EXPRESSIONS = [rule["expr"] for rule in RULES] + [
    target["expr"] for panel in BOARD["panels"] for target in panel["targets"]
]
METRIC = re.compile(r"\b(?:spillgate|process)_[a-z_]+")

FIRING = {
    "SpillgateDown": [
        'up{job="spillgate",instance="a"} 0x60',
        'up{job="spillgate",instance="b"} 1x60',
    ],
    "SpillgateNotReady": ["spillgate_ready 0x60"],
    "SpillgateNotKept": ['spillgate_refusing{code="store_full"} 1x60'],
    "SpillgateClockDiffers": ["spillgate_clock_offset_seconds -6x60", "spillgate_clock_jump_seconds 0x60"],
    "SpillgateClockJumped": ["spillgate_clock_jump_seconds -7200x60"],
    "SpillgateAllGone": ['up{job="spillgate"} 1 0x60'],
    "SpillgateFailsInside": ['spillgate_errors_total{code="internal_error"} 0+1x60'],
    "SpillgateNotAccounted": [
        "spillgate_results_unrecorded_total 0x60",
        "spillgate_readings_unrecorded_total 0+1x60",
    ],
    "SpillgateMediumNearlyFull": ['spillgate_medium_used_ratio{backend="store"} 0.91x60'],
    "SpillgateApiKeyExpires": ["spillgate_api_key_expires_timestamp_seconds 86400x60"],
    "SpillgateOverloaded": ['spillgate_errors_total{code="overloaded"} 0+1x60'],
    "SpillgateStoreNearlyFull": ["spillgate_stored_bytes 91x60", "spillgate_stored_bytes_cap 100x60"],
    "SpillgateTenantNearlyFull": [
        'spillgate_tenant_stored_bytes{tenant="a"} 91x60',
        'spillgate_tenant_stored_bytes_cap{tenant="a"} 100x60',
        'spillgate_tenant_stored_bytes{tenant="b"} 91x60',
        'spillgate_tenant_stored_bytes_cap{tenant="b"} 0x60',
    ],
    "SpillgateSpendNearlyReached": [
        'spillgate_tenant_llm_usd_today{tenant="a"} 91x60',
        'spillgate_tenant_llm_usd_today_cap{tenant="a"} 100x60',
    ],
    "SpillgateTenantRefused": ['spillgate_errors_total{code="tenant_full"} 0+1x60'],
    "SpillgateModelDown": ['spillgate_model_up{model="m"} 0x60'],
    "SpillgateExtractionFallsBack": [
        'spillgate_extractions_total{status="fallback"} 0+1x60',
        'spillgate_extractions_total{status="complete"} 0+2x60',
    ],
    "SpillgatePolicyStale": ["spillgate_policy_stale 1x60"],
    "SpillgateApiKeyFaults": ["spillgate_api_key_faults 1x60"],
    "SpillgateStorageKeyFaults": ["spillgate_storage_key_faults 1x60"],
    "SpillgateTaskFails": ['spillgate_task_faults_total{task="sweep"} 0+1x60'],
    "SpillgateExportLost": ["spillgate_export_lost_total 0+1x60"],
    "SpillgateAuditDropped": ["spillgate_audit_dropped_total 0+1x60"],
    "SpillgateConnectionsNearlyUsedUp": [
        'spillgate_connections{backend="ledger"} 60x60',
        'spillgate_connections_cap{backend="ledger"} 64x60',
    ],
    "SpillgateWaiting": ['spillgate_waiting{backend="ledger"} 3x60'],
    "SpillgateMemoryNearLimit": [
        "process_resident_memory_bytes 91x60",
        "spillgate_memory_limit_bytes 100x60",
    ],
    "SpillgateSlow": [
        'spillgate_operation_seconds_bucket{backend="store",operation="find",le="0.25"} 0+1x60',
        'spillgate_operation_seconds_bucket{backend="store",operation="find",le="1.0"} 0+100x60',
        'spillgate_operation_seconds_bucket{backend="store",operation="find",le="+Inf"} 0+100x60',
    ],
}
"""Series, in the notation of promtool, under which an alert fires: a value a minute."""


EVENTS: dict[str, tuple[int, int, dict[str, str]]] = {
    "Redis away for half a minute": (
        52,
        78,
        {'spillgate_refusing{code="store_unavailable"}': "0 0 0 0 1 1 0 0 0 0 0 0"},
    ),
    "Redis away for three minutes": (
        52,
        228,
        {'spillgate_refusing{code="store_unavailable"}': "0 0 0 0 1 1 1 1 1 1 1 1 1 1 1 1 0 0 0 0 0 0"},
    ),
    "the store full for three minutes": (
        90,
        228,
        {'spillgate_refusing{code="store_full"}': "0 0 0 0 0 0 0 1 1 1 1 1 1 1 1 1 0 0 0 0 0 0"},
    ),
}
"""When each began and ended, in seconds, and what was scraped every 15 s."""


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is missing: it is in Debian's package prometheus")
    return found


@pytest.fixture
async def scrape(serve: Serve) -> str:
    """The metrics of a healthy service that has governed, stored, refused, extracted and asked a model."""
    async with Backend() as backend, serve(llm_base_url=backend.base_url, llm_models=("m",)) as client:
        stored = await client.post("/results", json={"tool_name": "t", "content": "a line\n" * 3000})
        handle = stored.json()["handle"]
        asked = {"handle": handle, "extract": "line", "mode": "full-chunked"}
        (await client.post("/extract", json=asked)).raise_for_status()
        assert (await client.post("/results", json={})).status_code == 422
        # An entry may still be on its way to the ledger.
        while 'spillgate_waiting{backend="ledger"} 0.0' not in (text := (await client.get("/metrics")).text):
            await asyncio.sleep(0.01)
        return text


async def test_what_is_asked_for_is_what_is_shown(scrape: str) -> None:
    # A counter of faults has no sample before the first one.
    shown = set(METRIC.findall(scrape)) | {
        f"{name}_total" for name in re.findall(r"# TYPE (\w+)_total counter", scrape)
    }
    asked = {name for expression in EXPRESSIONS for name in METRIC.findall(expression)}
    assert asked <= shown
    assert len(asked) > 20


async def test_the_scrape_is_well_formed(promtool: str, scrape: str) -> None:
    checked = subprocess.run([promtool, "check", "metrics"], input=scrape, capture_output=True, text=True)
    assert "error" not in checked.stderr.lower(), checked.stderr


async def test_each_alert_fires_for_its_reason_and_none_for_a_healthy_service(
    promtool: str, scrape: str, tmp_path: Path
) -> None:
    assert set(FIRING) == {rule["alert"] for rule in RULES}
    watched = {name for rule in RULES for name in METRIC.findall(rule["expr"])}
    healthy = [
        {"series": series, "values": f"{value}x60"}
        for series, value in re.findall(r"^((?:spillgate|process)_\S+) (\S+)$", scrape, re.MULTILINE)
        if series.partition("{")[0] in watched - {"spillgate_medium_used_ratio"}
    ]
    healthy.append({"series": 'up{job="spillgate"}', "values": "1x60"})
    tests = [
        {
            "interval": "1m",
            "input_series": [
                dict(zip(("series", "values"), one.rsplit(" ", 1), strict=True)) for one in given
            ],
            "alert_rule_test": [],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                    "eval_time": "50m",
                    "exp_samples": [{"labels": "{}", "value": 1}],
                }
            ],
        }
        for alert, given in FIRING.items()
    ]
    quiet = {"expr": "ALERTS", "eval_time": "50m", "exp_samples": []}
    tests.append({"interval": "1m", "input_series": healthy, "promql_expr_test": [quiet]})
    check_rules(promtool, tmp_path, tests, every="1m")


def check_rules(promtool: str, folder: Path, tests: list[dict[str, Any]], every: str = "15s") -> None:
    file = folder / "tests.yaml"
    rules = {"rule_files": [str(DEPLOY / "alerts.yaml")], "evaluation_interval": every, "tests": tests}
    file.write_text(yaml.safe_dump(rules))
    done = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def firing_at(alert: str, seconds: int, labels: str | None) -> dict[str, Any]:
    samples = [] if labels is None else [{"labels": labels, "value": 1}]
    expression = f'count by (alertname) (ALERTS{{alertname="{alert}",alertstate="firing"}})'
    return {"expr": expression, "eval_time": f"{seconds}s", "exp_samples": samples}


@pytest.mark.parametrize("event", EVENTS)
async def test_the_pager_speaks_within_two_minutes_and_never_after_the_end(
    event: str, promtool: str, tmp_path: Path
) -> None:
    """On scrapes of a real service, every 15 s."""
    begins, ends, series = EVENTS[event]
    refusing = [int(value) for value in next(iter(series.values())).split()]
    last = 15 * (len(refusing) - 1)
    expected = range(begins + 120, ends, 15) if ends - begins > 120 else ()
    labels = '{alertname="SpillgateNotKept"}'
    checks = [firing_at("SpillgateNotKept", at, labels) for at in expected]
    checks += [firing_at("SpillgateNotKept", at, None) for at in range(0, begins, 15)]
    checks += [firing_at("SpillgateNotKept", at, None) for at in range(ends + 30, last, 15)]
    if not expected:
        checks += [firing_at("SpillgateNotKept", at, None) for at in range(begins, ends + 30, 15)]
    given = [{"series": name, "values": values} for name, values in series.items()]
    check_rules(promtool, tmp_path, [{"interval": "15s", "input_series": given, "promql_expr_test": checks}])


ONE_PAGE = {
    "SpillgateNotReady": (
        'spillgate_ready{instance="a"} 0x40',
        'spillgate_refusing{instance="a",code="store_unavailable"} 1x40',
        # Also where that is for its clock.
        'spillgate_clock_offset_seconds{instance="a"} -18000x40',
        'spillgate_clock_jump_seconds{instance="a"} 0x40',
    ),
    "SpillgateAllGone": ('up{job="spillgate",instance="a"} 0x40', 'up{job="spillgate",instance="b"} 0x40'),
    # A replica alone has another clock than Redis.
    "SpillgateClockDiffers": (
        'spillgate_clock_offset_seconds{instance="a"} 20x60',
        'spillgate_clock_jump_seconds{instance="a"} 0x60',
        'spillgate_clock_offset_seconds{instance="b"} 0x60',
        'spillgate_clock_jump_seconds{instance="b"} 0x60',
    ),
    # The clock of a machine without Redis.
    "SpillgateClockJumped": (
        'spillgate_clock_offset_seconds{instance="a"} 7200x60',
        'spillgate_clock_jump_seconds{instance="a"} 7200x60',
    ),
    "SpillgateStoreNearlyFull": (
        "spillgate_stored_bytes 85+1x15 100x40",
        "spillgate_stored_bytes_cap 100x60",
        'spillgate_refusing{code="store_full"} 0x14 1x40',
    ),
}
"""Series, a value every 15 s, and the alert that names their cause."""


@pytest.mark.parametrize("cause", ONE_PAGE)
async def test_a_cause_pages_once_and_what_fills_pages_before_it_refuses(
    cause: str, promtool: str, tmp_path: Path
) -> None:
    series = [dict(zip(("series", "values"), one.split(" ", 1), strict=True)) for one in ONE_PAGE[cause]]
    also = {"series": 'up{job="spillgate",instance="c"}', "values": "1x60"}
    firing = 'group by (alertname) (ALERTS{alertstate="firing"})'
    alone = [{"labels": f'{{alertname="{cause}"}}', "value": 1}]
    checks = [{"expr": firing, "eval_time": f"{at}s", "exp_samples": alone} for at in (180, 210, 225)]
    given = series if cause == "SpillgateAllGone" else [*series, also]
    check_rules(promtool, tmp_path, [{"interval": "15s", "input_series": given, "promql_expr_test": checks}])


async def test_only_results_that_are_refused_page(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the reading of what was encrypted with a key that the file does not have."""
    monkeypatch.setattr("app.files.LOOK_SECONDS", 0.0)
    keys = tmp_path / "keys"
    keys.write_text(f"one:{'1' * 64}\n")
    keys.chmod(0o600)

    async def refusing(client: httpx.AsyncClient) -> bool:
        text = (await client.get("/metrics")).text
        return 'spillgate_refusing{code="store_unavailable"} 1.0' in text

    async with serve(storage_key_file=keys) as client:
        result = {"tool_name": "t", "content": "a line\n" * 3000}
        handle = (await client.post("/results", json=result)).json()["handle"]
        keys.write_text(f"two:{'2' * 64}\n")
        assert (await client.get(f"/results/{handle}/content")).status_code == 503
        assert not await refusing(client)
        shutil.rmtree(tmp_path / "state" / "tool_output")
        assert (await client.post("/results", json=result)).status_code == 503
        assert await refusing(client)


async def test_what_is_nearly_full_does_not_page_again_for_a_percent(promtool: str, tmp_path: Path) -> None:
    alert = "SpillgateStoreNearlyFull"
    given = [
        {"series": "spillgate_stored_bytes", "values": "91x10 88x10 91x10 84x10 88x10"},
        {"series": "spillgate_stored_bytes_cap", "values": "100x60"},
    ]
    labels = f'{{alertname="{alert}"}}'
    checks = [firing_at(alert, 60 * at, labels) for at in range(1, 33)]
    checks += [firing_at(alert, 60 * at, None) for at in (0, *range(34, 55))]
    check_rules(promtool, tmp_path, [{"interval": "1m", "input_series": given, "promql_expr_test": checks}])


def test_each_alert_says_what_to_run_first_and_its_causes() -> None:
    page = (ROOT / RULES[0]["annotations"]["runbook"]).read_text()
    for rule in RULES:
        told = rule["annotations"]
        assert told["run_first"], rule["alert"]
        assert told["causes"], rule["alert"]
        assert told["runbook"] == "docs/reference/alerts.md"
        assert f"`{rule['alert']}`" in page


def test_the_ports_that_are_scraped_are_those_of_the_pods() -> None:
    monitors = list(yaml.safe_load_all((DEPLOY / "podmonitor.yaml").read_text()))
    scraped = {one["port"] for monitor in monitors for one in monitor["spec"]["podMetricsEndpoints"]}
    manifests = "".join(path.read_text() for path in (DEPLOY / "kubernetes").glob("*.yaml"))
    assert all(f"name: {port}, containerPort:" in manifests for port in scraped)
