"""Settings: read from the environment, documented, and refused where they are not valid."""

import json
import re
from contextlib import suppress
from pathlib import Path

import pytest

from app.config_report import mask_url
from app.settings import CENTURY_SECONDS, REMOVED, Settings, load_settings
from app.sweeper import sweep
from beside.main import main
from domain.errors import ConfigError
from tests.conftest import served

ROOT = Path(__file__).resolve().parents[3]


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


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        *(
            (name, "secret", f"Did you mean SPILLGATE_{meant}?")
            for name, meant in (("MAX_BYTE", "MAX_BYTES"), ("SIZE_CAPP", "MAX_BYTES"), ("PROT", "PORT"))
        ),
        *(("MAX_BYTES", value, "SPILLGATE_MAX_BYTES") for value in ("-1", "1000001", "secret")),
        ("MAX_BYTES", "1GB", "SPILLGATE_MAX_BYTES: must be a number of bytes, such as 12288"),
        ("STORAGE_MAX_BYTES", "1GB", "STORAGE_MAX_BYTES: must be a number of bytes, such as 1073741824"),
        ("PORT", "secret", "SPILLGATE_PORT: must be a whole number."),
        ("REQUIRE_BUDGET", "secret", "SPILLGATE_REQUIRE_BUDGET: must be true or false."),
        ("PORT", "99999", "SPILLGATE_PORT: must be less than or equal to 65535."),
        *(
            ("ALLOWED_HOSTS", value, "SPILLGATE_ALLOWED_HOSTS: write names such as spillgate.example.com")
            for value in ("http://a.example", "a.example,*.b.example", "a.example/x")
        ),
        ("RETENTION_SECONDS", "3155760001", "must be less than or equal to 3155760000."),
        ("LEDGER_RETENTION_SECONDS", "3155760001", "must be less than or equal to 3155760000."),
        (
            "LLM_BASE_URL",
            "api.example.com/v1",
            "SPILLGATE_LLM_BASE_URL must be a URL like https://api.example",
        ),
        ("LLM_BASE_URL", "https://key@host/v1", "Put a key into SPILLGATE_LLM_API_KEY."),
    ],
)
def test_a_refusal_names_the_setting_and_says_what_to_write(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv("SPILLGATE_LLM_MODELS", "m" if name == "LLM_BASE_URL" else "")
    monkeypatch.setenv(f"SPILLGATE_{name}", value)
    with pytest.raises(ConfigError) as refused:
        load_settings()
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)


def test_an_empty_setting_is_refused_by_name_unless_it_means_none(monkeypatch: pytest.MonkeyPatch) -> None:
    may = {"BYPASS_TOOLS", "LLM_MODELS", "EMBED_MODEL", "LLM_API_KEY", "KEY", "SESSION"}
    for name in (field.upper() for field in Settings.model_fields):
        monkeypatch.setenv(f"SPILLGATE_{name}", "")
        if name in may:
            assert not getattr(load_settings(), name.lower())
        else:
            with pytest.raises(ConfigError, match=f"^SPILLGATE_{name} is empty. Give it a value"):
                load_settings()
        monkeypatch.delenv(f"SPILLGATE_{name}")


@pytest.mark.parametrize("value", ["disk", ""])
@pytest.mark.parametrize("name", [*REMOVED, *map(str.lower, REMOVED)])
def test_a_removed_setting_is_told_as_removed(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"SPILLGATE_{name}", value)
    with pytest.raises(ConfigError, match=f"^SPILLGATE_{name} was removed: .*Take it out of the environment"):
        load_settings()


def test_the_removed_settings_are_those_of_the_changelog() -> None:
    removed = re.findall(
        r"^### Removed\n(.*?)^##", (ROOT / "CHANGELOG.md").read_text(), re.DOTALL | re.MULTILINE
    )
    named = re.findall(r"^- `SPILLGATE_([A-Z_]+)`", "".join(removed), re.MULTILINE)
    assert sorted(named) == sorted(REMOVED)
    assert REMOVED.keys().isdisjoint(name.upper() for name in Settings.model_fields)
    upgrading = (ROOT / "docs/upgrading.md").read_text()
    assert [name for name in REMOVED if f"`SPILLGATE_{name}`" not in upgrading] == []


def test_an_unknown_encoding_is_named_by_its_setting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPILLGATE_ENCODING", "MARK")
    assert main(["check-config"]) == 2
    said = "spillgate: SPILLGATE_ENCODING: unknown encoding. Use one of: o200k_base, cl100k_base.\n"
    assert capsys.readouterr().err == said


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
    monkeypatch.setenv("SPILLGATE_BYPASS_TOOLS", "")
    assert load_settings().bypass_tools == ()
    monkeypatch.setenv("SPILLGATE_BYPASS_TOOLS", "b")
    with pytest.raises(ConfigError, match="TOOL_RESULT_BYPASS_TOOLS are both set"):
        load_settings()


def test_the_ledger_follows_the_store() -> None:
    assert Settings(storage_url="disk:///x").ledger == "sqlite:///x/ledger.db"
    assert Settings(storage_url="memory:").ledger == "memory:"


