"""Coding agents from the npm registry, each with a home of its own, that ask a scripted model.

`make interop` installs them into `.agents` from `package-lock.json`. A test adds what it tests (an MCP server
with `add_mcp`, hooks and plugins as files below `home` or `project`) and calls `run`, which ends with the
agent.
"""

import asyncio
import json
import os
import signal
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.interop.agents.model import ScriptedModel

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = Path(os.environ.get("INTEROP_AGENTS") or ROOT / ".agents") / "node_modules" / ".bin"

_RUN_SECONDS = 180
_KEY = "sk-scripted"


@dataclass(frozen=True, slots=True)
class Ran:
    exit_code: int
    stdout: str
    stderr: str


class Agent(ABC):
    """`home` is $HOME of the program, `project` is where it works. Skips the test if it is not installed."""

    program: ClassVar[str]

    def __init__(self, folder: Path, model: ScriptedModel) -> None:
        if not self.path.exists():
            pytest.skip("the coding agents are not installed: run `make interop`")
        self.home = folder / "home"
        self.project = folder / "project"
        self.model = model
        self.servers: dict[str, dict[str, Any]] = {}
        self.environ: dict[str, str] = {}
        """More variables for the program. It gets none of this process but PATH."""
        for each in (self.home, self.project):
            each.mkdir(parents=True)

    @property
    def path(self) -> Path:
        return PROGRAMS / self.program

    @abstractmethod
    def add_mcp(self, name: str, server: str | list[str]) -> None:
        """Adds an MCP server: the URL of one, or the command line of one on stdio."""

    @abstractmethod
    def _command(self, prompt: str) -> list[str]:
        """Writes the settings and returns the arguments of a run that asks no questions."""

    async def run(self, prompt: str, *arguments: str) -> Ran:
        """Runs the agent to its end. Kills it, and all that it started, after three minutes."""
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.home), "TERM": "dumb", "NO_COLOR": "1"}
        process = await asyncio.create_subprocess_exec(
            self.path,
            *self._command(prompt),
            *arguments,
            cwd=self.project,
            env={**environ, **self.environ},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(_RUN_SECONDS):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(), err.decode())


class ClaudeCode(Agent):
    """Reads `home/.claude/settings.json`, which a test may write: `settings` is put there before a run. Names
    an MCP server's tools `mcp__SERVER__TOOL`. `run` prints one JSON object with `result`."""

    program = "claude"

    def __init__(self, folder: Path, model: ScriptedModel) -> None:
        super().__init__(folder, model)
        self.settings: dict[str, Any] = {}
        self.environ |= {
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": _KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            # Without it the program, run by root, refuses to skip its questions.
            "IS_SANDBOX": "1",
        }

    def add_mcp(self, name: str, server: str | list[str]) -> None:
        if isinstance(server, str):
            self.servers[name] = {"type": "http", "url": server}
        else:
            self.servers[name] = {"command": server[0], "args": server[1:]}

    def _command(self, prompt: str) -> list[str]:
        settings = self.home / ".claude" / "settings.json"
        settings.parent.mkdir(exist_ok=True)
        settings.write_text(json.dumps(self.settings))
        servers = json.dumps({"mcpServers": self.servers})
        how = ["--output-format", "json", "--dangerously-skip-permissions", "--strict-mcp-config"]
        return ["-p", prompt, *how, "--mcp-config", servers]


class Codex(Agent):
    """Reads `home/.codex`: `config.toml` is written before a run, with the lines of `config` at its
    beginning; a test may add files beside it. Finds an MCP server's tools by its tool `tool_search`."""

    program = "codex"

    def __init__(self, folder: Path, model: ScriptedModel) -> None:
        super().__init__(folder, model)
        self.config: list[str] = []
        self.folder = self.home / ".codex"
        self.folder.mkdir()
        self.environ |= {"SCRIPTED_KEY": _KEY}

    def add_mcp(self, name: str, server: str | list[str]) -> None:
        if isinstance(server, str):
            self.servers[name] = {"url": server}
        else:
            self.servers[name] = {"command": server[0], "args": server[1:]}

    def _command(self, prompt: str) -> list[str]:
        lines = [
            *self.config,
            'model = "scripted"',
            'model_provider = "loopback"',
            'approval_policy = "never"',
            'sandbox_mode = "danger-full-access"',
            "[analytics]",
            "enabled = false",
            "[model_providers.loopback]",
            'name = "loopback"',
            f'base_url = "{self.model.url}/v1"',
            'env_key = "SCRIPTED_KEY"',
            'wire_api = "responses"',
        ]
        for name, server in self.servers.items():
            lines += [
                f"[mcp_servers.{name}]",
                *(f"{key} = {json.dumps(value)}" for key, value in server.items()),
            ]
        (self.folder / "config.toml").write_text("\n".join(lines) + "\n")
        return ["exec", "--skip-git-repo-check", prompt]


