"""Encryption at rest: what is promised to be encrypted is unreadable in a store, and damage is not shown."""

import base64
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import redis

from app.cli.main import main
from app.settings import Settings
from domain.errors import ConfigError
from storage.sealed.store import CHUNK, FOOTER, UNIT
from tests.conftest import Serve
from tests.faults.test_damage import changed

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = pytest.mark.anyio

BODY, ARGS, TAIL = "PAYROLL-of-anna", "secret-argument", "last-line-of-all"
KEYS = {"one": bytes(range(32)), "two": bytes(range(32, 64))}
FIRST = ("handle", "content", "entry_id")
ZSTD = b"\x28\xb5\x2f\xfd"


def key_lines(**keys: bytes) -> str:
    return "".join(f"{name}:{secret.hex()}\n" for name, secret in keys.items())


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "storage.keys"
    path.write_text(f"# of the platform team\n\n{key_lines(one=KEYS['one'])}")
    path.chmod(0o600)
    return path


@pytest.fixture(autouse=True)
def immediate(monkeypatch: pytest.MonkeyPatch, patient_redis: None) -> None:
    """A change of the key file is seen at once."""
    monkeypatch.setattr("app.files.LOOK_SECONDS", 0.0)
    monkeypatch.setattr("app.operations.readiness.FRESH_SECONDS", 0.0)


@dataclass
class Disk:
    """What a service keeps under a directory."""

    root: Path

    def everything(self) -> bytes:
        return b"\n".join(path.read_bytes() for path in sorted(self.root.rglob("*")) if path.is_file())

    def _path(self, handle: str, name: str = "{}") -> Path:
        session, _, file = handle.partition("/")
        return self.root / "tool_output" / "default" / session / name.format(file)

    def body(self, handle: str) -> bytes:
        return self._path(handle).read_bytes()

    def set_body(self, handle: str, body: bytes) -> None:
        self._path(handle).write_bytes(body)
        info = self._path(handle, ".{}.json")
        # A person who changes files can change this, too.
        info.write_bytes(re.sub(rb'"body_bytes":\d+', b'"body_bytes":%d' % len(body), info.read_bytes()))
        info.write_bytes(changed(info.read_bytes()))

    def info(self, handle: str) -> bytes:
        return self._path(handle, ".{}.json").read_bytes()

    def set_info(self, handle: str, info: bytes) -> None:
        self._path(handle, ".{}.json").write_bytes(info)


@dataclass
class Redis:
    """What a service keeps in Redis: bodies up to 1 MiB in the hash of their result."""

    client: "redis.Redis[bytes]"

    def everything(self) -> bytes:
        return b"\n".join(value for key in self.client.scan_iter() for value in (key, *self._values(key)))

    def _values(self, key: bytes) -> list[bytes]:
        kind = self.client.type(key)
        if kind == b"hash":
            found = [part for pair in self.client.hgetall(key).items() for part in pair]
        elif kind == b"stream":
            found = [part for _, fields in self.client.xrange(key) for part in fields.values()]
        elif kind == b"zset":
            found = self.client.zrange(key, 0, -1)
        elif kind == b"set":
            found = list(self.client.smembers(key))
        else:
            found = [self.client.get(key) or b""]
        return [zstd.decompress(part) if part.startswith(ZSTD) else part for part in found]

    def _key(self, handle: str) -> bytes:
        name = handle.removeprefix("session-").replace("/file-", "/")
        (key,) = self.client.keys(f"*:result:{name}")
        return key

    def body(self, handle: str) -> bytes:
        return zstd.decompress(self.client.hget(self._key(handle), "segment"))

    def set_body(self, handle: str, body: bytes) -> None:
        self.client.hset(self._key(handle), mapping={"segment": zstd.compress(body), "size": len(body)})

    def info(self, handle: str) -> bytes:
        return self.client.hget(self._key(handle), "info")

    def set_info(self, handle: str, info: bytes) -> None:
        self.client.hset(self._key(handle), "info", info)


Place = Disk | Redis