def test_check_config_masks_passwords_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for url, shown in [
        ("redis://:pass@host:6379/0", "redis://:***@host:6379/0"),
        ("redis://user:pass@host", "redis://user:***@host"),
        ("rediss://user:p:a/s?s@@host:1/0", "rediss://user:***@host:1/0"),
        ("redis+cluster://user:pass@one:1,two:2", "redis+cluster://user:***@one:1,two:2"),
        (
            "redis+sentinel://:pass@one:1,two/main/0?sentinel_password=pass&max_connections=5",
            "redis+sentinel://:***@one:1,two/main/0?sentinel_password=***&max_connections=5",
        ),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://pass@host", "redis://***@host"),
        ("redis://pass:@host", "redis://***@host"),
        ("redis:pass@host", "redis:***@host"),
        ("pass@host", "***@host"),
        (
            "redis://host/0?ssl_ca_certs=/ca&PassWord=pass&pass",
            "redis://host/0?ssl_ca_certs=/ca&PassWord=***&***",
        ),
        ("disk://user:pass@host/x", "disk://user:***@host/x"),
        ("disk:///var/l@b", "disk:///var/l@b"),
        ("disk:///var/lib/x", "disk:///var/lib/x"),
    ]:
        file = tmp_path / "url"
        file.write_text(f"{url}\n")
        monkeypatch.setenv("SPILLGATE_STORAGE_URL_FILE", str(file))
        monkeypatch.setenv("SPILLGATE_LEDGER_URL", url)
        assert mask_url(url) == shown
        status, printed = main(["check-config", "--json"]), capsys.readouterr()
        out = printed.out.replace('"repeat": "pass"', "")
        assert not re.search(r'[:/=&"]pass\b|s@@', out + printed.err)
        if status == 0:
            settings = json.loads(printed.out)["settings"]
            assert (settings["SPILLGATE_STORAGE_URL"], settings["SPILLGATE_LEDGER_URL"]) == (shown, shown)


def test_urls_are_read_from_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name, text in (("STORAGE", "disk:\n"), ("LEDGER", " redis://:pass@host\n")):
        (tmp_path / name).write_text(text)
        monkeypatch.setenv(f"SPILLGATE_{name}_URL_FILE", str(tmp_path / name))
    settings = load_settings()
    assert (settings.store, settings.ledger) == (f"disk://{tmp_path}/spillgate", "redis://:pass@host")
    monkeypatch.delenv("SPILLGATE_LEDGER_URL_FILE")
    assert load_settings().ledger == f"sqlite://{tmp_path}/spillgate/ledger.db"


def test_a_user_without_a_home_directory_is_told_what_to_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    assert main(["check-config"]) == 2
    assert capsys.readouterr().err.startswith("spillgate: The state directory is not known: set HOME, or ")


@pytest.mark.parametrize("name", ["STORAGE_URL", "LEDGER_URL", "LLM_API_KEY"])
def test_a_setting_and_its_file_are_not_both_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    (tmp_path / "url").write_text("memory:")
    monkeypatch.setenv(f"SPILLGATE_{name}_FILE", str(tmp_path / "url"))
    monkeypatch.setenv(f"SPILLGATE_{name}", "memory:")
    with pytest.raises(ConfigError, match=f"{name} and SPILLGATE_{name}_FILE are both set"):
        load_settings()


@pytest.mark.parametrize("name", ["STORAGE_URL", "LEDGER_URL"])
def test_a_url_file_that_cannot_be_read_refuses_to_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setenv(f"SPILLGATE_{name}_FILE", str(tmp_path / "missing"))
    assert main(["check-config"]) == 2
    assert f"SPILLGATE_{name}_FILE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ([], ["serve until stopped", "`spillgate check-config` shows them all."]),
        (["serve"], ["Serve until stopped.", "overrides SPILLGATE_PORT"]),
        (
            ["ask"],
            [
                "Ask a question about a stored result.",
                "at SPILLGATE_URL. Without that setting, asks the user's own service",
            ],
        ),
        (["hook"], ["usage: spillgate hook CLIENT", "spillgate hook install|uninstall|status CLIENT"]),
    ],
)
def test_help_says_what_a_command_does_and_which_service_it_asks(
    command: list[str], says: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with suppress(SystemExit):
        assert main([*command, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(text in shown for text in says)


def test_openapi_prints_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["openapi"]) == 0
    assert json.loads(capsys.readouterr().out)["info"]["title"] == "Spillgate"


def test_healthcheck_fails_where_nothing_listens() -> None:
    assert main(["healthcheck", "--port", "1"]) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["disk", "redis"])
async def test_results_are_stored_and_swept_with_the_longest_retention(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"disk://{tmp_path}/state" if where == "disk" else request.getfixturevalue("redis_url")
    longest = {"retention_seconds": CENTURY_SECONDS, "ledger_retention_seconds": CENTURY_SECONDS}
    async with served(storage_url=url, **longest) as (rt, client):
        sent = {"tool_name": "t", "tool_call_id": "c", "content": "x" * 20_000}
        assert (await client.post("/results", json=sent)).status_code == 201
        assert await sweep(rt, left_behind=True) == 0
        assert len((await client.get("/sessions")).json()["sessions"]) == 1
