"""Settings: read from the environment, documented, and refused where they cannot be honoured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import main
from app.settings import PREFIX, Settings, load_settings
from domain.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docs" / "settings.md").read_text()
    for name, field in Settings.model_fields.items():
        assert f"`{PREFIX}{name.upper()}`" in text
        assert field.description
        assert field.description in text, name


def test_the_defaults_are_those_of_the_contract() -> None:
    settings = Settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 8377)
    assert settings.max_bytes == 12_288
    assert (settings.context_window, settings.buffer_tokens, settings.max_output_tokens) == (
        131_072,
        8192,
        16_384,
    )
    assert settings.max_body_bytes == 64 << 20
    assert settings.retention_seconds == 86_400
    assert settings.storage_max_bytes == 2 << 30
    assert settings.encoding == "o200k_base"
    assert (settings.extract_deadline_ms, settings.extract_fallback) == (60_000, "truncate")


def test_an_unknown_setting_names_the_nearest_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPILLGATE_MAX_BYTE", "1")
    with pytest.raises(ConfigError, match="Did you mean SPILLGATE_MAX_BYTES"):
        load_settings()


@pytest.mark.parametrize("value", ["-1", "1000001", "many"])
def test_a_wrong_value_names_its_setting_and_not_the_value(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("SPILLGATE_MAX_BYTES", value)
    with pytest.raises(ConfigError, match="SPILLGATE_MAX_BYTES") as refused:
        load_settings()
    assert "many" not in str(refused.value)


def test_without_keys_only_loopback_may_be_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPILLGATE_HOST", "0.0.0.0")
    with pytest.raises(ConfigError, match="API_KEYS_FILE"):
        load_settings()
    keys = tmp_path / "keys"
    keys.write_text("a:" + "0" * 64)
    monkeypatch.setenv("SPILLGATE_API_KEYS_FILE", str(keys))
    assert load_settings().host == "0.0.0.0"


def test_bypass_tools_are_read_under_both_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOL_RESULT_BYPASS_TOOLS", "a, b*")
    assert load_settings().bypass_tools == ("a", "b*")


def test_the_ledger_follows_the_store() -> None:
    assert Settings(storage_url="disk:///x").ledger == "sqlite:///x/ledger.db"
    assert Settings(storage_url="memory:").ledger == "memory:"


def test_check_config_shows_what_is_in_force(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[tools.read_file]\nmax_bytes = 99\n")
    monkeypatch.setenv("SPILLGATE_POLICY_FILE", str(policy))
    monkeypatch.setenv("SPILLGATE_STORAGE_URL", "redis://user:secret@host/0")
    assert main(["check-config", "--tool", "read_file", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["policy"]["max_bytes"] == 99
    assert "secret" not in json.dumps(shown)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[defaults]\n\nmax_byte = 3\n", "line 3: defaults.max_byte is not a key; max_bytes is"),
        ('[tools."read_*"]\nbypass = 1\n', "line 2: tools.read_*.bypass must be true or false"),
        ("[defaults]\nmax_bytes = \n", "line 2"),
        ('[defaults]\non_oversize = "explode"\n', "line 2: defaults.on_oversize must be one of store"),
        ("[models.x]\nwindow = 3\n", "line 2: models.x.window is not a key"),
    ],
)
def test_a_bad_policy_file_refuses_to_start_and_names_the_line(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    said: str,
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(text)
    monkeypatch.setenv("SPILLGATE_POLICY_FILE", str(policy))
    assert main(["check-config"]) == 1
    assert said in capsys.readouterr().err


def test_openapi_prints_the_document() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "app.cli", "openapi"], cwd=ROOT, capture_output=True, check=True
    )
    assert json.loads(done.stdout)["info"]["title"] == "Spillgate"


def test_healthcheck_fails_where_nothing_listens() -> None:
    assert main(["healthcheck", "--port", "1"]) == 1
