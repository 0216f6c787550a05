"""The command under `uvx`, which runs it from a cache: what a settings file names must stay when the cache is
emptied, so the same package is installed with `uv tool install`. From then on uvx runs that one."""

import json
import os
import subprocess
import sys
from importlib.metadata import distribution

from domain import __version__
from domain.errors import ConfigError


def tool_path() -> str | None:
    """Where `uv tool install` puts the command, if uvx runs this process; else None. Raises ConfigError."""
    if "UV" not in os.environ or not (_is_below("cache") or _is_below("tool")):
        return None
    return os.path.join(_output_of_uv("tool", "dir", "--bin"), "spillgate")


def install_tool() -> None:
    """Puts the command at `tool_path` if this process runs from the cache. Raises ConfigError with what uv
    says."""
    if "UV" not in os.environ or not _is_below("cache"):
        return
    interpreter = os.path.realpath(sys.executable)
    _output_of_uv("tool", "install", "--quiet", "--python", interpreter, _package())
    print(f"installed {tool_path()} with `uv tool install`: uvx runs from a cache")


def _is_below(what: str) -> bool:
    """Whether this process runs from uv's cache, or from the tools that uv has installed."""
    folder = os.path.realpath(_output_of_uv(what, "dir"))
    return os.path.realpath(sys.prefix).startswith(folder + os.sep)


def _package() -> str:
    """What this process was installed from, as a requirement: a file, a repository, or the index."""
    origin = json.loads(distribution("spillgate").read_text("direct_url.json") or "{}")
    if "url" not in origin:
        return f"spillgate=={__version__}"
    version = origin.get("vcs_info")
    return (
        f"spillgate @ {version['vcs']}+{origin['url']}@{version['commit_id']}" if version else origin["url"]
    )


def _output_of_uv(*arguments: str) -> str:
    """What uv prints. `UV` is the path of the uv that started this process."""
    try:
        done = subprocess.run(  # noqa: S603
            [os.environ["UV"], *arguments], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise ConfigError(f"uv cannot be run: {error.strerror}.") from None
    if done.returncode:
        raise ConfigError(f"`uv {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return done.stdout.strip()
