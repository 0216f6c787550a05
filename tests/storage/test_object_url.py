"""The URL of an object store: its options, and what is refused before a request is sent."""

import sys

import pytest

import storage.objects
from domain.errors import ConfigError
from storage import ledger_url, open_store
from storage.objects.url import open_bucket, parse_object_url

pytestmark = pytest.mark.anyio

REFUSED = {
    "s3://AKIA:hunter2@bucket/x": "credentials in the environment",
    "s3://bucket?secret_access_key=hunter2": "credentials in the environment",
    "s3://bucket?endpoint=http://user:hunter2@127.0.0.1:9000": "credentials in the environment",
    "gs://bucket?endpoint=http://hunter2": "options timeout and no other",
    "s3:///hunter2": "needs a bucket",
    "s3://bucket/x#hunter2": "needs a bucket",
    "s3://bucket?endpoint=hunter2": "http:// or https://",
    "s3://bucket?timeout=hunter2": "number of seconds",
    "s3://bucket?timeout=0": "number of seconds",
    "s3://bucket?timeout=nan": "number of seconds",
    "s3://bucket?cache_bytes=0": "options endpoint, region, timeout and no other",
    "az://container": "obstore cannot use it",
}


@pytest.mark.parametrize("url", REFUSED)
async def test_a_url_that_cannot_be_used_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(ConfigError, match=REFUSED[url]) as failure:
        await open_store(url, clock=lambda: 0, retention_seconds=1, max_bytes=0)
    assert "hunter2" not in str(failure.value)


def test_the_options_of_a_url_are_those_of_the_store() -> None:
    url = parse_object_url("s3://bucket/a/b/?region=eu-west-1&endpoint=http://127.0.0.1:9000&timeout=5")
    assert (url.prefix_url, url.timeout, url.is_plain) == ("s3://bucket/a/b", 5, True)
    assert url.config == {"region": "eu-west-1", "endpoint": "http://127.0.0.1:9000"}
    open_bucket(url)
    open_bucket(parse_object_url("az://container/prefix?account_name=account"))
    open_bucket(parse_object_url("gs://bucket/prefix"))


def test_an_object_store_needs_its_ledger_named() -> None:
    with pytest.raises(ConfigError, match=r"SPILLGATE_LEDGER_URL is not set.*sqlite:///.*redis://"):
        ledger_url("s3://bucket")


async def test_without_obstore_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    # The import below replaces the package, in its parent too.
    monkeypatch.setattr(storage, "objects", storage.objects)
    for name in [name for name in sys.modules if name.startswith("storage.objects")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.exceptions", None)
    with pytest.raises(ConfigError, match="Install requirements-extras"):
        await open_store("s3://bucket", clock=lambda: 0, retention_seconds=1, max_bytes=0)
