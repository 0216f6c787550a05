"""Tokens of an OpenID Connect issuer over HTTP, beside API keys: a real issuer on this machine."""

import base64
import hashlib
import hmac
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.http.edge import issuer_keys
from app.settings import load_settings
from domain.errors import ConfigError
from tests.conftest import Serve
from tests.faults.service_process import SERVE, Service
from tests.issuer import AUDIENCE, LoopbackIssuer
from tests.keys import key_file

pytestmark = pytest.mark.anyio


@pytest.fixture
def issuer() -> Iterator[LoopbackIssuer]:
    with LoopbackIssuer().listening() as issuer:
        yield issuer


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the first fetch takes seconds."""
    monkeypatch.setattr(issuer_keys, "WAIT_SECONDS", 60.0)


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuer_keys, "LEAST_SECONDS", 0.0)


def of(issuer: LoopbackIssuer, **more: Any) -> dict[str, Any]:
    return {"oidc_issuer": issuer.url, "oidc_audience": AUDIENCE, **more}


async def asked(
    client: httpx.AsyncClient, token: str, path: str = "/sessions", **headers: str
) -> httpx.Response:
    return await client.get(path, headers={"Authorization": f"Bearer {token}", **headers})


async def warnings(client: httpx.AsyncClient) -> list[str]:
    """Beside those that a service in memory always has."""
    told = (await client.get("/readyz")).json()["warnings"]
    return [one for one in told if "in the memory of this process" not in one]


async def test_a_token_is_of_its_tenant_beside_the_keys(
    serve: Serve, issuer: LoopbackIssuer, tmp_path: Path
) -> None:
    keys = key_file(tmp_path / "keys", "blue:other")
    audit = tmp_path / "audit"
    async with serve(storage_url="memory:", **of(issuer, api_keys_file=keys, audit=str(audit))) as client:
        sent = {"tool_name": "t", "content": "word " * 9000, "session_id": "s"}
        by_token = {"Authorization": f"Bearer {issuer.token()}"}
        stored = await client.post("/results", json=sent, headers=by_token)
        handle = stored.json()["handle"]
        assert (await client.get(f"/results/{handle}/content", headers=by_token)).status_code == 200
        for other in ("other", issuer.token(tenant="blue")):
            assert (await asked(client, other, f"/results/{handle}/content")).status_code == 404
        assert (await client.get("/sessions")).status_code == 401
    first = json.loads(audit.read_text().splitlines()[0])
    assert (first["key"], first["key_tenant"], first["role"]) == ("ada", "red", "agent")


async def test_a_claim_names_the_role(serve: Serve, issuer: LoopbackIssuer) -> None:
    claims = {"oidc_role_claim": "realm_access.roles", "oidc_tenant_claim": "https://example.com/team"}
    async with serve(storage_url="memory:", **of(issuer, **claims)) as client:

        def token(roles: Any) -> str:
            return issuer.token(**{"https://example.com/team": "ops", "realm_access": {"roles": roles}})

        for roles, tenants, metrics, results in (
            (["offline_access", "admin"], 200, 200, 403),
            ("agent", 403, 200, 404),
            (["metrics"], 403, 200, 403),
            (["admin", "agent"], 403, 403, 403),
            (["owner"], 403, 403, 403),
            (None, 403, 403, 403),
            ([{"admin": 1}], 403, 403, 403),
        ):
            answers = [
                (await asked(client, token(roles), path)).status_code
                for path in (
                    "/tenants",
                    "/metrics",
                    "/results/session-s/file-00000000-0000-4000-8000-000000000000",
                )
            ]
            assert answers == [tenants, metrics, results]
        missing = await asked(client, issuer.token(realm_access={"roles": ["admin"]}))
        assert (missing.status_code, "SPILLGATE_OIDC_TENANT_CLAIM" in missing.json()["detail"]) == (403, True)
        for tenant in ("../up", 7, ["red"], ""):
            said = {"https://example.com/team": tenant, "realm_access": {"roles": "agent"}}
            refused = await asked(client, issuer.token(**said))
            assert (refused.status_code, "not a valid name" in refused.json()["detail"]) == (403, True)


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed_with_the_public_key(issuer: LoopbackIssuer) -> str:
    """HS256 with what everybody knows as its secret."""
    key, _, _ = issuer.keys["first"]
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    claims = jwt.decode(issuer.token(), options={"verify_signature": False})
    head = _b64(json.dumps({"alg": "HS256", "kid": "first", "typ": "JWT"}).encode())
    signed = f"{head}.{_b64(json.dumps(claims).encode())}"
    return f"{signed}.{_b64(hmac.digest(public, signed.encode(), hashlib.sha256))}"


def without_signature(issuer: LoopbackIssuer) -> str:
    claims = jwt.decode(issuer.token(), options={"verify_signature": False})
    return jwt.encode(claims, None, algorithm="none", headers={"kid": "first"})


def changed(issuer: LoopbackIssuer) -> str:
    head, body, signature = issuer.token().split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    return f"{head}.{_b64(json.dumps(claims | {'tenant': 'blue'}).encode())}.{signature}"


def of_another_key(issuer: LoopbackIssuer) -> str:
    other = LoopbackIssuer()
    other.url = issuer.url
    return other.token()


NOW = int(time.time())
DISCOVERY = "/.well-known/openid-configuration"
USELESS = b"""{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "first"}, {"kty": "RSA", "n": "AQAB",
"e": "AQAB"}, {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}, {"kty": 7}, {}]}"""


WRONG: list[tuple[Callable[[LoopbackIssuer], str], str]] = [
    (lambda issuer: issuer.token(aud="another"), "another audience"),
    (lambda issuer: issuer.token(aud=None), "lacks a claim"),
    (lambda issuer: issuer.token(iss="https://evil.test"), "another issuer"),
    (lambda issuer: issuer.token(iss=None), "lacks a claim"),
    (lambda issuer: issuer.token(exp=NOW - 31), "has expired"),
    (lambda issuer: issuer.token(exp=None), "lacks a claim"),
    (lambda issuer: issuer.token(exp=int("9" * 400)), "no valid exp"),
    (lambda issuer: issuer.token(exp="9" * 400), "no valid exp"),
    (lambda issuer: issuer.token(exp=str(NOW + 3600)), "no valid exp"),
    (lambda issuer: issuer.token(exp=math.inf), "token"),
    (lambda issuer: issuer.token(exp=math.nan), "token"),
    (lambda issuer: issuer.token(exp=[NOW + 3600]), "token"),
    (lambda issuer: issuer.token(nbf=int("9" * 400)), "not valid yet"),
    (lambda issuer: issuer.token(iat="soon"), "token"),
    (lambda issuer: issuer.token(nbf=NOW + 3600), "not valid yet"),
    (lambda issuer: issuer.token(iat=NOW + 3600), "not valid yet"),
    (lambda issuer: issuer.token(header={"kid": "unknown"}), "does not have"),
    (lambda issuer: issuer.token(header={"crit": ["exp"]}), "token"),
    (without_signature, "does not have"),
    (signed_with_the_public_key, "does not have"),
    (changed, "signature"),
    (of_another_key, "signature"),
    (lambda issuer: "a.b.c", "neither a known API key nor a token"),
    (lambda issuer: issuer.token()[:-20], "token"),
    (lambda issuer: "no-token", "issuer"),
]


async def test_a_wrong_token_is_refused(
    serve: Serve, issuer: LoopbackIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Wrong keys of an address are answered ever more slowly: tests/app/http/test_wrong_keys.py.
    monkeypatch.setattr("app.http.edge.wrong_keys.MOST_SECONDS", 0.0)
    async with serve(storage_url="memory:", **of(issuer)) as client:
        assert (await asked(client, issuer.token())).status_code == 200
        for make, why in WRONG:
            refused = await asked(client, make(issuer))
            assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized"), why
            assert why in refused.json()["detail"]


async def test_a_token_ends_while_it_is_known(
    serve: Serve, issuer: LoopbackIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(storage_url="memory:", **of(issuer)) as client:
        token = issuer.token(iat=int(time.time()) - 7200)
        assert (await asked(client, token)).status_code == 200
        # An hour later, for what is remembered of the token and for the library that reads it.
        later = SimpleNamespace(time=lambda: time.time() + 3600)
        monkeypatch.setattr("app.http.edge.issuer.time", later)
        monkeypatch.setattr("app.http.edge.issuer.LEEWAY_SECONDS", -3600.0)
        assert "has expired" in (await asked(client, token)).json()["detail"]


@pytest.mark.parametrize("algorithm", ["RS256", "PS384", "ES256"])
async def test_a_new_key_is_fetched_when_a_token_needs_it_and_an_old_one_is_gone(
    serve: Serve, issuer: LoopbackIssuer, fast: None, algorithm: str
) -> None:
    async with serve(storage_url="memory:", **of(issuer)) as client:
        before = issuer.token()
        assert (await asked(client, before)).status_code == 200
        issuer.rotate("second", algorithm, also="first")
        for token in (issuer.token("second"), before):
            assert (await asked(client, token)).status_code == 200
        issuer.rotate("third", algorithm)
        assert (await asked(client, issuer.token("third"))).status_code == 200
        assert (await asked(client, before)).status_code == 401


async def test_a_replaced_key_of_the_same_id_ends_the_tokens_of_the_old_one(
    serve: Serve, issuer: LoopbackIssuer, fast: None
) -> None:
    async with serve(storage_url="memory:", **of(issuer)) as client:
        before = issuer.token()
        assert (await asked(client, before)).status_code == 200
        issuer.rotate("first")
        await asked(client, issuer.token(header={"kid": "unknown"}))
        assert [(await asked(client, one)).status_code for one in (before, issuer.token())] == [401, 200]


async def test_unknown_keys_do_not_make_it_ask_the_issuer_again_and_again(
    serve: Serve, issuer: LoopbackIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.http.edge.wrong_keys.MOST_SECONDS", 0.0)
    async with serve(storage_url="memory:", **of(issuer)) as client:
        for number in range(20):
            assert (await asked(client, issuer.token(header={"kid": f"k{number}"}))).status_code == 401
        assert issuer.asked.count("/keys") <= 2


async def test_an_issuer_that_is_away_is_503_until_it_is_back_and_its_keys_outlast_it(
    serve: Serve, issuer: LoopbackIssuer, monkeypatch: pytest.MonkeyPatch, fast: None
) -> None:
    monkeypatch.setattr(issuer_keys, "RETRY_SECONDS", 0.05)
    away = dict.fromkeys(("/.well-known/openid-configuration", "/keys"), (503, b""))
    issuer.answers = dict(away)
    async with serve(storage_url="memory:", **of(issuer)) as client:
        refused = await asked(client, issuer.token())
        assert (refused.status_code, refused.json()["code"]) == (503, "issuer_unavailable")
        assert refused.headers["retry-after"] == "1"
        (warning,) = await warnings(client)
        assert "SPILLGATE_OIDC_ISSUER cannot be fetched: it answered with the status 503" in warning
        issuer.answers.clear()
        with anyio.fail_after(20):
            while (await asked(client, issuer.token())).status_code != 200:
                await anyio.sleep(0.05)
        assert await warnings(client) == []
        issuer.answers = dict(away)
        await asked(client, issuer.token(header={"kid": "unknown"}))
        assert (await asked(client, issuer.token())).status_code == 200
        monkeypatch.setattr(issuer_keys, "LAST_SECONDS", -1.0)
        assert (await asked(client, issuer.token())).status_code == 503


@pytest.mark.parametrize(
    ("path", "status", "body", "why"),
    [
        ("/keys", 200, b"x" * (issuer_keys.MAX_BYTES + 1), "more than 262144 bytes"),
        ("/keys", 200, b"[" * 100_000, "not the JSON"),
        ("/keys", 200, b'{"keys": 7}', "not the JSON"),
        ("/keys", 200, b'{"keys": []}', "no key that can be used"),
        ("/keys", 200, USELESS, "no key"),
        ("/keys", 302, b"", "status 302"),
        (DISCOVERY, 200, b"\xff<html>", "not the JSON"),
        (DISCOVERY, 200, b'{"issuer": "https://evil.test", "jwks_uri": "x"}', "another issuer"),
    ],
)
async def test_an_issuer_that_answers_nonsense_gives_nobody_rights(
    serve: Serve, issuer: LoopbackIssuer, path: str, status: int, body: bytes, why: str
) -> None:
    issuer.answers[path] = (status, body)
    async with serve(storage_url="memory:", **of(issuer)) as client:
        assert (await asked(client, issuer.token())).status_code == 503
        (warning,) = await warnings(client)
        assert why in warning


@pytest.mark.parametrize(
    "keys_url",
    [
        "http://keys.example.com/jwks",
        "ftp://keys.example.com/jwks",
        "//keys.example.com/jwks",
        "keys.example.com",
        "",
        "https://",
        "https://[::1",
        "https://[::g]/jwks",
        "https://[v1.a]/jwks",
        "https://keys.example.com:port/jwks",
        "https://keys.example.com:99999/jwks",
        "https://127.0.0.1:-1/jwks",
        "http://127.0.0.1:0/jwks",
        "https://xn--/jwks",
        "https://\u2460.example.com/jwks",
        "https://keys.example.com/\n",
        f"https://keys.example.com/{'k' * 70_000}",
    ],
)
async def test_an_issuer_whose_keys_have_no_https_address_is_at_fault(
    serve: Serve, issuer: LoopbackIssuer, fast: None, keys_url: str
) -> None:
    document = {"issuer": issuer.url, "jwks_uri": keys_url}
    issuer.answers[DISCOVERY] = (200, json.dumps(document).encode())
    async with serve(storage_url="memory:", **of(issuer)) as client:
        assert (await asked(client, issuer.token())).status_code == 503
        (warning,) = await warnings(client)
        assert warning.startswith(
            "The keys of SPILLGATE_OIDC_ISSUER cannot be fetched: the address of its keys"
        )
        issuer.answers.clear()
        assert (await asked(client, issuer.token())).status_code == 200


def as_password(token: str) -> dict[str, str]:
    """What a browser sends once its user has typed the token."""
    return {"Authorization": f"Basic {base64.b64encode(f':{token}'.encode()).decode()}"}


async def test_a_browser_logs_in_with_a_token_or_a_key_as_its_password(
    serve: Serve, issuer: LoopbackIssuer, tmp_path: Path, fast: None
) -> None:
    keys = key_file(tmp_path / "keys", "blue:other")
    async with serve(storage_url="memory:", **of(issuer, api_keys_file=keys, key_for_pages=True)) as client:
        for path in ("/ui", "/ui/api.js", "/docs", "/openapi.json", "/healthz"):
            assert (await client.get(path)).headers["www-authenticate"].startswith("Basic ")
            for password in ("other", issuer.token()):
                assert (await client.get(path, headers=as_password(password))).status_code == 200
            refused = await client.get(path, headers=as_password("another"))
            assert (refused.status_code, refused.headers["www-authenticate"][:5]) == (401, "Basic")
        issuer.rotate("second")
        assert (await client.get("/ui", headers=as_password(issuer.token("second")))).status_code == 200
        # A route of the API takes no password: a page of another site could have the browser send it.
        assert (await client.get("/sessions", headers=as_password("other"))).status_code == 401


async def test_a_token_that_comes_as_x_api_key_has_its_key_fetched(
    serve: Serve, issuer: LoopbackIssuer, fast: None
) -> None:
    async with serve(storage_url="memory:", **of(issuer)) as client:
        assert (await asked(client, issuer.token())).status_code == 200
        issuer.rotate("second")
        answer = await client.get("/sessions", headers={"x-api-key": issuer.token("second")})
        assert answer.status_code == 200


async def test_probes_need_no_credentials_and_do_not_wait_for_what_is_sent(
    serve: Serve, issuer: LoopbackIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_keys, "FETCH_SECONDS", 60.0)
    issuer.silent.set()
    sent = ("Basic Og==", "Basic !", "Digest x", "Bearer", "Bearer a.b.c", f"Bearer {issuer.token()}", "")
    async with serve(
        storage_url="memory:", **of(issuer, key_for_pages=True, metrics_address="127.0.0.1:0")
    ) as client:
        with anyio.fail_after(30):
            for path in ("/livez", "/readyz"):
                for authorization in sent:
                    answer = await client.get(path, headers={"Authorization": authorization})
                    assert answer.status_code == 200


@pytest.mark.parametrize("sub", ["\ud800", "a\nb\x1b[31m", "\u202e", "ü" * 100])
async def test_an_odd_subject_is_written_to_audit_and_ledger(
    serve: Serve, issuer: LoopbackIssuer, tmp_path: Path, sub: str
) -> None:
    audit = tmp_path / "audit"
    async with serve(storage_url="memory:", **of(issuer, audit=str(audit))) as client:
        token = {"Authorization": f"Bearer {issuer.token(sub=sub)}"}
        sent = {"tool_name": "t", "content": "word", "session_id": "s"}
        assert (await client.post("/results", json=sent, headers=token)).status_code == 200
        (entry,) = (await client.get("/accounting/entries", headers=token)).json()["entries"]
    name = sub.replace("\ud800", "\ufffd")[:64]
    keys = [json.loads(line)["key"] for line in audit.read_text().splitlines()]
    assert keys == [name, name]
    assert entry["key"] == name


async def test_an_issuer_that_does_not_answer_delays_neither_keys_nor_probes(
    serve: Serve, issuer: LoopbackIssuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_keys, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(issuer_keys, "FETCH_SECONDS", 60.0)
    issuer.silent.set()
    keys = key_file(tmp_path / "keys", "blue:other")
    async with serve(storage_url="memory:", **of(issuer, api_keys_file=keys)) as client:
        with anyio.fail_after(30):
            assert (await asked(client, issuer.token())).status_code == 503
            assert (await asked(client, "other")).status_code == 200
            assert (await client.get("/livez")).status_code == 200


async def test_a_process_takes_tokens_and_counts_its_issuer(issuer: LoopbackIssuer, tmp_path: Path) -> None:
    settings = {"oidc_issuer": issuer.url, "oidc_audience": AUDIENCE, "oidc_role_claim": "role"}
    service = Service(tmp_path / "state", tmp_path / "log", SERVE, settings)
    await service.listening()
    try:
        async with service.client() as client:
            token = issuer.token(role="metrics")
            assert (
                'spillgate_backend_up{backend="issuer"} 1.0' in (await asked(client, token, "/metrics")).text
            )
            assert (await client.get("/metrics")).status_code == 401
    finally:
        service.kill()
    assert token not in service.log.read_text()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"OIDC_ISSUER": "https://login.example.com"}, "OIDC_AUDIENCE is not set"),
        ({"OIDC_ISSUER": "http://login.example.com", "OIDC_AUDIENCE": "a"}, "must be an https URL"),
        ({"OIDC_ISSUER": "https://u:p@login.example.com", "OIDC_AUDIENCE": "a"}, "must be an https URL"),
        ({"OIDC_ISSUER": "https://[login", "OIDC_AUDIENCE": "a"}, "must be an https URL"),
        ({"OIDC_ISSUER": "https://login.example.com:port", "OIDC_AUDIENCE": "a"}, "must be an https URL"),
        ({"OIDC_ROLE_CLAIM": "role"}, "is set without SPILLGATE_OIDC_ISSUER"),
    ],
)
def test_a_half_configured_issuer_refuses_the_start(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], why: str
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(f"SPILLGATE_{name}", value)
    with pytest.raises(ConfigError, match=why):
        load_settings()


def test_with_an_issuer_any_address_may_be_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"OIDC_ISSUER": "https://login.example.com", "OIDC_AUDIENCE": "spillgate", "HOST": "0.0.0.0"}
    for name, value in given.items():
        monkeypatch.setenv(f"SPILLGATE_{name}", value)
    settings = load_settings()
    assert (settings.hosts, settings.names_paths) == (None, False)
