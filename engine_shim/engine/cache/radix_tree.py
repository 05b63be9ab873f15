"""The prefix tree: which pages hold the KV of which prefix, in whole pages.

Takes packed tokens and page numbers from the prefix cache, gives it matches, duplicates and evicted pages.
The tree decides and the caller acts: it allocates nothing, and no tensor is touched.

A node is a run of pages. `lock_count` counts the leases that end at it or below, so a locked node's
ancestors are locked, too, and unlocked nodes always hang below locked ones. Only an unlocked leaf is evicted,
from its last page backwards: what stays is always a prefix.
"""

import heapq
from collections.abc import Iterator

import msgspec

from engine_shim.engine.cache.deltas import CacheDeltas
from engine_shim.engine.cache.page_hash import namespace_digest
from engine_shim.engine.cache.radix_node import RadixNode
from engine_shim.engine.cache.token_bytes import TOKEN_BYTES


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """The longest cached prefix of some tokens; true until the tree changes."""

    pages: tuple[int, ...]
    #: How many of `pages` nobody holds: a lease would take them from the evictable ones.
    unheld_pages: int
    cache_salt: str | None
    #: Deepest node reached, and how many of its pages match; None where the namespace is empty.
    node: RadixNode | None
    node_pages: int


class Insertion(msgspec.Struct, frozen=True, kw_only=True):
    """Where inserted pages ended up."""

    #: Ends at the last inserted page; holds the caller's lock now.
    node: RadixNode
    #: The tree's page for each page that was inserted.
    pages: tuple[int, ...]
    #: Inserted pages that the tree had already under another number; nobody needs them.
    duplicates: tuple[int, ...]


