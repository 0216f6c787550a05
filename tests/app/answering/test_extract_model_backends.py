"""Models with a backend of their own in the policy file, and the session's own model."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli.main import main
from app.policy_reload import reload_policies
from domain.errors import ConfigError
from tests.app.answering.test_extract_models import anyio_backend, ask, entries, keep, saying  # noqa: F401
from tests.conftest import Serve
from tests.extraction.backend import Backend

pytestmark = pytest.mark.anyio


def own(name: str, backend: Backend, key_file: Path | None = None) -> str:
    key = f'api_key_file = "{key_file}"\n' if key_file else ""
    window = "context_window = 8000\nmax_output_tokens = 1000\n"
    return f'[models.{name}]\n{window}base_url = "{backend.base_url}"\n{key}'


@asynccontextmanager
async def serving(
    serve: Serve, tmp_path: Path, policy: str, **settings: Any
) -> AsyncIterator[httpx.AsyncClient]:
    file = tmp_path / "policy.toml"
    file.write_text(policy)
    async with serve(storage_url="memory:", policy_file=file, **settings) as client:
        yield client


async def test_extraction_falls_from_one_provider_to_another(serve: Serve, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("key-of-n\n")
    async with Backend("error_503") as first, Backend(answer=saying("It is there.")) as second:
        settings = {"llm_base_url": first.base_url, "llm_models": ("m", "n"), "llm_api_key": "key-of-m"}
        async with serving(serve, tmp_path, own("n", second, key), **settings) as client:
            told = (await ask(client, await keep(client))).json()
            assert (told["status"], told["body"]) == ("complete", "It is there.")
            assert {one.headers["authorization"] for one in first.asked} == {"Bearer key-of-m"}
            assert {one.headers["authorization"] for one in second.asked} == {"Bearer key-of-n"}
            assert {one["model"] for one in await entries(client, "llm")} == {"m", "n"}


async def test_the_key_of_the_settings_goes_to_no_other_backend(serve: Serve, tmp_path: Path) -> None:
    async with Backend() as first, Backend() as second:
        settings = {"llm_base_url": first.base_url, "llm_models": ("m",), "llm_api_key": "s3cr3t"}
        policy = own("n", second) + '[defaults]\nextract_models = ["n"]\n'
        async with serving(serve, tmp_path, policy, **settings) as client:
            await ask(client, await keep(client))
    assert (first.requests, second.requests > 0) == (0, True)
    assert "authorization" not in second.asked[0].headers


async def test_a_model_that_the_policy_file_no_longer_has_is_not_said_to_be_down(
    serve: Serve, tmp_path: Path
) -> None:
    async def down() -> list[str]:
        lines = (await client.get("/metrics")).text.splitlines()
        return [line for line in lines if line.startswith("spillgate_model_up{")]

    async with (
        Backend("error_503") as bad,
        Backend() as good,
        serving(serve, tmp_path, own("n", bad)) as client,
    ):
        await ask(client, await keep(client), mode="full-chunked")
        assert await down() == ['spillgate_model_up{model="n"} 0.0']
        (tmp_path / "policy.toml").write_text(own("m", good))
        await reload_policies(client._transport.app.state)  # type: ignore[attr-defined]
        assert await down() == ['spillgate_model_up{model="m"} 1.0']


async def test_a_policy_file_alone_configures_models(serve: Serve, tmp_path: Path) -> None:
    async with Backend() as backend, serving(serve, tmp_path, own("n", backend)) as client:
        assert (await ask(client, await keep(client), mode="full-chunked")).json()["status"] == "complete"
    assert {one.body["model"] for one in backend.asked} == {"n"}


@pytest.mark.parametrize(("declared", "asked"), [("n", "n"), ("m", "m"), (None, "m"), ("unknown", "m")])
async def test_the_sessions_own_model_extracts_where_a_backend_for_it_is_known(
    serve: Serve, tmp_path: Path, declared: str | None, asked: str
) -> None:
    async with Backend() as first, Backend() as second:
        settings = {"llm_base_url": first.base_url, "llm_models": ("m",)}
        policy = '[defaults]\nextract_models = ["session"]\n' + own("n", second)
        async with serving(serve, tmp_path, policy, **settings) as client:
            await client.put("/sessions/s", json={"model": declared, "context_window": 100_000})
            told = (await ask(client, await keep(client))).json()
            assert told["status"] == "complete"
            assert {one["model"] for one in await entries(client, "llm")} == {asked}
            warning = "the session's own model has no backend here; another one was asked"
            assert told["warnings"] == ([] if declared == asked else [warning])


@pytest.mark.parametrize("key", ["base_url", "api_key_file"])
async def test_no_session_and_no_request_names_a_backend(serve: Serve, tmp_path: Path, key: str) -> None:
    override = {"models": {"m": {key: "http://169.254.169.254/latest"}}}
    async with serving(serve, tmp_path, "") as client:
        changed = await client.put("/sessions/s", json={"policy": override})
        assert (changed.status_code, changed.json()["code"]) == (422, "invalid_policy")
        sent = {"tool_name": "t", "content": "x", "policy": override}
        assert (await client.post("/results", json=sent)).json()["code"] == "invalid_policy"


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ('[models.n]\nbase_url = "http://user:s3cr3t@h/v1"\n', "models.n.base_url must be a URL like"),
        ('[models.n]\nbase_url = "ftp://h"\n', ", line 2: models.n.base_url must be a URL like https:"),
        (
            '[models.n]\nbase_url = "http://h"\napi_key_file = "/none"\n',
            "toml, [models.n], line 3, api_key_file: there is no file /none.",
        ),
        ('[models.n]\nbase_url = "http://"\n', "toml, [models.n], line 2, base_url: is not a URL."),
    ],
)
async def test_a_backend_that_cannot_be_is_refused_at_the_start(
    serve: Serve, tmp_path: Path, policy: str, said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        async with serving(serve, tmp_path, policy):
            pass
    assert said in str(refused.value)
    assert "s3cr3t" not in str(refused.value)


def test_check_config_shows_the_backend_of_a_model_and_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key"
    key.write_text("s3cr3t")
    file = tmp_path / "policy.toml"
    file.write_text(f'[models.n]\nbase_url = "https://api.example.com/v1"\napi_key_file = "{key}"\n')
    monkeypatch.setenv("SPILLGATE_POLICY_FILE", str(file))
    assert main(["check-config", "--model", "n"]) == 0
    shown = capsys.readouterr().out
    assert "https://api.example.com/v1" in shown
    assert f'"{key}"' in shown
    assert "policy.toml, [models.n], line 2" in shown
    assert "s3cr3t" not in shown