class OpenCode(Agent):
    """Reads `project/opencode.json`: `config` is put there before a run, and plugins are files in
    `project/.opencode/plugin`. Names an MCP server's tools `SERVER_TOOL`."""

    program = "opencode"

    def __init__(self, folder: Path, model: ScriptedModel) -> None:
        super().__init__(folder, model)
        self.config: dict[str, Any] = {}
        self.environ |= {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
        # Beside a plugin of a project it installs a package of types, and goes on if it cannot.
        self.environ |= {"npm_config_registry": "http://127.0.0.1:9", "npm_config_fetch_retries": "0"}

    def add_mcp(self, name: str, server: str | list[str]) -> None:
        if isinstance(server, str):
            self.servers[name] = {"type": "remote", "url": server}
        else:
            self.servers[name] = {"type": "local", "command": server}

    def _command(self, prompt: str) -> list[str]:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{self.model.url}/v1", "apiKey": _KEY},
            "models": {"scripted": {"limit": {"context": 200_000, "output": 8192}}},
        }
        config = {
            "provider": {"loopback": provider},
            "model": "loopback/scripted",
            "permission": "allow",
            "share": "disabled",
            "mcp": self.servers,
            **self.config,
        }
        (self.project / "opencode.json").write_text(json.dumps(config))
        return ["run", prompt]


class CopilotCli(Agent):
    """Reads `home/.copilot`: a test may add hooks and MCP servers there. Names an MCP server's tools
    `SERVER-TOOL`."""

    program = "copilot"

    def __init__(self, folder: Path, model: ScriptedModel) -> None:
        super().__init__(folder, model)
        self.environ |= {
            "COPILOT_PROVIDER_BASE_URL": f"{model.url}/v1",
            "COPILOT_PROVIDER_API_KEY": _KEY,
            "COPILOT_MODEL": "scripted",
            "COPILOT_OFFLINE": "true",
        }

    def add_mcp(self, name: str, server: str | list[str]) -> None:
        if isinstance(server, str):
            self.servers[name] = {"type": "http", "url": server, "tools": ["*"]}
        else:
            self.servers[name] = {"type": "local", "command": server[0], "args": server[1:], "tools": ["*"]}

    def _command(self, prompt: str) -> list[str]:
        folder = self.home / ".copilot"
        folder.mkdir(exist_ok=True)
        (folder / "mcp-config.json").write_text(json.dumps({"mcpServers": self.servers}))
        # A person would allow the path of a program outside the project once.
        return ["-p", prompt, "--allow-all-tools", "--allow-all-paths", "--no-color"]


class GeminiCli(Agent):
    """Reads `home/.gemini/settings.json`: `settings` is put there before a run. Names an MCP server's tools
    `mcp_SERVER_TOOL`."""

    program = "gemini"

    def __init__(self, folder: Path, model: ScriptedModel) -> None:
        super().__init__(folder, model)
        self.settings: dict[str, Any] = {}
        self.environ |= {"GEMINI_API_KEY": _KEY, "GOOGLE_GEMINI_BASE_URL": model.url}

    def add_mcp(self, name: str, server: str | list[str]) -> None:
        if isinstance(server, str):
            self.servers[name] = {"url": server, "type": "http"}
        else:
            self.servers[name] = {"command": server[0], "args": server[1:]}

    def _command(self, prompt: str) -> list[str]:
        settings = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"disableAutoUpdate": True, "disableUpdateNag": True},
            "mcpServers": self.servers,
            **self.settings,
        }
        path = self.home / ".gemini" / "settings.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(settings))
        return ["--prompt", prompt, "--yolo", "--skip-trust", "--model", "gemini-2.5-pro"]
