"""The files that hold the version of a release agree; TAG, which a release is built for, names it, too."""

import json
import os
import re
from pathlib import Path
from typing import Any

from beside.hooks.agents import PLANS
from beside.hooks.files import Setup
from domain import __version__

ROOT = Path(__file__).parents[2]
CHANNELS = [
    ".claude-plugin/marketplace.json",
    ".github/plugin/marketplace.json",
    "clients/typescript/package.json",
    "clients/typescript/package-lock.json",
    "integrations/claude-code/.claude-plugin/plugin.json",
    "integrations/copilot/plugin.json",
    "integrations/gemini/gemini-extension.json",
    "openapi/openapi.json",
    "server.json",
]


def read(name: str) -> Any:
    return json.loads((ROOT / name).read_text())


def versions(value: Any) -> list[str]:
    """Those of the file, of its packages and of its plugins."""
    own = [value["version"]] if "version" in value else []
    inner = [value[name] for name in ("info", "metadata") if name in value]
    lists = [
        item for name in ("packages", "plugins") for item in value.get(name, []) if isinstance(item, dict)
    ]
    return own + [one for part in (*inner, *lists) for one in versions(part)]


def test_all_files_hold_the_version_of_the_package() -> None:
    for name in CHANNELS:
        assert set(versions(read(name))) == {__version__}, name
    for chart in ("chart", "sidecar"):
        text = (ROOT / "deploy" / chart / "Chart.yaml").read_text()
        assert set(re.findall(r"^(?:appV|v)ersion: \"?([^\"\n]+)", text, re.M)) == {__version__}, chart
    client = (ROOT / "clients/python/spillgate/__init__.py").read_text()
    assert f'__version__ = "{__version__}"' in client
    assert os.environ.get("TAG", f"v{__version__}") == f"v{__version__}"


def test_the_entry_of_the_mcp_registry_is_one_that_it_takes() -> None:
    """Its schema of 2025-12-11 wants a name with a namespace, and at most 100 characters that describe the
    server. The README on PyPI names the entry."""
    server = read("server.json")
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", server["name"])
    assert len(server["description"]) <= 100
    [package] = server["packages"]
    assert (package["registryType"], package["identifier"]) == ("pypi", "spillgate")
    assert [one["value"] for one in package["packageArguments"]] == ["mcp", "--tools"]
    assert f"mcp-name: {server['name']}" in (ROOT / "README.md").read_text()


def test_each_step_of_a_workflow_is_an_action_with_a_hash_or_a_target_of_make() -> None:
    targets = set(re.findall(r"^([\w/.-]+):", (ROOT / "Makefile").read_text(), re.M))
    for path in (ROOT / ".github/workflows").iterdir():
        for key, value in re.findall(r"- (uses|run): (.*)", path.read_text()):
            if key == "uses":
                assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", value), value
            else:
                command, *names = value.split()
                assert command == "make", value
                assert set(names) <= targets, value


def test_plugin_and_extension_have_the_hooks_that_are_installed() -> None:
    setup = Setup(Path("/home"), None, {}, "spillgate", "http://127.0.0.1:8377", False)
    [settings] = PLANS["gemini"].files(setup)
    hooks = {keys[1]: entry for keys, entry in settings.entries if keys[0] == "hooks"}
    assert read("integrations/gemini/hooks/hooks.json") == {"hooks": hooks}
    [[_, post]] = PLANS["copilot"].files(setup)[0].entries
    assert read("integrations/copilot/hooks.json")["hooks"] == {"postToolUse": post}
