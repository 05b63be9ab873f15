"""Which page numbers of the pool are free.

Gives page numbers to the prefix cache and takes them back; knows neither tokens nor tensors. A page
that is not free is either cached (in the tree, held by nobody) or leased (held by a request).
"""

from collections.abc import Sequence

import msgspec


class PageCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Where the pages of a pool are; `free + cached + leased == total`."""

    free: int
    #: In the tree and held by no request: reusable, and evictable.
    cached: int
    #: Held by at least one request.
    leased: int
    total: int


class PageAllocator:
    """Page numbers `[0, total_pages)`, each free or taken."""

    def __init__(self, total_pages: int) -> None:
        self.total_pages = total_pages
        #: Lowest number last, so that it is taken first; then the most recently released.
        self._free = list(range(total_pages - 1, -1, -1))
        #: The same pages: many are marked, and looked for, at once.
        self._marked = set(self._free)

    @property
    def free_pages(self) -> int:
        """How many pages are free."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """Take `count` pages; the caller has seen that so many are free."""
        if count > len(self._free):
            raise ValueError(f"{count} pages asked for, {len(self._free)} are free")
        taken = self._free[: -count - 1 : -1]
        del self._free[len(self._free) - count :]
        self._marked.difference_update(taken)
        return taken

    def give_back(self, pages: Sequence[int]) -> None:
        """Make pages free; raises `ValueError`, and changes nothing, where one is free already or named twice."""
        self._marked.update(pages)
        if len(self._marked) != len(self._free) + len(pages):
            self._marked = set(self._free)
            twice = [page for page in pages if page in self._marked]
            raise ValueError(f"page {twice[0]} is free already" if twice else f"a page twice among {len(pages)}")
        self._free += pages

    def is_free(self, page: int) -> bool:
        """Whether the page is free."""
        return page in self._marked

    def check_invariants(self) -> None:
        """Raise `RuntimeError` where the list and the marks disagree."""
        counts = f"{len(self._free)} free pages listed, {len(self._marked)} marked"
        if len(self._marked) != len(self._free):
            raise RuntimeError(counts)
        if self._marked != set(self._free):
            raise RuntimeError(f"{counts}, and not the same")
