"""One edge of the prefix tree: a run of whole pages that follow one another.

Made, split and cut by `RadixTree` only.
"""

from engine_shim.engine.cache.page_hash import PageName
from engine_shim.engine.cache.token_bytes import TOKEN_BYTES


class RadixNode:
    """A run of pages below `parent`; the root of a namespace has none."""

    __slots__ = (
        "cache_salt",
        "children",
        "digests",
        "last_used",
        "lock_count",
        "pages",
        "parent",
        "prior_digest",
        "token_bytes",
    )

    def __init__(self, *, parent: "RadixNode | None", prior_digest: PageName, cache_salt: str | None) -> None:
        #: None for a root, and for a node that left the tree.
        self.parent = parent
        #: Digest of the page before the first one here; a root's is its namespace's.
        self.prior_digest = prior_digest
        self.cache_salt = cache_salt
        #: By the packed tokens of the child's first page.
        self.children: dict[bytes, RadixNode] = {}
        #: Packed tokens of all pages here.
        self.token_bytes = bytearray()
        self.digests: list[PageName] = []
        self.pages: list[int] = []
        #: Leases that end at this node or below it.
        self.lock_count = 0
        #: Logical time of the last lock or unlock.
        self.last_used = 0

    @property
    def last_digest(self) -> PageName:
        """Digest of the last page here; what a child is chained from."""
        return self.digests[-1] if self.digests else self.prior_digest

    @property
    def is_evictable(self) -> bool:
        """A leaf in the tree that nobody holds."""
        return self.parent is not None and not self.children and not self.lock_count

    def first_page_key(self, page_tokens: int) -> bytes:
        """The key under which the parent knows this node."""
        return bytes(self.token_bytes[: page_tokens * TOKEN_BYTES])

    def count_common_pages(
        self, token_bytes: bytes | bytearray, start_page: int, page_tokens: int, *, limit_pages: int
    ) -> int:
        """How many pages here, up to `limit_pages`, equal the tokens from `start_page` on, without a gap.

        Cost: comparisons of packed bytes, halving the run where the whole does not match.
        """
        step = page_tokens * TOKEN_BYTES
        offset = start_page * step
        high = min(len(self.pages), limit_pages)
        if self.token_bytes[: high * step] == token_bytes[offset : offset + high * step]:
            return high
        low = 0
        while high - low > 1:  # [0, low) is equal, [0, high) is not
            middle = (low + high) // 2
            span = slice(low * step, middle * step)
            if self.token_bytes[span] == token_bytes[offset + span.start : offset + span.stop]:
                low = middle
            else:
                high = middle
        return low

    def cut_head(self, pages: int, page_tokens: int) -> "RadixNode":
        """Move the first `pages` pages into a new node between this one and its parent.

        This node stays the lower one, so that a lease that ends here still ends where it did.
        """
        size = pages * page_tokens * TOKEN_BYTES
        upper = RadixNode(parent=self.parent, prior_digest=self.prior_digest, cache_salt=self.cache_salt)
        upper.token_bytes, self.token_bytes = self.token_bytes[:size], self.token_bytes[size:]
        upper.digests, self.digests = self.digests[:pages], self.digests[pages:]
        upper.pages, self.pages = self.pages[:pages], self.pages[pages:]
        upper.lock_count, upper.last_used = self.lock_count, self.last_used
        self.parent, self.prior_digest = upper, upper.last_digest
        upper.children[self.first_page_key(page_tokens)] = self
        return upper

    def cut_tail(self, pages: int, page_bytes: int) -> tuple[list[int], list[PageName]]:
        """Drop the last `pages` pages, at least one; returns them and their digests, in order."""
        dropped = self.pages[-pages:], self.digests[-pages:]
        del self.pages[-pages:], self.digests[-pages:], self.token_bytes[-pages * page_bytes :]
        return dropped