class RadixTree:
    """Prefixes by page, in namespaces by cache salt."""

    def __init__(self, page_tokens: int, deltas: CacheDeltas) -> None:
        self._page_tokens = page_tokens
        self._page_bytes = page_tokens * TOKEN_BYTES
        self._deltas = deltas
        self._naming = deltas.naming
        self._roots: dict[str | None, RadixNode] = {}
        #: (last_used, serial, leaf); entries of leaves that changed since are passed over.
        self._evictable: list[tuple[int, int, RadixNode]] = []
        self._serial = 0
        self._clock = 0
        #: Pages in the tree.
        self.total_pages = 0
        #: Pages in the tree under no lock.
        self.unheld_pages = 0

    def match(self, token_bytes: bytes | bytearray, cache_salt: str | None, *, limit_pages: int) -> Match:
        """Find the longest prefix of `token_bytes` in the tree; changes nothing, recency included.

        Args:
            token_bytes: Packed tokens, at least `limit_pages` pages of them.
            cache_salt: Namespace to look in.
            limit_pages: Pages to match, at most.

        Cost: one comparison of packed bytes a node on the way; nothing is copied for what does not match.
        """
        node, taken = self._roots.get(cache_salt), 0
        pages: list[int] = []
        unheld = 0
        while node is not None and len(pages) < limit_pages:
            child = self._find_child(node, token_bytes, len(pages))
            if child is None:
                break
            node, taken = child, self._count_common(child, token_bytes, len(pages), limit_pages)
            pages += child.pages[:taken]
            unheld += 0 if child.lock_count else taken
            if taken < len(child.pages):
                break
        return Match(pages=tuple(pages), unheld_pages=unheld, cache_salt=cache_salt, node=node, node_pages=taken)

    def lock(self, match: Match) -> RadixNode:
        """Hold the matched pages; returns the node that ends at the last of them."""
        node = match.node
        if node is None:
            node = self._add_root(match.cache_salt)
        elif match.node_pages < len(node.pages):
            node = self._split(node, match.node_pages)
        self._lock_path(node, None)
        return node

    def unlock(self, node: RadixNode) -> None:
        """Take back one `lock` that ends at `node`."""
        self._clock += 1
        walker: RadixNode | None = node
        while walker is not None:
            walker.lock_count -= 1
            walker.last_used = self._clock
            if not walker.lock_count:
                self.unheld_pages += len(walker.pages)
            above = walker.parent
            self._settle_unheld(walker)
            walker = above

    def insert(
        self, node: RadixNode, token_bytes: bytes | bytearray, start_page: int, pages: tuple[int, ...]
    ) -> Insertion:
        """Add pages below a locked node; the caller's lock moves to the last of them.

        Args:
            node: Ends at page `start_page` of the sequence; locked by the caller.
            token_bytes: The whole sequence, packed.
            start_page: Pages of the sequence before the inserted ones.
            pages: Where the KV of the following full pages is.
        """
        if node.children or not pages:
            return self._merge(node, token_bytes, start_page, pages)
        end = self._append(node, token_bytes, start_page, pages, in_place=node.lock_count == 1)
        self._lock_path(end, node)
        return Insertion(node=end, pages=pages, duplicates=())

    def _merge(
        self, node: RadixNode, token_bytes: bytes | bytearray, start_page: int, pages: tuple[int, ...]
    ) -> Insertion:
        """`insert` below a node that others follow: what they have already is not added."""
        top, kept = node, list[int]()
        while len(kept) < len(pages):
            done = start_page + len(kept)
            child = self._find_child(node, token_bytes, done)
            if child is None:
                node = self._append(node, token_bytes, done, pages[len(kept) :], in_place=False)
                kept += pages[len(kept) :]
            else:
                common = self._count_common(child, token_bytes, done, start_page + len(pages))
                node = child if common == len(child.pages) else self._split(child, common)
                kept += node.pages
        self._lock_path(node, top)
        final = tuple(kept)
        duplicates = (
            () if final == pages else tuple(mine for mine, its in zip(pages, final, strict=True) if mine != its)
        )
        return Insertion(node=node, pages=final, duplicates=duplicates)

    def evict(self, wanted_pages: int) -> list[int]:
        """Drop up to `wanted_pages` unheld pages, the longest unused leaves first, each from its end."""
        dropped: list[int] = []
        while self._evictable and wanted_pages:
            last_used, _, leaf = self._evictable[0]
            if leaf.last_used != last_used or not leaf.is_evictable:
                heapq.heappop(self._evictable)
                continue
            count = min(wanted_pages, len(leaf.pages))
            # What is left of a leaf stays first in line.
            if count == len(leaf.pages):
                heapq.heappop(self._evictable)
                self._detach(leaf)
            pages, digests = leaf.cut_tail(count, self._page_bytes)
            self._deltas.removed(digests)
            self.total_pages -= count
            self.unheld_pages -= count
            wanted_pages -= count
            dropped += pages
        return dropped
        return dropped

    def clear(self) -> list[int]:
        """Drop everything; returns the pages. No lock may be held."""
        pages = [page for node in self.nodes() for page in node.pages]
        self._roots.clear()
        self._evictable.clear()
        self.total_pages = self.unheld_pages = 0
        self._deltas.cleared()
        return pages

    def nodes(self) -> Iterator[RadixNode]:
        """Every node below the roots, parents before children."""
        stack = [child for root in self._roots.values() for child in root.children.values()]
        while stack:
            node = stack.pop()
            yield node
            stack += node.children.values()

    def check_invariants(self) -> None:
        """Raise `RuntimeError` where counts, hashes or locks do not hold together. Cost: O(pages)."""
        total = unheld = 0
        for node in self.nodes():
            total += len(node.pages)
            unheld += 0 if node.lock_count else len(node.pages)
            self._check_node(node)
        if (total, unheld) != (self.total_pages, self.unheld_pages):
            raise RuntimeError(f"counted {total} pages, {unheld} unheld; kept {self.total_pages}, {self.unheld_pages}")
        listed = {id(leaf) for used, _, leaf in self._evictable if leaf.is_evictable and leaf.last_used == used}
        if not {id(node) for node in self.nodes() if node.is_evictable} <= listed:
            raise RuntimeError("an unheld leaf can never be evicted")
        for salt, root in self._roots.items():
            if not root.children and not root.lock_count:
                raise RuntimeError(f"the empty namespace {salt!r} is kept")

    def _check_node(self, node: RadixNode) -> None:
        parent = node.parent
        if parent is None or not node.pages:
            raise RuntimeError("a node without parent or pages is in the tree")
        if parent.children.get(node.first_page_key(self._page_tokens)) is not node:
            raise RuntimeError("a node is not filed under its first page")
        if node.digests != list(self._naming.chain(parent.last_digest, node.token_bytes, self._page_tokens)):
            raise RuntimeError("a node's page hashes do not follow from its tokens")
        if len(node.digests) != len(node.pages):
            raise RuntimeError(f"{len(node.pages)} pages, {len(node.digests)} hashes")
        if node.lock_count < sum(child.lock_count for child in node.children.values()):
            raise RuntimeError("a lock below a node does not count at it")

    def _find_child(self, node: RadixNode, token_bytes: bytes | bytearray, start_page: int) -> RadixNode | None:
        offset = start_page * self._page_bytes
        return node.children.get(bytes(token_bytes[offset : offset + self._page_bytes]))

    def _count_common(self, node: RadixNode, token_bytes: bytes | bytearray, start_page: int, end_page: int) -> int:
        """How many pages of `node` equal pages `[start_page, end_page)` of the tokens, without a gap."""
        return node.count_common_pages(token_bytes, start_page, self._page_tokens, limit_pages=end_page - start_page)

    def _add_root(self, cache_salt: str | None) -> RadixNode:
        root = RadixNode(parent=None, prior_digest=namespace_digest(cache_salt), cache_salt=cache_salt)
        self._roots[cache_salt] = root
        return root

    def _split(self, node: RadixNode, pages: int) -> RadixNode:
        """Make the first `pages` pages of `node` a node of their own; tells no event."""
        upper = node.cut_head(pages, self._page_tokens)
        if upper.parent is not None:
            upper.parent.children[upper.first_page_key(self._page_tokens)] = upper
        return upper

    def _append(
        self,
        node: RadixNode,
        token_bytes: bytes | bytearray,
        start_page: int,
        pages: tuple[int, ...],
        *,
        in_place: bool,
    ) -> RadixNode:
        """Add new pages below `node`; with `in_place`, and where nothing follows it, inside it.

        Only the one lease that holds `node` may ask for `in_place`: any other would end too low.
        """
        offset = start_page * self._page_bytes
        added = token_bytes[offset : offset + len(pages) * self._page_bytes]
        digests = self._naming.chain(node.last_digest, added, self._page_tokens)
        parent = node.digests[-1] if node.digests else None
        self._deltas.stored(digests, added, parent=parent, cache_salt=node.cache_salt)
        self.total_pages += len(pages)
        if in_place and node.parent is not None and not node.children:
            target = node
        else:
            target = RadixNode(parent=node, prior_digest=node.last_digest, cache_salt=node.cache_salt)
            node.children[bytes(added[: self._page_bytes])] = target
            self.unheld_pages += len(pages)
        target.token_bytes += added
        target.digests += digests
        target.pages += pages
        return target

    def _lock_path(self, node: RadixNode, top: RadixNode | None) -> None:
        """Lock from `node` up to, but not including, `top`."""
        self._clock += 1
        walker: RadixNode | None = node
        while walker is not None and walker is not top:
            if not walker.lock_count:
                self.unheld_pages -= len(walker.pages)
            walker.lock_count += 1
            walker.last_used = self._clock
            walker = walker.parent

    def _detach(self, leaf: RadixNode) -> None:
        parent = leaf.parent
        if parent is None:
            return
        del parent.children[leaf.first_page_key(self._page_tokens)]
        leaf.parent = None
        self._settle_unheld(parent)

    def _settle_unheld(self, node: RadixNode) -> None:
        """File a node that became an unheld leaf for eviction; forget an empty root."""
        if node.is_evictable:
            self._push_evictable(node)
        elif node.parent is None and not node.children and not node.lock_count:
            self._roots.pop(node.cache_salt, None)

    def _push_evictable(self, leaf: RadixNode) -> None:
        self._serial += 1
        heapq.heappush(self._evictable, (leaf.last_used, self._serial, leaf))
        if len(self._evictable) > 4 * self.total_pages + 64:
            self._evictable = [
                item for item in self._evictable if item[2].is_evictable and item[2].last_used == item[0]
            ]
            heapq.heapify(self._evictable)
