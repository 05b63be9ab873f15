"""What changed in the cache since the last step, as events in the order it happened.

The tree tells every change here; the engine takes the list once a step. Neighbouring changes of one kind
become one event, by the rule of SGLang's recorder.
"""

from collections.abc import Sequence

from engine_shim.engine.cache.page_hash import HASHED_PAGES, PageName, PageNaming
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, Event


class _Stored:
    """A growing run of stored pages."""

    def __init__(self, parent: PageName | None, cache_salt: str | None) -> None:
        self.parent = parent
        self.cache_salt = cache_salt
        self.digests: list[PageName] = []
        self.token_bytes = bytearray()

    def is_continued_by(self, parent: PageName | None, cache_salt: str | None) -> bool:
        return parent == self.digests[-1] and cache_salt == self.cache_salt

    def to_event(self, page_tokens: int, naming: PageNaming) -> BlockStored:
        return BlockStored(
            block_hashes=naming.event_hashes(self.digests),
            parent_block_hash=None if self.parent is None else naming.event_hashes((self.parent,))[0],
            token_ids=naming.event_tokens(self.digests, self.token_bytes),
            block_tokens=page_tokens,
            cache_salt=self.cache_salt,
        )


class CacheDeltas:
    """Records changes; `take` hands them over once."""

    def __init__(self, page_tokens: int, naming: PageNaming = HASHED_PAGES) -> None:
        self._page_tokens = page_tokens
        self.naming = naming
        self._changes: list[_Stored | list[PageName] | AllBlocksCleared] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed since the last `take`."""
        return not self._changes

    def stored(
        self,
        digests: Sequence[PageName],
        token_bytes: bytes | bytearray,
        *,
        parent: PageName | None,
        cache_salt: str | None,
    ) -> None:
        """Pages became reusable, in chain order after `parent` (None at the start of a prompt)."""
        tail = self._changes[-1] if self._changes else None
        if not (isinstance(tail, _Stored) and tail.is_continued_by(parent, cache_salt)):
            tail = _Stored(parent, cache_salt)
            self._changes.append(tail)
        tail.digests += digests
        tail.token_bytes += token_bytes

    def removed(self, digests: Sequence[PageName]) -> None:
        """Pages are gone, named from the root down."""
        tail = self._changes[-1] if self._changes else None
        if isinstance(tail, list):
            tail += digests
        else:
            self._changes.append(list(digests))

    def cleared(self) -> None:
        """Everything is gone."""
        self._changes.append(AllBlocksCleared())

    def take(self) -> tuple[Event, ...]:
        """The changes since the last call, in order."""
        changes, self._changes = self._changes, []
        return tuple(self._to_event(change) for change in changes)

    def _to_event(self, change: "_Stored | list[PageName] | AllBlocksCleared") -> Event:
        if isinstance(change, _Stored):
            return change.to_event(self._page_tokens, self.naming)
        if isinstance(change, list):
            return BlockRemoved(block_hashes=self.naming.event_hashes(change))
        return change