@pytest.fixture(params=["disk", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "disk":
        return Disk(tmp_path / "state")
    return Redis(redis.Redis.from_url(request.getfixturevalue("redis_url")))


@pytest.fixture
def settings(place: Place, request: pytest.FixtureRequest) -> dict[str, Any]:
    if isinstance(place, Disk):
        return {}
    return {"storage_url": request.getfixturevalue("redis_url")}


def content(lines: int, first: str = BODY) -> str:
    return "\n".join([first, *(f"line {number} of {os.urandom(8).hex()}" for number in range(lines)), TAIL])


async def send(client: httpx.AsyncClient, text: str, **fields: Any) -> dict[str, Any]:
    given = {"tool_name": "execute_shell", "session_id": "s", "tool_arguments": {"path": ARGS}, **fields}
    answer = await client.post("/results", json=given | {"content": text})
    assert answer.status_code in (200, 201), answer.text
    return dict(answer.json())


async def use(client: httpx.AsyncClient, text: str) -> None:
    """Stores, asks, reads back and retries, as an agent does."""
    kept = [await send(client, text), await send(client, text, tool_call_id="named")]
    cut = await send(client, text, tool_call_id="cut", policy={"on_oversize": "truncate"})
    assert BODY in cut["content"]
    for stored in kept:
        path = f"/results/{stored['handle']}"
        assert (await client.get(f"{path}/content")).text == text
        info = (await client.get(path)).json()
        assert (info["measure"]["bytes"], info["tool_arguments"]) == (len(text), f'{{"path":"{ARGS}"}}')
        part = await client.get(f"{path}/content", headers={"Range": "bytes=65530-65599"})
        assert (part.status_code, part.text) == (206, text[65530:65600])
        assert (await client.get(f"{path}/content", headers={"Range": "bytes=-4"})).text == text[-4:]
        lines = (await client.get(f"{path}/lines", params={"offset": 3, "limit": 2})).json()
        assert [one["text"] for one in lines["lines"]] == text.splitlines()[2:4]
        found = (await client.get(f"{path}/grep", params={"pattern": "PAYROLL"})).json()
        assert [one["line"] for one in found["matches"]] == [1]
        answer = await client.post("/extract", json={"handle": stored["handle"], "extract": "PAYROLL anna"})
        assert BODY in answer.json()["text"]
        given = (await client.get(f"{path}/given")).json()["given"]
        assert answer.json()["text"] in [one["text"] for one in given]
    again = await send(client, text, tool_call_id="cut", policy={"on_oversize": "truncate"})
    assert (again["content"], again["entry_id"]) == (cut["content"], cut["entry_id"])


@pytest.mark.parametrize("is_sealed", [True, False], ids=["sealed", "plain"])
async def test_of_bodies_arguments_and_texts_for_the_model_nothing_is_readable_in_the_store(
    serve: Serve, place: Place, settings: dict[str, Any], keys: Path, is_sealed: bool
) -> None:
    given = settings | ({"storage_key_file": keys} if is_sealed else {})
    text = content(7500)
    async with serve(**given) as client:
        await use(client, text)
        everything = place.everything()
    assert b"execute_shell" in everything
    readable = [mark for mark in (BODY, ARGS, TAIL, text.splitlines()[99]) if mark.encode() in everything]
    # The plain run proves that the search finds what is there.
    assert readable == ([] if is_sealed else [BODY, ARGS, TAIL, text.splitlines()[99]])
    if not is_sealed:
        # In two bodies, in the receipts of two calls, and in what two questions were answered.
        assert everything.count(BODY.encode()) > 4


@pytest.mark.parametrize("is_sealed", [True, False], ids=["sealed", "plain"])
async def test_a_draft_is_sealed_too(
    serve: Serve, tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch, is_sealed: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    disk = Disk(tmp_path / "state")
    seen: list[bool] = []

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield (BODY.encode() + b"\n") * 8000
        drafts = [path.read_bytes() for path in disk.root.rglob("draft-*")]
        assert any(drafts)
        seen.append(any(BODY.encode() in draft for draft in drafts))

    given = {"storage_key_file": keys} if is_sealed else {}
    async with serve(**given) as client:
        sent = {"tool_name": "execute_shell", "session_id": "s"}
        headers = {"Content-Type": "text/plain"}
        stored = await client.post("/results", params=sent, content=pieces(), headers=headers)
        assert stored.status_code == 201, stored.text
        body = await client.get(f"/results/{stored.json()['handle']}/content")
        assert len(body.content) == 40 * 8000 * (len(BODY) + 1)
    assert seen == [not is_sealed]


def flip(at: int) -> Callable[[bytes, bytes], bytes]:
    def flipped(body: bytes, other: bytes) -> bytes:
        changed = bytearray(body)
        changed[at] ^= 1
        return bytes(changed)

    return flipped


DAMAGES: dict[str, Callable[[bytes, bytes], bytes]] = {
    "a bit of a nonce": flip(3),
    "a bit of the first chunk": flip(500),
    "a bit of a later chunk": flip(UNIT + 500),
    "a bit of a tag": flip(UNIT - 1),
    "a bit of the last chunk": flip(-FOOTER - 20),
    "a bit of the mark": flip(-FOOTER),
    "a bit of the key's id": flip(-FOOTER + 8),
    "a bit of the body's key": flip(-20),
    "the end is cut off": lambda body, other: body[:-1000],
    "a chunk is cut out": lambda body, other: body[:UNIT] + body[2 * UNIT :],
    "the last chunk is cut out": lambda body, other: body[: 3 * UNIT] + body[-FOOTER:],
    "empty": lambda body, other: b"",
    "two chunks changed places": lambda body, other: body[UNIT : 2 * UNIT] + body[:UNIT] + body[2 * UNIT :],
    "the body of another handle": lambda body, other: other,
    "a chunk of another handle": lambda body, other: other[:UNIT] + body[UNIT:],
    "not encrypted": lambda body, other: content(9).encode(),
}


async def test_a_sealed_body_is_queried_and_again_from_the_process_that_is_kept(
    serve: Serve, place: Place, settings: dict[str, Any], keys: Path
) -> None:
    rows = json.dumps([{"id": number, "name": BODY} for number in range(9000)])
    async with serve(**settings, storage_key_file=keys) as client:
        handle = (await send(client, rows))["handle"]
        for sql, wanted in (
            ("SELECT sum(id) AS n FROM data", 40_495_500),
            ("SELECT max(id) AS n FROM data", 8999),
        ):
            answer = await client.get(f"/results/{handle}/query", params={"expression": sql})
            assert answer.json()["result"] == [{"n": wanted}]
    assert BODY.encode() not in place.everything()


async def test_a_damaged_body_is_an_error_and_never_other_bytes(
    serve: Serve, place: Place, settings: dict[str, Any], keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = content(7500)
    assert 3 * CHUNK < len(text) < 4 * CHUNK
    async with serve(**settings, storage_key_file=keys) as client:
        other = (await send(client, text))["handle"]
        handles = {damage: (await send(client, text))["handle"] for damage in DAMAGES}
        for damage, handle in handles.items():
            place.set_body(handle, DAMAGES[damage](place.body(handle), place.body(other)))
            path = f"/results/{handle}"
            answers = [
                await client.get(f"{path}/content"),
                await client.get(f"{path}/content", headers={"Range": f"bytes={len(text) - 9}-"}),
                await client.get(f"{path}/grep", params={"pattern": "line"}),
                await client.get(f"{path}/lines"),
            ]
            whole, *_ = answers
            assert (damage, whole.status_code) == (damage, 410)
            # A range may miss a damaged chunk. What is shown is right.
            assert (damage, {one.status_code for one in answers[2:]}) == (damage, {410})
            assert answers[1].status_code == 410 or answers[1].text == text[-9:]
            assert sum(handle in record.getMessage() for record in caplog.records) >= 1, damage
        assert (await client.get(f"/results/{other}/content")).text == text


async def test_an_info_that_is_damaged_or_of_another_handle_is_not_found(
    serve: Serve, place: Place, settings: dict[str, Any], keys: Path
) -> None:
    async with serve(**settings, storage_key_file=keys) as client:
        one, other = [(await send(client, content(7500)))["handle"] for _ in range(2)]
        file_id = one.partition("/file-")[2]
        place.set_info(one, changed(place.info(other), handle=["s", file_id]))
        place.set_body(one, place.body(other))
        place.set_info(other, re.sub(rb"(spillgate-sealed-1:one:\w+:)", rb"\1AAAA", place.info(other)))
        place.set_info(other, changed(place.info(other)))
        for handle in (one, other):
            statuses = {
                (await client.get(f"/results/{handle}{path}")).status_code
                for path in ("", "/content", "/lines", "/grep?pattern=x")
            }
            assert statuses == {404}


async def test_no_field_of_an_info_can_be_changed_with_its_checksum(
    serve: Serve, place: Place, settings: dict[str, Any], keys: Path
) -> None:
    async with serve(**settings, storage_key_file=keys) as client:
        handle = (await send(client, content(7500)))["handle"]
        info = place.info(handle)
        measure = json.loads(info).get("stored", json.loads(info))["measure"]
        for fields in (
            {"measure": measure | {"bytes": 7}},
            {"measure": measure | {"lines": 1}},
            {"measure": measure | {"tokens": 1}},
            {"tool_name": "read_file"},
            {"tool_namespace": "other"},
            {"tool_kind": "search"},
            {"provider": "other"},
            {"is_error": True},
            {"stored_at": 1},
            {"epoch": 7},
        ):
            place.set_info(handle, changed(info, **fields))
            for path in ("", "/content", "/lines", "/grep?pattern=x"):
                answer = await client.get(f"/results/{handle}{path}")
                assert (fields, answer.status_code) == (fields, 404)
        place.set_info(handle, info)
        assert (await client.get(f"/results/{handle}")).status_code == 200


async def test_a_large_body_that_is_damaged_late_ends_before_the_damage(
    serve: Serve, tmp_path: Path, keys: Path
) -> None:
    place, text = Disk(tmp_path / "state"), content(120_000)
    async with serve(storage_key_file=keys) as client:
        handle = (await send(client, text))["handle"]
        assert (await client.get(f"/results/{handle}/content")).text == text
        place.set_body(handle, flip(50 * UNIT + 99)(place.body(handle), b""))
        answer = await client.get(f"/results/{handle}/content")
        assert len(answer.text) < len(text)
        assert text.startswith(answer.text)
        part = await client.get(f"/results/{handle}/content", headers={"Range": "bytes=0-99"})
        assert part.text == text[:100]
        part = await client.get(f"/results/{handle}/content", headers={"Range": f"bytes={50 * CHUNK}-"})
        assert part.status_code == 410


async def test_keys_rotate_without_a_restart_and_each_one_opens_what_it_sealed(
    serve: Serve,
    place: Place,
    settings: dict[str, Any],
    keys: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = content(7500)
    given = settings | {"storage_key_file": keys}
    async with serve(**given) as client:
        old = (await send(client, text))["handle"]
        # The new key first, in base64.
        both = f"two:{base64.b64encode(KEYS['two']).decode()}\n{key_lines(one=KEYS['one'])}"
        keys.write_text(both)
        new = (await send(client, text))["handle"]
        assert [place.body(one)[-FOOTER + 8 :][:3] for one in (old, new)] == [b"one", b"two"]
        for handle in (old, new):
            assert (await client.get(f"/results/{handle}/content")).text == text
    for lines, why in (
        (key_lines(two=KEYS["two"]), "key id one"),
        (key_lines(two=KEYS["two"], one=bytes(32)), "key id one, of which the file has another key"),
    ):
        keys.write_text(lines)
        caplog.clear()
        async with serve(**given) as client:
            assert (await client.get("/readyz")).status_code == 200
            assert (await client.get(f"/results/{new}/content")).text == text
            gone = await client.get(f"/results/{old}/content")
            assert (gone.status_code, gone.json()["code"]) == (503, "store_unavailable")
            assert "SPILLGATE_STORAGE_KEY_FILE does not have" in gone.json()["detail"]
            (told,) = [
                getattr(one, "fields", {})["why"] for one in caplog.records if one.message == "refused"
            ]
            assert told == f"{gone.json()['detail']} Cause: {why}."
            keys.write_text(both)
            assert (await client.get(f"/results/{old}/content")).text == text


async def test_a_file_without_a_key_is_refused_at_the_start(
    serve: Serve, settings: dict[str, Any], tmp_path: Path
) -> None:
    other = tmp_path / "other.keys"
    refused = {
        "the file holds no key. .* see docs/encryption.md": "# none\n",
        "line 1: a key is 32 bytes": "one:abcd\n",
        "line 1: write `id:key`": f"{KEYS['one'].hex()}\n",
    }
    for told, lines in refused.items():
        other.write_text(lines)
        with pytest.raises(ConfigError, match=told):
            async with serve(**settings, storage_key_file=other):
                pass
    with pytest.raises(ConfigError, match="there is no file"):
        async with serve(**settings, storage_key_file=tmp_path / "none"):
            pass


async def test_an_instance_without_keys_shows_nothing_that_another_one_encrypts(
    serve: Serve, redis_url: str, keys: Path
) -> None:
    async with (
        serve(storage_url=redis_url) as keyless,
        serve(storage_url=redis_url, storage_key_file=keys) as client,
    ):
        handle = (await send(client, content(7500)))["handle"]
        for path in ("", "/content", "/lines", "/grep?pattern=x"):
            answer = await keyless.get(f"/results/{handle}{path}")
            assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
        plain = (await send(keyless, content(7500)))["handle"]
        assert (await client.get(f"/results/{plain}/content")).status_code == 200
        # A result with such arguments that was not encrypted is found.
        args = {"tool_arguments": "spillgate-sealed-1:one:AAAA"}
        like = (await send(keyless, content(7500), **args))["handle"]
        assert (await keyless.get(f"/results/{like}/content")).status_code == 200


CUT = {"tool_call_id": "cut", "policy": {"on_oversize": "truncate", "keep": False}}


async def test_a_text_without_a_body_needs_its_key_too(
    serve: Serve, place: Place, settings: dict[str, Any], keys: Path
) -> None:
    text, given = content(7500), settings | {"storage_key_file": keys}
    async with serve(**given) as client:
        cut = await send(client, text, **CUT)
        assert (BODY in cut["content"], cut["handle"]) == (True, None)
        assert BODY.encode() not in place.everything()
    keys.write_text(key_lines(one=KEYS["two"]))
    async with serve(**given) as client:
        sent = {"tool_name": "execute_shell", "session_id": "s", "tool_arguments": {"path": ARGS}}
        answer = await client.post("/results", json=sent | CUT | {"content": text})
        assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
        keys.write_text(key_lines(one=KEYS["one"]))
        assert (await send(client, text, **CUT))["content"] == cut["content"]


async def test_bad_lines_are_named_and_the_others_stay_in_force(
    serve: Serve,
    settings: dict[str, Any],
    keys: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with keys.open("a") as file:
        file.write(f"bad id:{'0' * 64}\none:{'1' * 64}\n")
    keys.chmod(0o644)
    text = content(7500)
    async with serve(**settings, storage_key_file=keys) as client:
        handle = (await send(client, text))["handle"]
        warnings = " ".join((await client.get("/readyz")).json()["warnings"])
        assert "SPILLGATE_STORAGE_KEY_FILE, line 4: write `id:key`" in warnings
        assert "line 5: an id that another line has with another key" in warnings
        assert "every user of this machine may read the file" in warnings
        assert "spillgate_storage_key_faults 3.0" in (await client.get("/metrics")).text
        for lines in ("", "nonsense\n"):
            keys.write_text(lines)
            assert (await client.get(f"/results/{handle}/content")).text == text
            (warning,) = [
                one for one in (await client.get("/readyz")).json()["warnings"] if "stay in force" in one
            ]
            assert KEYS["one"].hex() not in warning
        shown = (await client.get("/config")).json()["settings"]["SPILLGATE_STORAGE_KEY_FILE"]
        assert shown == str(keys)
    monkeypatch.setenv("SPILLGATE_STORAGE_KEY_FILE", str(keys))
    assert main(["check-config"]) != 0
    assert "SPILLGATE_STORAGE_KEY_FILE, line 1: write `id:key`" in capsys.readouterr().err


async def test_what_was_stored_before_stays_readable_and_a_retry_of_it_is_sealed(
    serve: Serve, place: Place, settings: dict[str, Any], keys: Path
) -> None:
    text = content(7500)
    large = content(60_000)
    async with serve(**settings) as client:
        plain = (await send(client, text))["handle"]
        named = await send(client, large, tool_call_id="named")
    async with serve(**settings, storage_key_file=keys) as client:
        new = (await send(client, text))["handle"]
        for handle in (plain, new):
            assert (await client.get(f"/results/{handle}/content")).text == text
        again = await send(client, large, tool_call_id="named")
        assert [again[name] for name in FIRST] == [named[name] for name in FIRST]
        await client.delete(f"/results/{named['handle']}")
        again = await send(client, large, tool_call_id="named")
        assert (await client.get(f"/results/{again['handle']}/content")).text == large
    if isinstance(place, Disk):
        sealed = [TAIL.encode() not in place.body(handle) for handle in (plain, new, named["handle"])]
        assert sealed == [False, True, True]


async def test_without_the_package_the_start_says_what_to_install(
    serve: Serve, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("cryptography", "storage.sealed.s"))]:
        monkeypatch.delitem(sys.modules, name)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "cryptography", None)
        with pytest.raises(ConfigError, match="Install requirements-extras"):
            async with serve(storage_key_file=keys):
                pass
    # Another fault of an import is not taken for a missing package.
    monkeypatch.setitem(sys.modules, "storage.sealed.seals", ModuleType("storage.sealed.seals"))
    with pytest.raises(ImportError, match=r"from 'storage\.sealed\.seals'"):
        async with serve(storage_key_file=keys):
            pass


def test_the_path_of_an_encrypted_file_is_told_to_no_shell(keys: Path) -> None:
    assert Settings().names_paths
    assert not Settings(storage_key_file=keys).names_paths
