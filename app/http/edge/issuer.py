"""Tokens of an OIDC issuer: whether one is valid, and what its claims say of tenant and role."""

import sys
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import jwt
from jwt import exceptions

from app.http.api.roles import KeyRole
from app.http.edge.api_keys import ApiKey, digest_of
from app.http.edge.issuer_keys import IssuerKeys
from app.settings import Settings
from content.text import without_surrogates
from domain.errors import Forbidden, IssuerUnavailable, Unauthorized
from domain.handles import is_name

LEEWAY_SECONDS = 30.0
"""The most seconds by which the clocks of the issuer and of this machine may differ."""

MOST_VERIFIED = 10_000
"""The most tokens whose signature need not be checked again."""

_NAME_CHARS = 64

_REFUSED: tuple[tuple[type[exceptions.PyJWTError], str], ...] = (
    (exceptions.ExpiredSignatureError, "This token has expired."),
    (exceptions.ImmatureSignatureError, "This token is not valid yet."),
    (exceptions.InvalidAudienceError, "This token is for another audience."),
    (exceptions.InvalidIssuerError, "This token is of another issuer."),
    (exceptions.MissingRequiredClaimError, "This token lacks a claim: it must have exp, iss and aud."),
    (exceptions.InvalidSignatureError, "The signature of this token is not valid."),
)


class Issuer:
    """The tokens of one issuer for one audience."""

    def __init__(self, settings: Settings) -> None:
        self._issuer, self._audience = settings.oidc_issuer or "", settings.oidc_audience or ""
        self._tenant_claim, self._role_claim = settings.oidc_tenant_claim, settings.oidc_role_claim
        self.keys = IssuerKeys(self._issuer)
        self._verified = OrderedDict[tuple[str, int], ApiKey]()

    async def prepare(self, token: str) -> None:
        """Waits for the key that signed the token, for a moment, if it is not known."""
        with suppress(Unauthorized, IssuerUnavailable):
            await self.keys.wait_for(*_signed_by(token))

    def key_of(self, token: str) -> ApiKey:
        """What the token may do. Raises Unauthorized, Forbidden if its claims name no tenant or role,
        IssuerUnavailable while the keys of the issuer are not known."""
        digest, generation = digest_of(token), self.keys.generation
        known = self._verified.get((digest, generation))
        if known is not None and not known.has_expired(time.time()):
            return known
        claims = self._claims(token)
        key = ApiKey(
            self._tenant(claims),
            digest,
            self._role(claims),
            str(without_surrogates(claims.get("sub") or claims.get("azp") or ""))[:_NAME_CHARS],
            _expiry(claims["exp"]) + LEEWAY_SECONDS,
        )
        self._verified[digest, generation] = key
        if len(self._verified) > MOST_VERIFIED:
            self._verified.popitem(last=False)
        return key

    def _claims(self, token: str) -> dict[str, Any]:
        kid, algorithm = _signed_by(token)
        key = self.keys.find(kid, algorithm)
        if key is None:
            raise Unauthorized("This token is signed with a key that its issuer does not have.")
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud"]},
            )
        except exceptions.PyJWTError as error:
            raise Unauthorized(_why(error)) from None
        return claims

    def _tenant(self, claims: Mapping[str, Any]) -> str:
        tenant = _claim(claims, self._tenant_claim)
        if tenant is None:
            raise Forbidden("This token names no tenant. SPILLGATE_OIDC_TENANT_CLAIM says in which claim.")
        if not isinstance(tenant, str) or not is_name(tenant):
            raise Forbidden("The tenant that this token names is not a valid name of a tenant.")
        return tenant

    def _role(self, claims: Mapping[str, Any]) -> KeyRole:
        if self._role_claim is None:
            return KeyRole.AGENT
        claim = _claim(claims, self._role_claim)
        named = {role for role in (claim if isinstance(claim, list) else [claim]) if isinstance(role, str)}
        roles = [role for role in KeyRole if role in named]
        if len(roles) != 1:
            raise Forbidden(
                f"This token must name one role of {', '.join(KeyRole)}. SPILLGATE_OIDC_ROLE_CLAIM says in "
                "which claim."
            )
        return roles[0]


def _signed_by(token: str) -> tuple[str | None, str]:
    """The id of the key, if the token names it, and the algorithm. Raises Unauthorized."""
    try:
        header = jwt.get_unverified_header(token)
    except exceptions.PyJWTError:
        raise Unauthorized("This is neither a known API key nor a token.") from None
    kid, algorithm = header.get("kid"), header.get("alg")
    return kid if isinstance(kid, str) else None, str(algorithm)


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """Finds a claim by its name, or by a path such as `realm_access.roles` into objects."""
    if name in claims:
        return claims[name]
    value: object = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _expiry(claim: object) -> float:
    """Seconds since 1970. Raises Unauthorized for a text, and for a number that no float holds."""
    if isinstance(claim, int | float) and abs(claim) < sys.float_info.max:
        return float(claim)
    raise Unauthorized("This token has no valid exp: it must be a number of seconds.")


def _why(error: exceptions.PyJWTError) -> str:
    return next((why for kind, why in _REFUSED if isinstance(error, kind)), "This token is not valid.")
