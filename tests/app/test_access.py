"""API keys and names: who may come in."""

import hashlib
import logging
from pathlib import Path

import pytest

from app.edge.api_keys import ApiKeys, check_host, check_origin, load_keys
from domain.errors import ConfigError, Forbidden, HostNotAllowed
from tests.app.edge_support import KEY, keys_file

LOOPBACK = ("localhost", "127.0.0.1", "::1")
DIGEST = hashlib.sha256(KEY.encode()).hexdigest()


class Ticks:
    """A monotonic clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_key_names_its_tenant_and_no_other_key_does(tmp_path: Path) -> None:
    keys = ApiKeys(keys_file(tmp_path / "keys"))
    assert keys.tenant_of(KEY) == "acme"
    assert keys.tenant_of(KEY + "x") is None
    assert keys.tenant_of("") is None
    assert keys.tenant_of(DIGEST) is None


def test_a_tenant_may_have_several_keys_and_colons_in_its_name(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"team:blue:{DIGEST.upper()}\nteam:blue:{'0' * 64}\n")
    assert load_keys(path) == {DIGEST: "team:blue", "0" * 64: "team:blue"}


@pytest.mark.parametrize(
    "line",
    [
        "acme",
        "acme:",
        f":{DIGEST}",
        "acme:short",
        f"../up:{DIGEST}",
        f"a b:{DIGEST}",
        f"acme:{DIGEST}0",
        DIGEST,
    ],
)
def test_a_bad_line_is_named_by_its_number_and_not_repeated(tmp_path: Path, line: str) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# first\n{line}\n")
    with pytest.raises(ConfigError, match="line 2") as caught:
        ApiKeys(path)
    assert line not in str(caught.value)


def test_a_key_of_two_tenants_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"acme:{DIGEST}\nother:{DIGEST}\n")
    with pytest.raises(ConfigError, match="line 2"):
        ApiKeys(path)


@pytest.mark.parametrize("content", [b"", b"# none\n", b"\xff\xfe"])
def test_a_file_without_keys_is_refused(tmp_path: Path, content: bytes) -> None:
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
    assert keys.tenant_of(KEY) == "acme"
    ticks.now += 1
    assert keys.tenant_of(KEY) == "renamed"


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
            assert keys.tenant_of(KEY) == "acme"
    assert len(caplog.records) == 1
    path.unlink()
    ticks.now += 1
    assert keys.tenant_of(KEY) == "acme"
    keys_file(path, key="new key")
    ticks.now += 1
    assert keys.tenant_of("new key") == "acme"
    assert keys.tenant_of(KEY) is None


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8377", "localhost.", "127.0.0.1:1", "[::1]:8377", "[::1]", "127.0.0.1:"]
)
def test_a_loopback_host_is_answered(host: str) -> None:
    check_host(host, LOOPBACK)


OTHERS = [None, "", ".", "[]", "::1", "[::1", "evil.test", "localhost.evil.test", "localhost:80:80"]
ODD = [
    "localhost@evil.test",
    "localhost/",
    "localhost:port",
    "local\thost",
    "xn--localhost",
    "localhost,evil",
]


@pytest.mark.parametrize("host", [*OTHERS, *ODD])
def test_another_host_is_not(host: str | None) -> None:
    with pytest.raises(HostNotAllowed):
        check_host(host, LOOPBACK)


def test_without_a_list_every_host_and_origin_is_answered() -> None:
    check_host(None, None)
    check_host("anything", None)
    check_origin("null", None)


def test_a_list_may_be_written_with_ports_case_and_brackets() -> None:
    check_host("gate.test:9", ("Gate.Test:8377",))
    check_host("[fe80::1]", ("[FE80::1]",))


@pytest.mark.parametrize(
    "origin", ["http://localhost:3000", "https://LOCALHOST", "http://[::1]:80", "vscode://localhost"]
)
def test_an_origin_on_the_list_may_call(origin: str) -> None:
    check_origin(origin, LOOPBACK)


@pytest.mark.parametrize(
    "origin", ["null", "", "http://evil.test", "localhost", "http://", "http://localhost/x", "http://a b"]
)
def test_another_origin_may_not(origin: str) -> None:
    with pytest.raises(Forbidden):
        check_origin(origin, LOOPBACK)
