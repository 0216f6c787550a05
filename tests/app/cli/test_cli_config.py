"""check-config: what is in force for a tool and a model, and who set it."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli.main import main
from app.runtime import open_runtime
from app.settings import load_settings
from domain.errors import ConfigError
from tests.faults.forking import run

ROOT = Path(__file__).resolve().parents[3]
POLICY = """\
profile = "ouro"

[defaults]
keep = false

[tools."web_*"]
max_chars = 9000

[models.big]
context_window = 500
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    return path


def rows(printed: str) -> dict[str, tuple[str, str]]:
    """Value and place by key, of every table."""
    cells = (line.split(None, 2) for line in printed.splitlines() if line.startswith("  "))
    return {key: (value, place) for key, value, place in cells}


def test_each_key_of_a_tool_has_its_value_and_who_set_it(
    policy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPILLGATE_BYPASS_TOOLS", "web_search")
    monkeypatch.setenv("SPILLGATE_POLICY_FILE", str(policy))
    assert main(["check-config", "--tool", "web_search"]) == 0
    shown = rows(capsys.readouterr().out)
    assert shown["profile"] == ('"ouro"', "policy.toml, line 1")
    assert shown["keep"] == ("false", "policy.toml, [defaults], line 4")
    assert shown["max_chars"] == ("9000", 'policy.toml, [tools."web_*"], line 7')
    assert shown["on_oversize"][0] == '"truncate"'
    assert shown["on_oversize"][1].startswith("profile ouro, [defaults]")
    assert shown["max_chunks"][1].startswith("built-in, [defaults]")
    assert shown["bypass"] == ("true", "SPILLGATE_BYPASS_TOOLS")
    assert "SPILLGATE_HOST" not in shown


def test_the_quotas_of_each_tenant_are_shown_with_who_set_them(
    policy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    policy.write_text("[tenants.team-a]\nmax_sessions = 5\nllm_usd_per_day = 2\n")
    monkeypatch.setenv("SPILLGATE_POLICY_FILE", str(policy))
    monkeypatch.setenv("SPILLGATE_TENANT_REQUESTS_PER_SECOND", "7.5")
    assert main(["check-config"]) == 0
    _, _, printed = capsys.readouterr().out.partition("Quotas of tenant team-a; 0 = none\n")
    own, _, others = printed.partition("Quotas of any tenant that the policy file does not name; 0 = none\n")
    assert rows(own)["max_sessions"] == ("5", "policy.toml, [tenants.team-a], line 2")
    assert rows(own)["llm_usd_per_day"] == ("2.0", "policy.toml, [tenants.team-a], line 3")
    assert rows(own)["requests_per_second"] == ("7.5", "SPILLGATE_TENANT_REQUESTS_PER_SECOND")
    assert rows(others)["max_sessions"] == ("10000", "SPILLGATE_MAX_SESSIONS")
    assert main(["check-config", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["quotas"]["team-a"]["max_sessions"] == 5


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("STORAGE_URL", "redis://["),
        ("STORAGE_URL", "redis://"),
        ("STORAGE_URL", "disk:///"),
        ("LEDGER_URL", "mysql://secret@host/db"),
        ("LEDGER_URL", "redis+sentinel://secret@host"),
        ("LEDGER_URL", "sqlite:///"),
        ("ACCOUNTING_EXPORT", "x" * 300),
    ],
)
async def test_what_names_no_place_is_refused_by_the_check_and_by_the_start_alike(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], setting: str, value: str
) -> None:
    monkeypatch.setenv("SPILLGATE_STORAGE_URL", "memory:")
    monkeypatch.setenv(f"SPILLGATE_{setting}", value)
    assert main(["check-config"]) == 2
    said = capsys.readouterr().err
    assert f"SPILLGATE_{setting}" in said
    assert "secret" not in said
    with pytest.raises(ConfigError) as refused:
        async with open_runtime(load_settings()):
            pass
    assert said == f"spillgate: {refused.value}\n"


def test_without_a_tool_the_settings_are_shown_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPILLGATE_MAX_BYTES", "777")
    monkeypatch.setenv("SPILLGATE_STORAGE_URL", "redis://user:secret@host/0")
    assert main(["check-config"]) == 0
    printed = capsys.readouterr().out
    shown = rows(printed)
    assert shown["SPILLGATE_MAX_BYTES"] == ("777", "environment")
    assert shown["SPILLGATE_PORT"] == ("8377", "default")
    assert shown["max_bytes"] == ("777", "SPILLGATE_MAX_BYTES")
    assert "secret" not in printed


def test_a_models_terms_come_from_the_file_or_from_what_is_known(
    policy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check-config", "--policy", str(policy), "--model", "big"]) == 0
    shown = rows(capsys.readouterr().out)
    assert shown["context_window"] == ("500", "policy.toml, [models.big], line 10")
    assert shown["max_output_tokens"] == ("16384", "SPILLGATE_MAX_OUTPUT_TOKENS")
    assert shown["encoding"] == ('"o200k_base"', "SPILLGATE_ENCODING")
    assert main(["check-config", "--model", "gpt-4"]) == 0
    assert rows(capsys.readouterr().out)["encoding"] == ('"cl100k_base"', "known of the model")


def test_as_json_it_says_the_same(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["check-config", "--policy", str(policy), "--tool", "web_fetch", "--model", "big"]
    assert main(arguments) == 0
    shown = rows(capsys.readouterr().out)
    assert main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    for part in ("policy", "terms"):
        for key, value in told[part].items():
            assert shown[key] == (json.dumps(value), told["set_by"][part][key])
    assert told["settings"]["SPILLGATE_MAX_BYTES"] == 12288


def test_a_bad_file_is_told_whole_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('profile = "uoro"\n[defaults]\nkeep = 1\n')
    assert main(["check-config", "--policy", str(path)]) == 2
    said = capsys.readouterr().err
    assert "policy.toml, line 1: profile must be one of" in said
    assert "the nearest is ouro" in said
    assert "policy.toml, line 3: defaults.keep must be true or false." in said


def test_a_file_that_cannot_be_read_is_named_with_what_named_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none.toml"
    assert main(["check-config", "--policy", str(path)]) == 2
    assert capsys.readouterr().err == f"spillgate: --policy: there is no file {path}.\n"
    assert main(["check-config", "--policy", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"spillgate: --policy: {tmp_path} is a directory, not a file.\n"
    path.write_bytes(b"[defaults]\n\xff")
    monkeypatch.setenv("SPILLGATE_POLICY_FILE", str(path))
    assert main(["check-config"]) == 2
    said = capsys.readouterr().err
    assert said == f"spillgate: SPILLGATE_POLICY_FILE: {path} is not UTF-8 text (byte 11).\n"
    assert main(["serve", "--port", "70000"]) == 2
    assert capsys.readouterr().err.startswith("spillgate: --port: ")


def test_a_secret_given_where_its_files_path_belongs_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPILLGATE_LLM_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("SPILLGATE_LLM_MODELS", "small")
    monkeypatch.setenv("SPILLGATE_LLM_API_KEY_FILE", "sk-secret")
    assert main(["check-config"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("spillgate: SPILLGATE_LLM_API_KEY_FILE: there is no file of that name")
    assert "sk-secret" not in said


def test_what_serve_would_refuse_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    keys, shared = tmp_path / "keys", tmp_path / "shared"
    keys.write_text(f"one:{base64.b64encode(bytes(range(32))).decode()}\n")
    keys.chmod(0o600)
    shared.mkdir()
    shared.chmod(0o777)

    def said(name: str, value: object) -> str:
        with monkeypatch.context() as patch:
            patch.setenv(f"SPILLGATE_{name}", str(value))
            status = main(["check-config"])
        said = capsys.readouterr().err
        assert status == (2 if said else 0)
        return said

    assert said("ACCOUNTING_EXPORT", "-") == ""
    assert said("ACCOUNTING_EXPORT", tmp_path / "new") == ""
    for wrong in (tmp_path / "no" / "file", keys / "file", shared):
        assert "ACCOUNTING_EXPORT cannot be opened" in said("ACCOUNTING_EXPORT", wrong)
    assert said("UDS", tmp_path / "missing" / "sock") == ""
    assert said("UDS", shared / "sock").endswith("Choose a directory of your own.\n")
    assert "shorter path" in said("UDS", tmp_path / ("x" * 120))
    assert said("STORAGE_KEY_FILE", keys) == ""
    monkeypatch.setitem(sys.modules, "storage.sealed.store", None)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for name in [name for name in sys.modules if name.startswith(("cryptography.", "storage.sealed.s"))]:
        monkeypatch.delitem(sys.modules, name)
    assert "Install requirements-extras.lock" in said("STORAGE_KEY_FILE", keys)
    # It has made nothing.
    assert sorted(os.listdir(tmp_path)) == ["keys", "shared"]


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = [sys.executable, "-m", "beside.main", "check-config"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 0


def test_a_store_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    settings = {"SPILLGATE_PORT": "0", "SPILLGATE_STORAGE_URL": f"disk://{path}"}
    done = run(("-m", "beside.main", "serve"), {**os.environ, **settings}, b"")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == (
        f"spillgate: SPILLGATE_STORAGE_URL: {path}/lock cannot be used to store results: Not a directory. "
        "Name a directory that this user may write.\n"
    )
