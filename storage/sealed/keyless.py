"""A store of a process without keys: what another process stored encrypted is refused, and never shown."""

from typing import Any

from domain.handles import Handle
from domain.ports import ResultStore
from domain.results import StoredResult
from storage.sealed.keys import UnknownKey, is_sealed


class KeylessStore:
    """Has all else as `inner` has it."""

    def __init__(self, inner: ResultStore) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def find(self, tenant: str, handle: Handle) -> StoredResult | None:
        """Raises UnknownKey."""
        found = await self._inner.find(tenant, handle)
        if found is not None and is_sealed(found.tool_arguments):
            raise UnknownKey
        return found
