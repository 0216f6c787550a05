"""Who may call: the keys of a file, and the tokens of an OIDC issuer beside them."""

from typing import TYPE_CHECKING

from app.http.edge.api_keys import ApiKey, ApiKeys, digest_of
from app.settings import Settings
from domain.errors import ConfigError, Unauthorized

if TYPE_CHECKING:  # The extra `oidc`.
    from app.http.edge.issuer import Issuer


class Credentials:
    """`keys` is None if only tokens are accepted, `issuer` is None if only keys are."""

    def __init__(self, keys: ApiKeys | None, issuer: "Issuer | None" = None) -> None:
        self._keys = keys
        self.issuer = issuer

    def key_of(self, token: str) -> ApiKey:
        """Raises Unauthorized; for a token of the issuer Forbidden and IssuerUnavailable, too."""
        if self.issuer is not None and self._is_token(token):
            return self.issuer.key_of(token)
        if self._keys is None:
            raise Unauthorized("Send a token of the issuer: `Authorization: Bearer <token>`.")
        return self._keys.key_of(token)

    async def prepare(self, token: str) -> None:
        """Awaited before `key_of`, because the issuer may have a new key."""
        if self.issuer is not None and self._is_token(token):
            await self.issuer.prepare(token)

    def has_tenant(self, tenant: str) -> bool:
        """True if a key of the file is of this tenant."""
        return self._keys is not None and any(key.tenant == tenant for key in self._keys.lines.keys.values())

    @property
    def notices(self) -> list[str]:
        """The warnings: faults in the file of keys, keys that expire soon, and faults of the issuer."""
        warnings = [] if self._keys is None else self._keys.notices
        if self.issuer is not None and (fault := self.issuer.keys.fault) is not None:
            warnings.append(f"The keys of SPILLGATE_OIDC_ISSUER cannot be fetched: {fault}.")
        return warnings

    @property
    def key_faults(self) -> int:
        return 0 if self._keys is None else len(self._keys.warnings)

    @property
    def next_expiry(self) -> float:
        """See `ApiKeys.next_expiry`."""
        return 0.0 if self._keys is None else self._keys.next_expiry

    def _is_token(self, token: str) -> bool:
        """Three parts, as every JWT has. A key of the file goes first."""
        return token.count(".") == 2 and (self._keys is None or digest_of(token) not in self._keys.lines.keys)


def open_credentials(settings: Settings) -> Credentials | None:
    """None where every caller is on this machine. Raises ConfigError."""
    if not settings.needs_key:
        return None
    keys = None if settings.api_keys_file is None else ApiKeys(settings.api_keys_file)
    return Credentials(keys, None if settings.oidc_issuer is None else _issuer(settings))


def _issuer(settings: Settings) -> "Issuer":
    try:
        from app.http.edge.issuer import Issuer
    except ImportError:
        raise ConfigError(
            "SPILLGATE_OIDC_ISSUER needs the extra `oidc`. docs/settings.md says how to install it."
        ) from None
    return Issuer(settings)
