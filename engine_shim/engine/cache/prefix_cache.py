"""The verbs by which requests use the cache: match, lease, grow, publish, release.

Owns the allocator and the tree together, so that every page is in exactly one place. Takes packed tokens
from admission, gives it leases; gives the engine the events of a step.
"""

from collections.abc import Callable, Sequence

from engine_shim.engine.cache.deltas import CacheDeltas
from engine_shim.engine.cache.page_hash import HASHED_PAGES, PageName, PageNaming
from engine_shim.engine.cache.pages import PageAllocator, PageCounts
from engine_shim.engine.cache.radix_node import RadixNode
from engine_shim.engine.cache.radix_tree import Match, RadixTree
from engine_shim.engine.cache.token_bytes import TOKEN_BYTES
from wire.events import Event


class Lease:
    """A request's right to its pages, and its page table.

    ```
    pages[0 : published_pages]   the tree's, locked up to `node`; others may read them
    pages[published_pages : ]    this lease's own; written by its request, read by nobody else
    ```
    `publish` moves the border; `release` unlocks the first part and frees the second.
    """

    __slots__ = ("node", "pages", "published_pages")

    def __init__(self, node: RadixNode, pages: list[int]) -> None:
        self.node = node
        self.pages = pages
        self.published_pages = len(pages)


class PrefixCache:
    """Pages of one rank: free, cached or leased."""

    def __init__(
        self,
        *,
        page_tokens: int,
        pool_pages: int,
        make_tree: Callable[[int, CacheDeltas], RadixTree] = RadixTree,
        naming: PageNaming = HASHED_PAGES,
    ) -> None:
        self.page_tokens = page_tokens
        self._deltas = CacheDeltas(page_tokens, naming)
        self._tree = make_tree(page_tokens, self._deltas)
        self._allocator = PageAllocator(pool_pages)
        self._leases: dict[int, Lease] = {}
        #: Pages dropped from the tree to make room, ever.
        self.evicted_pages = 0
        self._deltas.cleared()  # tells listeners that what they knew of this rank is gone

    @property
    def obtainable_pages(self) -> int:
        """Pages that a lease could get: free ones, and cached ones after eviction."""
        return self._allocator.free_pages + self._tree.unheld_pages

    @property
    def has_events(self) -> bool:
        """Whether `take_events` would return any."""
        return not self._deltas.is_empty

    def match(self, token_bytes: bytes | bytearray, cache_salt: str | None) -> Match:
        """The longest cached prefix that leaves at least the last token to compute. Changes nothing."""
        usable_tokens = max(0, len(token_bytes) // TOKEN_BYTES - 1)
        return self._tree.match(token_bytes, cache_salt, limit_pages=usable_tokens // self.page_tokens)

    def lease(self, match: Match) -> Lease:
        """Hold the pages of a match that was made since the last change."""
        lease = Lease(self._tree.lock(match), list(match.pages))
        self._leases[id(lease)] = lease
        return lease

    def grow(self, lease: Lease, total_pages: int) -> bool:
        """Give the lease own pages until it has `total_pages`; False, and nothing changed, where there is no room."""
        missing = total_pages - len(lease.pages)
        if missing <= 0:
            return True
        shortage = missing - self._allocator.free_pages
        if shortage > self._tree.unheld_pages:
            return False
        if shortage > 0:
            evicted = self._tree.evict(shortage)
            self.evicted_pages += len(evicted)
            self._retire(evicted)
        lease.pages += self._allocator.take(missing)
        return True

    def publish(self, lease: Lease, token_bytes: bytes | bytearray, computed_tokens: int) -> None:
        """Let others reuse the full pages that hold computed KV; frees those that the tree has already."""
        start, end = lease.published_pages, computed_tokens // self.page_tokens
        if end <= start:
            return
        insertion = self._tree.insert(lease.node, token_bytes, start, tuple(lease.pages[start:end]))
        lease.node, lease.published_pages = insertion.node, end
        if insertion.duplicates:
            lease.pages[start:end] = insertion.pages
            self._retire(insertion.duplicates)

    def release(self, lease: Lease) -> None:
        """End a lease: what was published stays cached, the rest becomes free."""
        del self._leases[id(lease)]
        self._tree.unlock(lease.node)
        self._retire(lease.pages[lease.published_pages :])

    def flush(self) -> bool:
        """Drop everything cached; False, and nothing changed, while a lease is held."""
        if self._leases:
            return False
        self._retire(self._tree.clear())
        return True

    def take_events(self) -> tuple[Event, ...]:
        """What changed since the last call, in order."""
        return self._deltas.take()

    def count_pages(self) -> PageCounts:
        """Where the pages are."""
        free, cached, total = self._allocator.free_pages, self._tree.unheld_pages, self._allocator.total_pages
        return PageCounts(free=free, cached=cached, leased=total - free - cached, total=total)

    def cached_digests(self) -> set[PageName]:
        """Digests of all pages in the tree. Cost: O(pages)."""
        return {digest for node in self._tree.nodes() for digest in node.digests}

    def check_invariants(self) -> None:
        """Raise `RuntimeError` unless every page is in exactly one place. Cost: O(pages)."""
        self._allocator.check_invariants()
        self._tree.check_invariants()
        in_tree = [page for node in self._tree.nodes() for page in node.pages]
        private = [page for lease in self._leases.values() for page in lease.pages[lease.published_pages :]]
        owned = in_tree + private
        if len(set(owned)) != len(owned):
            raise RuntimeError("a page has two owners")
        if len(owned) + self._allocator.free_pages != self._allocator.total_pages:
            raise RuntimeError(f"{len(owned)} owned + {self._allocator.free_pages} free pages are not the pool")
        if any(self._allocator.is_free(page) for page in owned):
            raise RuntimeError("an owned page is free")
        published = {page for lease in self._leases.values() for page in lease.pages[: lease.published_pages]}
        if not published <= set(in_tree):
            raise RuntimeError("a lease reads a page that left the tree")
        counts = self.count_pages()
        if counts.leased != len(published | set(private)):
            raise RuntimeError(f"{counts} but leases hold {len(published | set(private))} pages")

    def _retire(self, pages: Sequence[int]) -> None:
        """The one place where pages become free again."""
        if pages:
            self._allocator.give_back(pages)
