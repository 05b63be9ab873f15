"""Which page numbers of the pool are free.

Gives page numbers to the prefix cache and takes them back; knows neither tokens nor tensors. A page
that is not free is either cached (in the tree, held by nobody) or leased (held by a request).
"""

from collections.abc import Iterable

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
        self._is_free = bytearray(b"\1") * total_pages

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
        marks = self._is_free
        for page in taken:
            marks[page] = 0
        return taken

    def give_back(self, pages: Iterable[int]) -> None:
        """Make pages free; raises `ValueError` for one that is free already."""
        marks = self._is_free
        for page in pages:
            if marks[page]:
                raise ValueError(f"page {page} is free already")
            marks[page] = 1
            self._free.append(page)

    def is_free(self, page: int) -> bool:
        """Whether the page is free."""
        return bool(self._is_free[page])

    def check_invariants(self) -> None:
        """Raise `RuntimeError` where the list and the marks disagree."""
        if len(set(self._free)) != len(self._free) or sum(self._is_free) != len(self._free):
            raise RuntimeError(f"{len(self._free)} free pages listed, {sum(self._is_free)} marked")
        if not all(self._is_free[page] for page in self._free):
            raise RuntimeError("a listed page is not marked free")
