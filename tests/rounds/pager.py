"""What the alerts of deploy/alerts.yaml would have said, by promtool over scrapes of the replicas."""

import asyncio
import json
import re
import subprocess
import tempfile
import time
from pathlib import Path

import httpx

RULES = Path(__file__).resolve().parents[2] / "deploy" / "alerts.yaml"
STEP_SECONDS = 15
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(\{.*\})? (\S+)$")
_GOT = re.compile(r'alertname="(\w+)"')


class Pager:
    """Scrapes every STEP_SECONDS, as Prometheus does. A series that is absent has `_` for a value."""

    def __init__(self, targets: dict[str, str], key: str) -> None:
        self._targets, self._key = targets, key
        self._series: dict[str, list[str]] = {}
        self._scrapes = 0
        self._began = time.time()
        self._watched = set(re.findall(r"\b(?:spillgate|process)_[a-z_]+", RULES.read_text()))

    async def follow(self) -> None:
        headers = {"Authorization": f"Bearer {self._key}"}
        async with httpx.AsyncClient(headers=headers, trust_env=False, timeout=5) as client:
            while True:
                await asyncio.gather(*(self._scrape(client, *target) for target in self._targets.items()))
                self._scrapes += 1
                for values in self._series.values():
                    values += ["_"] * (self._scrapes - len(values))
                await asyncio.sleep(max(0.0, self._began + self._scrapes * STEP_SECONDS - time.time()))

    async def _scrape(self, client: httpx.AsyncClient, name: str, url: str) -> None:
        try:
            answer = await client.get(f"{url}/metrics")
            lines = answer.text.splitlines() if answer.status_code == 200 else []
        except httpx.TransportError:
            lines = []
        self._put(f'up{{job="spillgate",instance="{name}"}}', "1" if lines else "0")
        for line in lines:
            match = _SAMPLE.match(line)
            if match and match[1] in self._watched:
                labels = (match[2] or "{}")[1:-1]
                more = f'job="spillgate",instance="{name}"' + (f",{labels}" if labels else "")
                self._put(f"{match[1]}{{{more}}}", match[3])

    def _put(self, series: str, value: str) -> None:
        values = self._series.setdefault(series, [])
        values += ["_"] * (self._scrapes - len(values))
        values.append(value)

    def said(self) -> list[tuple[str, float, float]]:
        """Each time that an alert fired, with the Unix times of its first and last evaluation."""
        times = [step * STEP_SECONDS for step in range(self._scrapes)]
        checks = [
            {
                "expr": f'count by (alertname) (ALERTS{{alertstate="firing"}}) + {at} * 1000',
                "eval_time": f"{at}s",
                "exp_samples": [{"labels": "never", "value": 0}],
            }
            for at in times
        ]
        series = [{"series": name, "values": " ".join(values)} for name, values in self._series.items()]
        tests = [{"interval": f"{STEP_SECONDS}s", "input_series": series, "promql_expr_test": checks}]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "tests.yaml"
            rules = {"rule_files": [str(RULES)], "evaluation_interval": f"{STEP_SECONDS}s", "tests": tests}
            file.write_text(json.dumps(rules))
            ran = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True)
        return self._spans(ran.stdout + ran.stderr)

    def _spans(self, output: str) -> list[tuple[str, float, float]]:
        spans: list[tuple[str, int, int]] = []
        for part in output.split("expr: ")[1:]:
            at = re.search(r"\+ (\d+) \* 1000", part)
            got = part.partition("got:")[2]
            for alert in _GOT.findall(got) if at else ():
                moment = int(at[1])  # type: ignore[index]
                before = (alert, moment - STEP_SECONDS)
                first = next((span[1] for span in spans if (span[0], span[2]) == before), moment)
                spans = [span for span in spans if (span[0], span[2]) != before]
                spans.append((alert, first, moment))
        return [(alert, self._began + first, self._began + last) for alert, first, last in sorted(spans)]
