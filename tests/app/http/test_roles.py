"""Roles of API keys over HTTP, and the command that makes, lists, revokes and rotates keys."""

import errno
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli.main import main
from app.http.api.roles import KeyRole
from app.http.edge.api_keys import load_keys
from app.operations.readiness import Readiness
from domain.errors import StoreUnavailable
from machine.files import replace_text
from tests.conftest import Serve, served
from tests.keys import by, key_file

pytestmark = pytest.mark.anyio

BIG = "word " * 5000


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    lines = ("red:agent", "blue:other", "ops:metrics:metrics:prometheus", "ops:admin:admin:ada")
    return key_file(tmp_path / "keys", *lines)


@pytest.fixture
async def client(serve: Serve, keys: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with serve(storage_url="memory:", api_keys_file=keys) as client:
        yield client


async def test_a_role_calls_its_routes_alone(client: httpx.AsyncClient) -> None:
    for method, path, metrics, admin in [
        ("GET", "/metrics", 200, 200),
        ("GET", "/sessions", 403, 200),
        ("GET", "/sessions/default", 403, 200),
        ("DELETE", "/sessions/default", 403, 204),
        ("GET", "/accounting/entries", 403, 200),
        ("GET", "/accounting/summary", 403, 200),
        ("GET", "/results/{handle}", 403, 403),
        ("GET", "/results/{handle}/content", 403, 403),
        ("GET", "/results/{handle}/lines", 403, 403),
        ("DELETE", "/results/{handle}", 403, 403),
        ("POST", "/results", 403, 403),
        ("POST", "/extract", 403, 403),
        ("POST", "/tools/call", 403, 403),
        ("GET", "/tools", 403, 403),
        ("PUT", "/sessions/default", 403, 200),
        ("GET", "/no/such/route", 403, 403),
        ("GET", "/livez", 200, 200),
    ]:
        sent = {"tool_name": "t", "content": BIG}
        handle = (await client.post("/results", json=sent, headers=by("agent"))).json()["handle"]
        path = path.format(handle=handle)
        body = {} if method == "PUT" else None
        answers = [
            await client.request(method, path, json=body, headers=by(name, **{"Spillgate-Tenant": "red"}))
            for name in ("metrics", "admin")
        ]
        assert [answer.status_code for answer in answers] == [metrics, admin]
        for answer in answers:
            assert "word word" not in answer.text
            assert answer.status_code != 403 or answer.json()["code"] == "forbidden"


async def test_the_metrics_name_to_an_agent_its_own_tenant_alone(
    serve: Serve, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("".join(f"[tenants.{one}]\nrequests_per_second = 1000\n" for one in ("red", "blue")))

    async def named(key: str) -> set[str]:
        answer = await client.get("/metrics", headers=by(key))
        assert answer.status_code == 200
        return {one for one in ("red", "blue", "ops") if f'tenant="{one}"' in answer.text}

    async with serve(storage_url="memory:", api_keys_file=keys, policy_file=policy) as client:
        for name in ("agent", "other"):
            sent = {"tool_name": "t", "content": BIG}
            assert (await client.post("/results", json=sent, headers=by(name))).status_code == 201
        assert [await named("agent"), await named("metrics")] == [{"red"}, {"red", "blue"}]

        async def away(self: Readiness) -> None:
            raise StoreUnavailable("away")

        monkeypatch.setattr(Readiness, "tenant_uses", away)
        # What the last scrape of an operator found is kept, and an agent's scrape changes nothing of it.
        for _ in range(2):
            assert [await named("agent"), await named("admin")] == [{"red"}, {"red", "blue"}]


async def test_an_admin_sees_the_tenant_that_it_names_and_nobody_else_does(client: httpx.AsyncClient) -> None:
    for name in ("agent", "other"):
        sent = {"tool_name": name, "content": "x", "session_id": f"of-{name}"}
        assert (await client.post("/results", json=sent, headers=by(name))).status_code == 200

    async def sessions(name: str, tenant: str) -> list[str]:
        answer = await client.get("/sessions", headers=by(name, **{"Spillgate-Tenant": tenant}))
        return [one["session_id"] for one in answer.json()["sessions"]]

    assert await sessions("admin", "red") == ["of-agent"]
    assert await sessions("admin", "blue") == ["of-other"]
    assert await sessions("agent", "blue") == ["of-agent"]
    wrong = await client.get("/sessions", headers=by("admin", **{"Spillgate-Tenant": "../up"}))
    assert wrong.status_code == 400


async def test_sums_by_tenant_are_an_admins_of_all_and_an_agents_of_its_own(
    client: httpx.AsyncClient,
) -> None:
    for name, content in (("agent", "x"), ("other", "x"), ("other", BIG)):
        sent = {"tool_name": "t", "content": content}
        assert (await client.post("/results", json=sent, headers=by(name))).status_code < 300

    async def entries(key: str, group_by: str = "tenant,day", **headers: str) -> dict[str, int]:
        asked = {"group_by": group_by, "type": "tool"}
        answer = await client.get("/accounting/summary", params=asked, headers=by(key, **headers))
        csv = await client.get(
            "/accounting/summary", params=asked | {"format": "csv"}, headers=by(key, **headers)
        )
        assert csv.text.count("\r\n") == 1 + len(answer.json()["rows"])
        return {row["group"]: row["entries"] for row in answer.json()["rows"]}

    blue = {"Spillgate-Tenant": "blue"}
    assert await entries("admin") == {"red": 1, "blue": 2}
    assert await entries("admin", "day,tenant") == {"2025-11-21": 1}
    assert await entries("admin", **blue) == {"blue": 2}
    # Without the key `tenant`, an admin's key means one tenant: its own, or the one that it names.
    assert await entries("admin", "day") == {}
    assert await entries("admin", "day", **blue) == {"2025-11-21": 2}
    for headers in ({}, blue):
        assert await entries("agent", **headers) == {"red": 1}
        assert await entries("other", **headers) == {"blue": 2}
    of_all = {"group_by": "tenant", "handle": "session-default/file-00000000-0000-4000-8000-000000000000"}
    assert (await client.get("/accounting/summary", params=of_all, headers=by("admin"))).json()["rows"] == []
    assert (await client.get("/accounting/summary", headers=by("metrics"))).status_code == 403


async def test_costs_are_told_by_month_key_and_door_and_exported_of_all_tenants_to_an_admin(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    key_file(tmp_path / "keys", "red:agent:agent:ci", "blue:other", "ops:admin:admin:ada")
    sent = {"tool_name": "t", "content": BIG}
    async with served(storage_url="memory:", api_keys_file=tmp_path / "keys") as (_, http):
        for number in range(3):
            body = {**sent, "door": "codex", "session_id": f"s{number}"}
            stored = await http.post("/results", json=body, headers=by("agent"))
        handle = stored.json()["handle"]
        await http.get(f"/results/{handle}/lines", headers=by("agent"))
        await http.post("/results", json=sent, headers=by("other"))
        asked = {"group_by": "tenant,key,door", "type": "tool"}
        rows = (await http.get("/accounting/summary", params=asked, headers=by("admin"))).json()["rows"]
        assert [(*row["groups"].values(), row["entries"]) for row in rows] == [
            ("red", "ci", "codex", 3),
            ("blue", None, None, 1),
        ]
        asked = {"group_by": "month,key"}
        (month,) = (await http.get("/accounting/summary", params=asked, headers=by("agent"))).json()["rows"]
        assert (month["group"], month["groups"]["key"], month["entries"]) == (
            f"{datetime.now(UTC):%Y-%m}",
            "ci",
            4,
        )

        async def exported(key: str, accept: str, **more: str) -> httpx.Response:
            headers = by(key, Accept=accept, **more)
            return await http.get("/accounting/entries?all_tenants=true", headers=headers)

        lines = (await exported("admin", "application/x-ndjson")).text.splitlines()
        assert [json.loads(line)["tenant"] for line in lines] == ["blue", *["red"] * 4]
        assert (await exported("admin", "text/csv")).text.count("\r\n") == 6
        for key, accept, more, status in (
            ("agent", "text/csv", {}, 403),
            ("admin", "text/csv", {"Spillgate-Tenant": "red"}, 403),
            ("admin", "application/json", {}, 422),
        ):
            assert (await exported(key, accept, **more)).status_code == status


async def test_a_tenant_of_a_key_or_of_the_policy_is_found_before_it_has_stored(
    serve: Serve, keys: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[tenants.green]\nmax_sessions = 5\n")
    async with serve(storage_url="memory:", api_keys_file=keys, policy_file=policy) as client:
        for path in ("/accounting/summary", "/accounting/entries", "/sessions", "/sessions/default"):
            for tenant in ("red", "green"):
                answer = await client.get(path, headers=by("admin", **{"Spillgate-Tenant": tenant}))
                assert answer.json().get("code") in (None, "session_not_found")


async def test_no_route_answers_an_admin_that_misspells_a_tenant(serve: Serve, keys: Path) -> None:
    misspelt = by("admin", **{"Spillgate-Tenant": "rde"})
    codes = dict[str, str | None]()
    async with serve(storage_url="memory:", api_keys_file=keys) as client:
        paths = (await client.get("/openapi.json")).json()["paths"]
        for path, operations in paths.items():
            for method in {"get", "head", "put", "post", "delete"} & operations.keys():
                sent = path.format(tenant_id="rde", session_id="s", handle="h", client="cursor", hash="h")
                answer = await client.request(method, sent, headers=misspelt)
                if answer.status_code != 403 and "security" not in operations[method]:
                    codes[f"{method} {path}"] = None if answer.is_success else answer.json()["code"]
    of_no_tenant = {"get /metrics", "get /tenants", "get /clock", "post /clock/confirm"}
    assert {name for name, code in codes.items() if code is None} == of_no_tenant
    assert {code for code in codes.values() if code} == {"tenant_not_found"}
    assert {"delete /tenants/{tenant_id}", "get /sessions", "post /policy/what-if"} <= codes.keys()


async def test_refusals_are_counted_and_bad_lines_are_warnings_and_a_metric(
    serve: Serve, keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with keys.open("a") as file:
        file.write(f"red:{'3' * 64}:owner\nred:{'4' * 64}:::2020-01-01\n")
    async with serve(storage_url="memory:", api_keys_file=keys) as client:
        warnings = (await client.get("/readyz")).json()["warnings"]
        assert any("line 5: unknown role" in warning for warning in warnings)
        assert any("expired: 1" in warning for warning in warnings)
        assert any("line 5" in str(getattr(record, "fields", "")) for record in caplog.records)
        for name in ("unknown", "metrics"):
            await client.get("/sessions", headers=by(name))
        scraped = (await client.get("/metrics", headers=by("metrics"))).text
    assert "spillgate_api_key_faults 2.0" in scraped
    for code in ("forbidden", "unauthorized"):
        assert f'spillgate_errors_total{{code="{code}"}} 1.0' in scraped


async def test_a_key_is_a_warning_and_a_metric_before_it_expires(
    serve: Serve, keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def line(tenant: str, digit: str, name: str, days: float) -> str:
        ends = datetime.fromtimestamp(time.time(), UTC) + timedelta(days=days)
        return f"{tenant}:{digit * 64}:agent:{name}:{ends:%Y-%m-%dT%H:%MZ}\n"

    with keys.open("a") as file:
        # The first was rotated: the second took its place. Of the others one expires soon.
        file.write(line("red", "5", "ci", 1) + line("red", "6", "ci", 300))
        file.write(line("blue", "7", "batch", 10) + line("blue", "8", "web", 200))
    async with serve(api_keys_file=keys) as client:
        # Where nothing asks /readyz, a scrape logs it.
        await client.get("/metrics", headers=by("metrics"))
        assert [one for one in caplog.records if "expires soon" in one.message]
        for _ in range(2):
            (warning,) = (await client.get("/readyz")).json()["warnings"]
            day = f"{datetime.fromtimestamp(time.time(), UTC) + timedelta(days=10):%Y-%m-%d}"
            assert f"within 14 days: 1, the first on {day}." in warning
        fields = [
            getattr(record, "fields", {}) for record in caplog.records if "expires soon" in record.message
        ]
        assert fields == [{"tenant": "blue", "key": "batch", "expires": day}]
        scraped = (await client.get("/metrics", headers=by("metrics"))).text
        assert "spillgate_api_key_faults 0.0" in scraped
        (expires,) = re.findall(r"^spillgate_api_key_expires_timestamp_seconds (\S+)$", scraped, re.MULTILINE)
        assert 9.9 < (float(expires) - time.time()) / 86_400 < 10.1


async def test_a_changed_key_is_in_force_and_a_file_that_is_refused_is_a_warning_until_it_is_corrected(
    serve: Serve, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.files.LOOK_SECONDS", 0.0)
    async with serve(api_keys_file=keys) as client:
        was, (old, new) = keys.stat(), (hashlib.sha256(key).hexdigest() for key in (b"agent", b"next"))
        keys.write_text(keys.read_text().replace(old, new))
        # As rsync leaves it: of the same size and time.
        os.utime(keys, ns=(was.st_atime_ns, was.st_mtime_ns))
        asked = [await client.get("/sessions", headers=by(name)) for name in ("next", "agent")]
        assert [one.status_code for one in asked] == [200, 401]
        text = keys.read_text()
        for refused in (lambda: keys.write_text("nonsense\n"), keys.unlink):
            refused()
            (warning,) = (await client.get("/readyz")).json()["warnings"]
            assert warning.endswith("The keys before stay in force.")
            assert "spillgate_api_key_faults 1.0" in (await client.get("/metrics", headers=by("admin"))).text
        keys.write_text(text)
        assert (await client.get("/readyz")).json()["warnings"] == []


def test_a_key_that_another_process_makes_at_the_same_time_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, others = tmp_path / "api.keys", list[subprocess.Popen[bytes]]()
    new = ["keys", "new", "--file", str(path)]

    def replace(*what: Any) -> None:
        """Once the other process has ended, or waits for this one."""
        others.append(other := subprocess.Popen([sys.executable, "-m", "beside.main", *new, "team-b"]))
        while other.poll() is None and not re.search(rf"-> FLOCK .* {other.pid} ", locks.read_text()):
            time.sleep(0.01)
        replace_text(*what)

    locks = Path("/proc/locks")
    monkeypatch.setattr("app.cli.keys.replace_text", replace)
    assert main([*new, "team-a"]) == 0
    assert [other.wait() for other in others] == [0]
    assert [line.partition(":")[0] for line in path.read_text().splitlines()] == ["team-a", "team-b"]


def test_keys_are_made_listed_rotated_and_revoked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys"
    monkeypatch.setenv("SPILLGATE_API_KEYS_FILE", str(path))

    def said(*arguments: str) -> str:
        assert main(["keys", *arguments]) == 0
        return capsys.readouterr().out.strip()

    first = said("new", "team-a", "--name", "ci", "--expires", "2099-01-31")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == f"team-a:{hashlib.sha256(first.encode()).hexdigest()}:agent:ci:2099-01-31\n"
    path.write_text("# of the platform team\n" + path.read_text())
    said("new", "team-b", "--role", "admin")
    rotated = said("rotate", "ci", "--hours", "2")
    assert rotated != first
    table = said("list")
    assert [line.split()[1] for line in table.splitlines()[1:]] == ["team-a", "team-b", "team-a"]
    assert "admin" in table
    assert first not in table + path.read_text()
    digest = hashlib.sha256(rotated.encode()).hexdigest()
    said("revoke", digest[:12])
    lines = path.read_text().splitlines()
    assert lines[0] == "# of the platform team"
    assert not any(digest in line for line in lines)
    assert len(lines) == 3
    # One in force is revoked before an expired one of the same name. Then that one can be.
    gone = f"team-d:{'7' * 64}::gone:2020-01-01\n"
    with path.open("a") as file:
        file.write(gone)
    said("new", "team-d", "--name", "gone")
    assert "(expired)" in said("list")
    assert said("revoke", "gone") == "revoked: team-d gone"
    assert gone in path.read_text()
    said("revoke", "7" * 12)
    assert "team-d" not in path.read_text()
    # A key does not live longer for being rotated.
    said("new", "team-c", "--name", "short", "--expires", "2099-01-31")
    said("rotate", "short", "--hours", str(24 * 365 * 100))
    old, new = path.read_text().splitlines()[-2:]
    assert old.endswith(":agent:short:2099-01-31T00:00Z")
    assert new.endswith(":agent:short")


def test_what_cannot_be_done_says_why_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, reason in [
        (("new", "../up"), "TENANT has 1 to 128 letters"),
        (("new", "te am"), "TENANT has 1 to 128 letters"),
        (("new", "a", "--expires", "soon"), "is a date"),
        (("new", "a", "--expires", "2020-01-01"), "--expires has passed"),
        (("new", "a", "--name", "two words"), "at most 64"),
        (("new", "a", "--name", "x:y"), "--name: a name has at most 64"),
        (("revoke", "none"), "No key has this name"),
        (("rotate", "4" * 12), "No key in force"),
        (("rotate", "twice"), "Several keys"),
        (("revoke", ""), "NAME is empty"),
        (("list", "--file", "/no/keys"), "--file: there is no file /no/keys."),
        (("revoke", "a", "--file", "/no/keys"), "--file: there is no file /no/keys."),
        (("rotate", "3" * 12, "--hours", "nan"), "--hours"),
        (("rotate", "3" * 12, "--hours", "1e12"), "--hours"),
    ]:
        path = tmp_path / "keys"
        before = f"a:{'1' * 64}::twice\na:{'2' * 64}::twice\na:{'3' * 64}\na:{'4' * 64}:::2020-01-01\n"
        path.write_text(before)
        assert main(["keys", arguments[0], "--file", str(path), *arguments[1:]]) == 2
        assert reason in capsys.readouterr().err
        assert path.read_text() == before


@pytest.mark.parametrize("role", KeyRole)
def test_a_key_is_made_with_any_role(role: KeyRole, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    assert main(["keys", "new", "team-a", "--role", role, "--file", str(path)]) == 0
    assert [key.role for key in load_keys(path).keys.values()] == [role]


def test_a_changed_key_file_keeps_its_link_its_owner_and_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, link = tmp_path / "mounted" / "keys", tmp_path / "keys"
    path.parent.mkdir()
    path.write_text("")
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 1234, 1234)
    before = path.stat()
    link.symlink_to(path)
    assert main(["keys", "new", "team-a", "--file", str(link)]) == 0
    after = path.stat()
    assert link.is_symlink()
    assert path.read_text().startswith("team-a:")
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    kept = path.read_text()
    assert main(["keys", "new", "team-b", "--file", str(link)]) != 0
    assert (path.read_text(), os.listdir(path.parent)) == (kept, ["keys"])


async def test_an_operator_who_allows_no_policy_allows_agents_none_on_a_session(
    serve: Serve, keys: Path
) -> None:
    async with serve(storage_url="memory:", api_keys_file=keys, allow_request_overrides=False) as client:

        async def put(key: str) -> httpx.Response:
            headers = by(key, **{"Spillgate-Tenant": "red"})
            return await client.put("/sessions/s", json={"policy": {"max_bytes": 0}}, headers=headers)

        refused = await put("agent")
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_policy")
        plain = await client.put("/sessions/s", json={"context_window": 1000}, headers=by("agent"))
        assert plain.json()["policy"] is None
        assert (await put("admin")).json()["policy"] == {"max_bytes": 0}
    async with serve(storage_url="memory:", allow_request_overrides=False) as client:
        opened = await client.put("/sessions/s", json={"policy": {"max_bytes": 0}})
        assert opened.json()["policy"] == {"max_bytes": 0}


async def test_a_last_line_of_the_keys_that_was_cut_gives_no_rights(serve: Serve, tmp_path: Path) -> None:
    path = key_file(tmp_path / "keys", "red:agent:agent", "ops:scrape:metrics:prometheus:2020-01-01")
    whole = path.read_text()
    first = whole.index("\n") + 1
    of_digest, after = first + len("ops:"), whole.index(":metrics")
    for end in [*range(of_digest, after, 16), *range(after, len(whole) - 1)]:
        path.write_text(whole[:end])
        async with serve(storage_url="memory:", api_keys_file=path) as client:
            assert (await client.get("/sessions", headers=by("scrape"))).status_code == 401
            assert (await client.get("/sessions", headers=by("agent"))).status_code == 200


def test_keys_are_not_changed_where_the_last_line_was_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = key_file(tmp_path / "keys", "ops:scrape:metrics")
    path.write_text(cut := path.read_text().removesuffix(":metrics\n"))
    for command in (["new", "red"], ["revoke", "scrape"], ["rotate", "scrape"]):
        assert main(["keys", *command, "--file", str(path)]) == 2
        assert "the last line has no newline" in capsys.readouterr().err
    assert path.read_text() == cut
    assert main(["keys", "list", "--file", str(path)]) == 0
    assert "not in force" in capsys.readouterr().out


async def test_health_shows_figures_of_tenants_to_those_who_may_know_them(serve: Serve, keys: Path) -> None:
    async with serve(storage_url="memory:", api_keys_file=keys) as client:
        for number in range(3):
            await client.put(f"/sessions/run-{number}", json={}, headers=by("agent"))
        await client.put("/sessions/run", json={}, headers=by("other"))

        async def sessions(**headers: str) -> tuple[Any, Any]:
            health = (await client.get("/healthz", headers=headers)).json()
            assert (health["ledger_bytes"] is None) == (health["sessions"] is None)
            return health["sessions"], health["sessions_cap"]

        assert await sessions() == (None, None)
        assert await sessions(**by("unknown")) == (None, None)
        assert await sessions(**by("other")) == (1, 10_000)
        assert await sessions(**by("agent")) == await sessions(**by("metrics")) == (3, 10_000)
