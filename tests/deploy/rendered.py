"""The plain manifests, rendered from the charts, and the names of settings in the schemas of the charts:
`python -m tests.deploy.rendered` writes them."""

import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

from app.settings import PREFIX, Settings
from tests.deploy.manifests import DEPLOY, ROOT, Node

_MONITORS = ("podMonitor.enabled=true", "podMonitor.sidecars=true")
_HEAD = "# Rendered from the chart {} by `make manifests`.\n"


def program(name: str) -> str:
    """helm or kubectl: that of `make .helm/.ready`, else the machine's own. Skips the test without one."""
    own, runs_here = ROOT / ".helm" / name / name, (sys.platform, platform.machine()) == ("linux", "x86_64")
    found = str(own) if runs_here and own.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is missing: `make .helm/.ready` installs it on x86-64 Linux")
    return found


def run(name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([program(name), *arguments], capture_output=True, text=True)


def helm_template(chart: Path, release: str, *settings: str, values: str = "") -> str:
    """Renders a chart with `settings`, as in `user=1`, over a text of values. Raises ValueError."""
    given = [part for one in settings for part in ("--set", one)]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(values)
        file.flush()
        done = run("helm", "template", release, str(chart), "--values", file.name, *given)
    if done.returncode != 0:
        raise ValueError(done.stderr)
    return done.stdout


def render_shared(*settings: str, values: str = "") -> list[Node]:
    text = helm_template(DEPLOY / "chart", "spillgate", *settings, values=values)
    return [one for one in yaml.safe_load_all(text) if one]


def render_agent(*settings: str, values: str = "") -> str:
    """The example's chart, with the library where `helm dependency update` would put it."""
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder) / "agent"
        shutil.copytree(DEPLOY / "examples" / "agent", chart)
        shutil.copytree(DEPLOY / "sidecar", chart / "charts" / "spillgate-sidecar")
        return helm_template(chart, "agent", *settings, values=values)


def _component() -> str:
    """What the library puts into a Pod, as a patch. Its kind and name become those of the target."""
    spec = next(yaml.safe_load_all(render_agent()))["spec"]["template"]["spec"]
    pod = {name: value for name, value in spec.items() if name not in ("containers", "restartPolicy")}
    patch = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "any"},
        "spec": {"template": {"spec": pod}},
    }
    return yaml.safe_dump(patch, sort_keys=False)


_OF_COMMANDS = {"url", "key", "key_file", "session", "auto_start", "hook_timeout_ms"}
"""Settings of commands and hooks, which `serve` ignores."""

_SECRETS = {"llm_api_key"}
"""A Secret and the setting `…_FILE` are for these."""

_ELSEWHERE = {
    "chart": {"port", "uds", "storage_url", "ledger_url", "tenant"},
    "sidecar": {"host", "port"},
}
"""Settings that a chart decides without naming them. `tenant` is for a service without keys."""


_SETTING = '{"$ref": "#/definitions/setting"}'


def schemas() -> dict[Path, str]:
    """Returns the text of the schema of each chart's values."""
    return {DEPLOY / chart / "values.schema.json": _schema_of(chart) for chart in _ELSEWHERE}


def _schema_of(chart: str) -> str:
    """The schema as it is, with the names that `settings` may have."""
    folder = DEPLOY / chart
    templates = "".join(path.read_text() for path in (folder / "templates").iterdir())
    decided = {name.lower() for name in re.findall(rf"{PREFIX}([A-Z_]+)", templates)}
    left = sorted(Settings.model_fields.keys() - decided - _OF_COMMANDS - _SECRETS - _ELSEWHERE[chart])
    lines = ",\n".join(f'        "{PREFIX}{name.upper()}": {_SETTING}' for name in left)
    text = (folder / "values.schema.json").read_text()
    return re.sub(rf'( +"{PREFIX}\w+": {re.escape(_SETTING)},?\n)+', f"{lines}\n", text)


def manifests() -> dict[Path, str]:
    """Returns the text of each rendered file."""
    shared = helm_template(DEPLOY / "chart", "spillgate")
    monitors = helm_template(DEPLOY / "chart", "spillgate", *_MONITORS)
    monitors = "".join(f"---\n{one}" for one in monitors.split("---\n") if "kind: PodMonitor" in one)
    return {
        DEPLOY / "kubernetes" / "shared.yaml": _HEAD.format("deploy/chart") + shared,
        DEPLOY / "kubernetes" / "sidecar.yaml": _HEAD.format("deploy/examples/agent") + render_agent(),
        DEPLOY / "podmonitor.yaml": _HEAD.format("deploy/chart") + monitors,
        DEPLOY / "kustomize" / "sidecar" / "pod.yaml": _HEAD.format("deploy/sidecar") + _component(),
    }


if __name__ == "__main__":
    # The charts are rendered with the new schemas.
    for made in (schemas, manifests):
        for path, text in made().items():
            path.write_text(text)
