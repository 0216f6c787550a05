"""The public keys of an OIDC issuer: fetched in the background, cached, and bounded."""

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Any, TypeVar

import httpx
import msgspec
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from app.settings import is_secure
from domain.errors import IssuerUnavailable

log = logging.getLogger("spillgate.issuer")

T = TypeVar("T")

REFRESH_SECONDS = 300.0
RETRY_SECONDS = 10.0
LEAST_SECONDS = 10.0
"""The seconds between two fetches for tokens with an unknown key."""
WAIT_SECONDS = 2.0
"""The most seconds that such a request waits for the fetch."""
LAST_SECONDS = 86_400.0
"""The time after the last successful fetch for which keys are in force."""
FETCH_SECONDS = 10.0
MAX_BYTES = 1 << 18
MAX_KEYS = 100
RSA_BITS = range(2048, 8193)

_DISCOVERY = "/.well-known/openid-configuration"
ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""By the type of a key. Those with a secret, such as HS256, are not among them: the public key is enough
to sign with it."""


class _Discovery(msgspec.Struct):
    issuer: str
    jwks_uri: str


class _KeySet(msgspec.Struct):
    keys: list[dict[str, Any]]


class _Fault(Exception):
    """Why the keys could not be fetched. Quotes nothing of the issuer's answer."""


class IssuerKeys:
    """The keys by id (`kid`) and algorithm. `follow` must run."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._keys: dict[tuple[str, str], PyJWK] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._wanted = asyncio.Event()
        self._tried = asyncio.Event()
        self._set: list[dict[str, Any]] = []
        self._generation = 0
        self.fault: str | None = None

    @property
    def is_up(self) -> bool:
        return self.fault is None and self._fetched_at is not None

    @property
    def generation(self) -> int:
        """Changes with the keys. Raises IssuerUnavailable while no key is known."""
        self._in_force()
        return self._generation

    def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """Without an id, the only key of the algorithm. Raises IssuerUnavailable while no key is known."""
        keys = self._in_force()
        if kid is not None:
            return keys.get((kid, algorithm))
        suiting = [key for (_, suits), key in keys.items() if suits == algorithm]
        return suiting[0] if len(suiting) == 1 else None

    async def wait_for(self, kid: str | None, algorithm: str) -> None:
        """Fetches an unknown key, and waits at most WAIT_SECONDS."""
        now = time.monotonic()
        is_known = self._fetched_at is not None and self.find(kid, algorithm) is not None
        is_recent = self._tried_at is not None and now - self._tried_at < LEAST_SECONDS
        if is_known or is_recent:
            return
        if self._tried.is_set():
            self._tried.clear()
            self._wanted.set()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._tried.wait()
        except TimeoutError:
            return

    async def follow(self) -> None:
        """Forever."""
        tls = httpx.create_ssl_context()
        async with httpx.AsyncClient(verify=tls, trust_env=False, timeout=FETCH_SECONDS) as client:
            while True:
                self._wanted.clear()
                await self._fetch(client)
                self._tried_at = time.monotonic()
                self._tried.set()
                pause = REFRESH_SECONDS if self.fault is None else RETRY_SECONDS
                try:
                    async with asyncio.timeout(pause):
                        await self._wanted.wait()
                except TimeoutError:
                    continue

    def _in_force(self) -> dict[tuple[str, str], PyJWK]:
        if self._fetched_at is None or time.monotonic() - self._fetched_at > LAST_SECONDS:
            raise IssuerUnavailable
        return self._keys

    async def _fetch(self, client: httpx.AsyncClient) -> None:
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                key_set = await self._fetched(client)
        except (_Fault, TimeoutError, httpx.HTTPError) as error:
            fault = str(error) if isinstance(error, _Fault) else "it cannot be reached, or is too slow"
            if fault != self.fault:
                log.warning("The keys of the issuer cannot be fetched: %s.", fault)
            self.fault = fault
            return
        if self.fault is not None or key_set != self._set:
            log.info("The keys of the issuer were fetched.", extra={"fields": {"keys": len(key_set)}})
        if key_set != self._set:
            self._generation += 1
            self._set, self._keys = key_set, _by_name(key_set)
        self.fault, self._fetched_at = None, time.monotonic()

    async def _fetched(self, client: httpx.AsyncClient) -> list[dict[str, Any]]:
        """The keys as the issuer publishes them. Raises _Fault, httpx.HTTPError."""
        url = f"{self._issuer.rstrip('/')}{_DISCOVERY}"
        discovery = await _json(client, _address(url, "its address"), _Discovery)
        if discovery.issuer != self._issuer:
            raise _Fault("its discovery document names another issuer")
        keys_url = _address(discovery.jwks_uri, "the address of its keys (jwks_uri)")
        key_set = (await _json(client, keys_url, _KeySet)).keys[:MAX_KEYS]
        if not _by_name(key_set):
            raise _Fault("it has no key that can be used")
        return key_set


def _address(url: str, name: str) -> httpx.URL:
    """Raises _Fault for a text that is not a URL, and for a URL that is neither of https nor of this
    machine."""
    if not is_secure(url):
        raise _Fault(f"{name} is not an https URL")
    try:
        # A request, unlike a URL, is made of all parts of the address.
        return httpx.Request("GET", url).url
    except (httpx.InvalidURL, UnicodeError):
        raise _Fault(f"{name} is not a valid URL") from None


async def _json(client: httpx.AsyncClient, url: httpx.URL, kind: type[T]) -> T:
    """Raises _Fault, httpx.HTTPError."""
    body = bytearray()
    async with client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as answer:
        if answer.status_code != httpx.codes.OK:
            raise _Fault(f"it answered with the status {answer.status_code}")
        async for part in answer.aiter_raw():
            body += part
            if len(body) > MAX_BYTES:
                raise _Fault(f"it answered with more than {MAX_BYTES} bytes")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError):
        raise _Fault("what it answered is not the JSON that OpenID Connect describes") from None


def _by_name(key_set: list[dict[str, Any]]) -> dict[tuple[str, str], PyJWK]:
    return {(kid, algorithm): key for one in key_set for kid, algorithm, key in _signing_keys(one)}


def _signing_keys(one: dict[str, Any]) -> Iterator[tuple[str, str, PyJWK]]:
    """Id, algorithm and key, for each algorithm that may be used with it. Nothing for a key that is not for
    signatures, is private, or is of an unknown type or an unusual size."""
    kid, kind, own_algorithm = one.get("kid", ""), one.get("kty"), one.get("alg")
    if not isinstance(kid, str) or not isinstance(kind, str) or one.get("use", "sig") != "sig" or "d" in one:
        return
    for algorithm in ALGORITHMS.get(kind, ()):
        if own_algorithm not in (None, algorithm):
            continue
        try:
            key = PyJWK(one, algorithm)
        except (PyJWTError, ValueError, TypeError, KeyError):
            continue
        if kind != "RSA" or key.key.key_size in RSA_BITS:
            yield kid, algorithm, key
