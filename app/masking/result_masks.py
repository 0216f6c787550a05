"""The masks of a result that is being governed: of its content, and of the content blocks with that text."""

from collections.abc import AsyncGenerator

from msgspec import Raw, Struct

from app.masking.search_threads import SearchThreads
from content.redaction.detector import Detector
from content.redaction.masks import Masked, Masks
from content.redaction.search import SecretSearch
from domain.results import Measure
from domain.structs import replace


class ResultMasks(Struct, eq=False):
    """The content is searched while it is read: by `search_at_once`; or by `search` for each chunk, then
    `finish`. If there are secrets, `mask` makes the masks. Until then nothing is masked. A `_detector` of
    None finds no secrets."""

    _detector: Detector | None
    _searches: SearchThreads
    _tenant: str
    _search: SecretSearch | None = None
    _found: Masks | None = None
    _found_in_blocks: Masks | None = None
    _plain_blocks: bytes = b""
    _masked: Masked | None = None
    blocks: bytes | None = None
    """The content blocks with masks; None if they have none."""

    def search_at_once(self, content: bytes) -> bool:
        """Searches the whole content; returns False, and finds nothing, if that would take long."""
        if self._detector is None:
            return True
        search = SecretSearch(self._detector)
        search.hold(content)
        self._found = search.finish_at_once()
        return self._found is not None

    async def search(self, chunk: bytes) -> None:
        if self._detector is not None:
            self._search = self._search or SecretSearch(self._detector)
            self._search.hold(chunk)
            await self._searches.look(self._tenant, self._search)

    async def finish(self) -> None:
        if self._search is not None:
            self._found = await self._searches.finish(self._tenant, self._search)

    async def search_blocks(self, blocks: Raw) -> None:
        """Searches the content blocks, as JSON: their names, links and other members are shown too if the
        result passes."""
        if self._detector is not None:
            plain = self._plain_blocks = bytes(blocks)
            self._found_in_blocks = await self._searches.masks_of(self._tenant, self._detector, plain)

    @property
    def has_secrets(self) -> bool:
        """True if `mask` must be called."""
        return bool(self._found or self._found_in_blocks)

    async def mask(self, key: bytes, size: int) -> None:
        """`key` is that of the session, `size` that of the content in bytes."""
        if self._found:
            self._masked = Masked(self._found, size, key)
        if self._found_in_blocks:
            plain = self._plain_blocks
            shown = await self._searches.masked_json(self._tenant, plain, self._found_in_blocks, key)
            self.blocks = None if shown == plain else shown

    @property
    def has_masks(self) -> bool:
        return self._masked is not None or self.blocks is not None

    @property
    def are_in_content(self) -> bool:
        return self._masked is not None

    @property
    def are_in_passing(self) -> bool:
        """True if what is shown if the result passes has masks."""
        return (self._masked if self._found_in_blocks is None else self.blocks) is not None

    @property
    def counts_in_passing(self) -> dict[str, int] | None:
        """The number of secrets of each kind that are masked if the result passes; None if there are none."""
        masks = self._found if self._found_in_blocks is None else self._found_in_blocks
        return masks.counts if masks is not None and self.are_in_passing else None

    def measure(self, measure: Measure) -> Measure:
        """The measure, with the bytes of the content with masks."""
        return measure if self._masked is None else replace(measure, bytes=self._masked.size)

    def apply(self, content: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        """The content with masks. `content` begins at its first byte."""
        return content if self._masked is None else _applied(self._masked, content)


async def _applied(masked: Masked, content: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    at = 0
    async for chunk in content:
        async for piece in masked.pieces(chunk, at):
            yield piece
        at += len(chunk)
