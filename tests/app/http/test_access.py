"""API keys: who may come in."""

import hashlib
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.http.api.roles import KeyRole
from app.http.edge.api_keys import ApiKey, ApiKeys, load_keys
from app.settings import load_settings
from domain.errors import ConfigError, Unauthorized
from tests.app.http.edge_support import KEY, keys_file
from tests.conftest import Serve
from tests.keys import key_file

DIGEST = hashlib.sha256(KEY.encode()).hexdigest()


class Ticks:
    """A monotonic clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_tenant_may_have_several_keys_and_colons_in_its_name(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"team:blue:{DIGEST.upper()}\nteam:blue:{'0' * 64}\n")
    assert {key.digest: key.tenant for key in load_keys(path).keys.values()} == {
        DIGEST: "team:blue",
        "0" * 64: "team:blue",
    }


def test_a_bad_line_is_named_by_its_number_and_not_repeated(tmp_path: Path) -> None:
    for line in [
        "acme",
        "acme:",
        f":{DIGEST}",
        "acme:short",
        f"../up:{DIGEST}",
        f"a b:{DIGEST}",
        f"acme:{DIGEST}0",
        DIGEST,
        f"acme:{DIGEST}:owner",
        f"acme:{DIGEST}:agent:a name",
        f"acme:{DIGEST}:agent:ci:soon",
    ]:
        path = tmp_path / "keys"
        path.write_text(f"# first\n{line}\n")
        with pytest.raises(ConfigError, match="line 2") as caught:
            ApiKeys(path)
        assert line not in str(caught.value)


def test_a_bad_line_leaves_the_others_in_force_and_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys"
    path.write_text(f"acme:{DIGEST}\nnonsense\nother:{DIGEST}\nacme:{'1' * 64}:::2026-01-01\n")
    keys = ApiKeys(path, now=lambda: datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    assert keys.key_of(KEY).tenant == "acme"
    assert [warning.partition(":")[0] for warning in keys.warnings] == [
        "SPILLGATE_API_KEYS_FILE, line 2",
        "SPILLGATE_API_KEYS_FILE, line 3",
        "SPILLGATE_API_KEYS_FILE",
    ]
    assert keys.warnings[-1].endswith("keys that have expired: 1.")
    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    ("end", "until"), [("2026-02-01", (2026, 2, 1)), ("2026-02-01T12:30Z", (2026, 2, 1, 12, 30))]
)
def test_a_key_ends_at_its_time(tmp_path: Path, end: str, until: tuple[int, int, int]) -> None:
    path = tmp_path / "keys"
    path.write_text(f"acme:{DIGEST}:metrics:ci:{end}\n")
    ends = datetime(*until, tzinfo=UTC).timestamp()
    moment = ends - 1
    keys = ApiKeys(path, now=lambda: moment)
    assert keys.key_of(KEY) == ApiKey("acme", DIGEST, KeyRole.METRICS, "ci", ends)
    assert keys.warnings == []
    moment = ends
    with pytest.raises(Unauthorized, match="expired"):
        keys.key_of(KEY)


def test_a_file_without_keys_is_refused(tmp_path: Path) -> None:
    for content in [b"", b"# none\n", b"\xff\xfe"]:
        path = tmp_path / "keys"
        path.write_bytes(content)
        with pytest.raises(ConfigError):
            ApiKeys(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"API_KEYS_FILE: there is no file {tmp_path}/none"):
        ApiKeys(tmp_path / "none")


def test_a_changed_file_is_read_again_within_a_second(tmp_path: Path) -> None:
    ticks = Ticks()
    path = keys_file(tmp_path / "keys")
    keys = ApiKeys(path, ticks)
    keys_file(path, tenant="renamed")
    assert keys.key_of(KEY).tenant == "acme"
    ticks.now += 1
    assert keys.key_of(KEY).tenant == "renamed"


def test_a_bad_new_file_keeps_the_old_keys_and_warns_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ticks = Ticks()
    path = keys_file(tmp_path / "keys")
    keys = ApiKeys(path, ticks)
    path.write_text("nonsense\n")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            ticks.now += 1
            assert keys.key_of(KEY).tenant == "acme"
    assert len(caplog.records) == 1
    path.unlink()
    ticks.now += 1
    assert keys.key_of(KEY).tenant == "acme"
    keys_file(path, key="new key")
    ticks.now += 1
    assert keys.key_of("new key").tenant == "acme"
    with pytest.raises(Unauthorized):
        keys.key_of(KEY)


def test_the_last_key_that_is_revoked_is_no_longer_in_force(tmp_path: Path) -> None:
    ticks = Ticks()
    path = keys_file(tmp_path / "keys")
    keys = ApiKeys(path, ticks)
    path.write_text("# none\n")
    ticks.now += 1
    with pytest.raises(Unauthorized):
        keys.key_of(KEY)


@pytest.mark.anyio
async def test_a_service_without_keys_has_the_tenant_that_it_is_given(serve: Serve, tmp_path: Path) -> None:
    async with serve(tenant="team-a") as client:
        stored = await client.post("/results", json={"tool_name": "t", "content": "x" * 20_000})
        assert (tmp_path / "state/tool_output/team-a" / stored.json()["handle"]).exists()
        (entry,) = (await client.get("/accounting/entries")).json()["entries"]
        assert entry["tenant"] == "team-a"
        assert 'spillgate_tenant_sessions{tenant="team-a"} 1.0\n' in (await client.get("/metrics")).text


@pytest.mark.parametrize("settings", [{"tenant": "../x"}, {"tenant": "team-a", "api_keys_file": True}])
def test_a_tenant_that_cannot_be_is_refused_at_the_start(tmp_path: Path, settings: dict[str, Any]) -> None:
    if "api_keys_file" in settings:
        settings = settings | {"api_keys_file": key_file(tmp_path / "keys", "a:key")}
    with pytest.raises(ConfigError, match="SPILLGATE_TENANT"):
        load_settings(**settings)
