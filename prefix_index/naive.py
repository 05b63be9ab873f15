"""The index in plain Python: every rank is asked about every prompt, by the rules of `reuse`.

The oracle of the native core, and what serves where that was not built: exact, holes included, and slow.
"""

from collections.abc import Iterable, Iterator
from typing import ClassVar

from msgspec import convert

from prefix_index import records, reuse
from prefix_index.base import FEATURES, Alternative, BlockChain, Change, CopyRule, IndexSize, Reach
from prefix_index.components import STANDARD, Registry
from prefix_index.layout import Layout
from prefix_index.residency import News, Rank
from prefix_index.shelves import Store
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from wire.ids import Target
from wire.snapshot import BlockRun, to_records, to_runs


class NaivePrefixIndex:
    """`PrefixIndex` in plain Python.

    Cost: some 25 us a stored block; a match asks every holder for every block, and what counts or is proved looks at
    all blocks of a rank. Memory: bounded by the caps; at most `max_orphans` parked blocks a rank and block size.
    """

    supports: ClassVar[frozenset[str]] = FEATURES

    def __init__(
        self,
        *,
        secret: int = 0,
        max_orphans: int = 65_536,
        max_holder_blocks: int = 4 << 20,
        max_blocks: int = 64 << 20,
        registry: Registry = STANDARD,
    ) -> None:
        """Start without holders."""
        self._secret, self._max_orphans, self._registry = secret, max_orphans, registry
        self._max_holder_blocks, self._max_blocks = max_holder_blocks, max_blocks
        self._ranks: dict[Target, Rank] = {}
        self._pools: dict[tuple[str, str], Store] = {}
        self._generation = self._evicted_blocks = 0

    def attach(
        self,
        holder: Target,
        *,
        model: str,
        host: str | None = None,
        pools: tuple[str, ...] = (),
        layout: Layout | None = None,
        rule: CopyRule = CopyRule.COUNTED,
        bigram: bool = False,
    ) -> int:
        """See `PrefixIndex`."""
        self._generation += 1
        self._ranks[holder] = Rank(
            generation=self._generation, model=model, host=host, layout=layout, rule=rule, bigram=bigram,
            pools=[self._pools.setdefault((pool, model), Store()) for pool in pools],
            secret=self._secret, max_orphans=self._max_orphans, registry=self._registry,
        )  # fmt: skip
        return self._generation

    def drop(self, holder: Target) -> int:
        """See `PrefixIndex`."""
        return self._ranks.pop(holder, Rank()).count()

    def clear(self, holder: Target) -> int:
        """See `PrefixIndex`."""
        return self._find(holder).clear()

    def doubt(self, holder: Target) -> int:
        """See `PrefixIndex`."""
        return self._find(holder).doubt()

    def drop_pool(self, pool: str) -> int:
        """See `PrefixIndex`."""
        stores = [store for (name, _), store in self._pools.items() if name == pool]
        return sum(store.clear() for store in stores)

    def apply(self, holder: Target, event: Event, *, generation: int | None = None) -> Change:
        """See `PrefixIndex`."""
        rank = self._ranks.get(holder)
        if rank is None or generation not in (None, rank.generation):
            return Change()
        rank.news = News()
        match event:
            case BlockStored():
                rank.store(event)
            case BlockRemoved():
                rank.remove(event)
            case AllBlocksCleared():
                rank.empty()
                return Change(cleared=True)
        self._make_room(rank)
        return convert(rank.news, Change, from_attributes=True)

    def find_reuse(self, chain: BlockChain) -> dict[Target, int]:
        """See `PrefixIndex`."""
        found = {holder: _find_boundary(rank, chain) for holder, rank in self._ranks.items()}
        return {holder: tokens for holder, tokens in found.items() if tokens}

    def find_alternatives(self, chain: BlockChain, holder: Target) -> tuple[Alternative, ...]:
        """See `PrefixIndex`."""
        rank, chains, near, reached = self._find(holder), chain.by_size, [], []
        reported: set[int | None] = set()
        ranks = self._ranks.values()
        for reach in Reach if rank.is_modelled else ():
            stores = list(self._find_stores(rank, reach))
            near += [(reach, store) for store in stores]
            reported.update(*(store.groups for store in stores if not any(store is each.beliefs for each in ranks)))
            reached.append((reach, reuse.make_views(near, chains) if reuse.is_complete(reported) else []))
        return tuple(reuse.find_alternatives(reached, chain.token_count - 1, rank.declared))

    def correct(self, holder: Target, chain: BlockChain, cached_tokens: int) -> int:
        """See `PrefixIndex`."""
        rank, limit = self._find(holder), chain.token_count - 1
        full = min((view.cover(limit) for view in _find_views(rank, chain) if view.is_prefix), default=0)
        rank.correct(chain.by_size, min(full, limit), max(0, cached_tokens))
        return _find_boundary(rank, chain)

    def dump(self, holder: Target) -> Iterator[BlockRun]:
        """See `PrefixIndex`."""
        return to_runs(records.dump(self._find(holder)))

    def load(self, holder: Target, runs: Iterable[BlockRun]) -> int:
        """See `PrefixIndex`."""
        rank, taken = self._find(holder), 0
        for run in runs if holder in self._ranks else ():
            taken += sum(records.load(rank, record) for record in to_records(run)) if run.is_whole else 0
            self._make_room(rank)
        return taken

    def block_count(self, holder: Target) -> int:
        """See `PrefixIndex`."""
        return self._find(holder).count()

    def block_sizes(self) -> set[int]:
        """See `PrefixIndex`."""
        return {size for rank in self._ranks.values() for size in rank.block_sizes}

    def is_modelled(self, holder: Target) -> bool:
        """See `PrefixIndex`."""
        return holder in self._ranks and self._ranks[holder].is_modelled

    def size(self) -> IndexSize:
        """See `PrefixIndex`."""
        blocks = sum(map(len, self._ranks.values())) + sum(map(len, self._pools.values()))
        return IndexSize(blocks, sum(len(rank.parked) for rank in self._ranks.values()), self._evicted_blocks)

    def check_invariants(self) -> None:
        """See `PrefixIndex`."""
        for rank in self._ranks.values():
            rank.check_invariants()
        fullest = max((len(rank) for rank in self._ranks.values()), default=0)
        if fullest > self._max_holder_blocks or self.size().blocks > self._max_blocks:
            raise AssertionError("more blocks than the cap")

    def _find(self, holder: Target) -> Rank:
        """The rank; one that holds nothing where it is not attached."""
        return self._ranks.get(holder, Rank())

    def _find_stores(self, rank: Rank, reach: Reach) -> Iterator[Store]:
        """What a rank reads of one reach, its own first."""
        ranks = [rank]
        if reach is Reach.HOST and rank.host is not None:
            others = [other for other in self._ranks.values() if other is not rank]
            ranks += [other for other in others if (other.host, other.model) == (rank.host, rank.model)]
        for each in ranks:
            yield from (each.told, each.beliefs)
        yield from rank.pools if reach is Reach.POOLS else ()

    def _make_room(self, rank: Rank) -> None:
        """Forget what was stored longest ago, where a rank, its pool or all together hold too much."""
        while (owner := self._find_overfull(rank)) is not None:
            owner.evict()
            self._evicted_blocks += 1

    def _find_overfull(self, rank: Rank) -> Rank | Store | None:
        near: list[Rank | Store] = [rank, *rank.pools[:1]]
        over = [owner for owner in near if len(owner) > self._max_holder_blocks]
        if not over and self.size().blocks > self._max_blocks:
            over = [*self._ranks.values(), *self._pools.values()]
        return max(over, key=len, default=None)


def _find_views(rank: Rank, chain: BlockChain) -> list[reuse.View]:
    """A rank's groups on the device; none where a rule is not known, or a group that could decide."""
    groups, sizes = rank.told.groups, set(rank.full.values())
    is_full_only = len(rank.full) == len(groups) and len(sizes) == 1 and not rank.beliefs.groups
    if not rank.is_modelled or not (is_full_only or reuse.is_complete(groups)):
        return []
    return reuse.make_views([(Reach.DEVICE, rank.told), (Reach.DEVICE, rank.beliefs)], chain.by_size)


def _find_boundary(rank: Rank, chain: BlockChain) -> int:
    views, limit = _find_views(rank, chain), chain.token_count - 1
    return reuse.find_boundary(views, limit, reuse.find_grain(views)) if views else 0
