"""The index in plain Python: every holder is asked about every prompt, by the rules of `reuse`.

The oracle of the native core, and what serves where that was not built: exact, holes included, and slow.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from msgspec.structs import replace

from prefix_index import reuse
from prefix_index.base import FEATURES, Alternative, BlockChain, Change, CopyRule, IndexSize, Reach
from prefix_index.blocks import Delta, Terms, Tree
from prefix_index.components import STANDARD, Registry
from prefix_index.layout import Layout
from prefix_index.modelled import Beliefs
from prefix_index.records import dump, load
from prefix_index.residency import HolderBlocks
from prefix_index.shelves import POOL_TIERS, Group, Pool
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, Event, Medium
from wire.ids import Target
from wire.snapshot import BlockRun, to_records, to_runs

_TIERS = {Reach.DEVICE: frozenset({Medium.DEVICE}), Reach.HOST: frozenset({Medium.HOST}), Reach.POOLS: POOL_TIERS}
_Source = tuple[Reach, Mapping[int | None, Group], frozenset[Medium]]


class _Holder:
    """One attached rank."""

    def __init__(self, generation: int, blocks: HolderBlocks, host: str | None, pools: tuple[str, ...]) -> None:
        self.generation, self.blocks, self.host, self.pools = generation, blocks, host, pools

    def read(self, reach: Reach) -> Iterator[_Source]:
        """Its own groups: reported ones, then those that are believed."""
        yield reach, self.blocks.groups, _TIERS[reach]
        yield reach, self.blocks.modelled.groups, _TIERS[reach]

    @property
    def views(self) -> list[reuse.GroupView]:
        """Its groups on the device; none where a rule is not known, or a group that could decide."""
        if not self.blocks.is_modelled or not (self.is_full_only or reuse.is_complete(self.blocks.groups)):
            return []
        return reuse.make_views(list(self.read(Reach.DEVICE)))

    @property
    def is_full_only(self) -> bool:
        """True where nothing but full attention of one block size was told."""
        groups = self.blocks.groups.values()
        sizes = {group.block_tokens.get(Medium.DEVICE) for group in groups}
        return all(group.is_prefix for group in groups) and len(sizes) == 1 and not self.blocks.modelled.groups


class NaivePrefixIndex:
    """`PrefixIndex` in plain Python.

    Cost: some 10 us a stored block; a match asks every holder for every block. Memory: bounded by the caps; at most
    `max_orphans` parked blocks a rank and block size. Above a cap, what was stored longest ago goes first.
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
        self._terms = Terms(model="", secret=secret, max_orphans=max_orphans, registry=registry)
        self._max_holder_blocks, self._max_blocks = max_holder_blocks, max_blocks
        self._holders: dict[Target, _Holder] = {}
        self._pools: dict[tuple[str, str], Pool] = {}
        self._tree: Tree = {}
        self._generation = self._evicted_blocks = 0
        #: Places known at which those of no use are looked for.
        self._tidy_at = 4_096

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
        terms = replace(self._terms, model=model, rule=rule, bigram=bigram, layout=layout)
        own = [self._pools.setdefault((pool, model), Pool()) for pool in pools]
        blocks = HolderBlocks(terms, own[0] if own else None, self._tree)
        self._holders[holder] = _Holder(self._generation, blocks, host, pools)
        return self._generation

    def drop(self, holder: Target) -> int:
        """See `PrefixIndex`."""
        state = self._holders.pop(holder, None)
        return state.blocks.block_count if state else 0

    def clear(self, holder: Target) -> int:
        """See `PrefixIndex`."""
        count = self.block_count(holder)
        if holder in self._holders:
            self._holders[holder].blocks.clear()
        return count

    def doubt(self, holder: Target) -> int:
        """See `PrefixIndex`."""
        count = self.block_count(holder)
        if holder in self._holders:
            self._holders[holder].blocks.doubt()
        return count

    def drop_pool(self, pool: str) -> int:
        """See `PrefixIndex`."""
        pools = [each for (name, _), each in self._pools.items() if name == pool]
        count = sum(map(len, pools))
        for each in pools:
            each.groups.clear()
        return count

    def apply(self, holder: Target, event: Event, *, generation: int | None = None) -> Change:
        """See `PrefixIndex`."""
        state = self._holders.get(holder)
        if state is None or generation not in (None, state.generation):
            return Change()
        match event:
            case BlockStored():
                delta = state.blocks.store(event)
            case BlockRemoved():
                delta = state.blocks.remove(event)
            case AllBlocksCleared():
                state.blocks.empty()
                return Change(cleared=True)
        self._make_room(state, delta)
        return delta.to_change()

    def find_reuse(self, chain: BlockChain) -> dict[Target, int]:
        """See `PrefixIndex`."""
        chains, limit = chain.by_size, chain.token_count - 1
        tokens = {
            target: reuse.find_boundary(views, chains, limit, reuse.find_grain(views))
            for target, state in self._holders.items()
            if (views := state.views)
        }
        return {target: count for target, count in tokens.items() if count}

    def find_alternatives(self, chain: BlockChain, holder: Target) -> tuple[Alternative, ...]:
        """See `PrefixIndex`."""
        state = self._holders.get(holder)
        if state is None or not state.blocks.is_modelled:
            return ()
        views = []
        near: list[_Source] = []
        reported: dict[int | None, Group] = {}
        for reach in Reach:
            for source in self._find_sources(state, reach):
                near.append(source)
                reported |= {} if isinstance(source[1], Beliefs) else source[1]
            views.append((reach, reuse.make_views(near) if reuse.is_complete(reported) else []))
        declared = state.blocks.modelled.declared
        return tuple(reuse.find_alternatives(views, chain.by_size, chain.token_count - 1, declared))

    def correct(self, holder: Target, chain: BlockChain, cached_tokens: int) -> int:
        """See `PrefixIndex`."""
        state = self._holders.get(holder)
        if state is None:
            return 0
        chains, limit = chain.by_size, chain.token_count - 1
        full = min((view.cover(chains, limit) for view in state.views if view.is_prefix), default=0)
        state.blocks.modelled.correct(chains, min(full, limit), max(0, cached_tokens))
        return self.find_reuse(chain).get(holder, 0)

    def dump(self, holder: Target) -> Iterator[BlockRun]:
        """See `PrefixIndex`."""
        state = self._holders.get(holder)
        return to_runs(dump(state.blocks)) if state else iter(())

    def load(self, holder: Target, runs: Iterable[BlockRun]) -> int:
        """See `PrefixIndex`."""
        state, taken, delta = self._holders.get(holder), 0, Delta()
        if state is None:
            return 0
        for run in runs:
            taken += sum(load(state.blocks, record, delta) for record in to_records(run)) if run.is_whole else 0
            self._make_room(state, delta)
        return taken

    def block_count(self, holder: Target) -> int:
        """See `PrefixIndex`."""
        return self._holders[holder].blocks.block_count if holder in self._holders else 0

    def block_sizes(self) -> set[int]:
        """See `PrefixIndex`."""
        return {size for state in self._holders.values() for size in state.blocks.block_sizes}

    def is_modelled(self, holder: Target) -> bool:
        """See `PrefixIndex`."""
        return holder in self._holders and self._holders[holder].blocks.is_modelled

    def size(self) -> IndexSize:
        """See `PrefixIndex`."""
        own = sum(len(state.blocks.blocks) for state in self._holders.values())
        parked = sum(len(state.blocks.parked) for state in self._holders.values())
        blocks = own + sum(map(len, self._pools.values()))
        return IndexSize(blocks=blocks, parked_blocks=parked, evicted_blocks=self._evicted_blocks)

    def check_invariants(self) -> None:
        """See `PrefixIndex`."""
        for state in self._holders.values():
            state.blocks.check_invariants()
            if len(state.blocks.blocks) > self._max_holder_blocks:
                raise AssertionError("more blocks than the cap")
        if self.size().blocks > self._max_blocks:
            raise AssertionError("more blocks than the cap of all")

    def _find_sources(self, state: _Holder, reach: Reach) -> Iterator[_Source]:
        """What a rank reads of one reach."""
        model = state.blocks.terms.model
        if reach is not Reach.POOLS or not state.pools:
            yield from state.read(reach)
        if reach is Reach.HOST and state.host is not None:
            for other in self._holders.values():
                if other is not state and (other.host, other.blocks.terms.model) == (state.host, model):
                    yield from other.read(reach)
        if reach is Reach.POOLS:
            for name in state.pools:
                yield reach, self._pools[name, model].groups, POOL_TIERS

    def _make_room(self, state: _Holder, delta: Delta) -> None:
        """Forget what was stored longest ago, where a rank, its pool or all together hold too much."""
        pool = state.blocks.pool
        while len(state.blocks.blocks) > self._max_holder_blocks:
            self._evict(state, delta)
        while pool is not None and len(pool) > self._max_holder_blocks:
            self._evict(pool, delta)
        while self.size().blocks > self._max_blocks:
            fullest = max(self._holders.values(), key=lambda each: len(each.blocks.blocks))
            pool = max(self._pools.values(), key=len, default=Pool())
            victim = pool if len(pool) > len(fullest.blocks.blocks) else fullest
            self._evict(victim, delta if victim is state else Delta())
        if len(self._tree) > self._tidy_at:
            self._tidy()

    def _evict(self, victim: _Holder | Pool, delta: Delta) -> None:
        self._evicted_blocks += 1
        if isinstance(victim, Pool):
            victim.remove_oldest()
        else:
            victim.blocks.forget(next(iter(victim.blocks.blocks)), delta)

    def _tidy(self) -> None:
        """Forget places that no holder or pool has, nor any below them."""
        used: set[int] = set()
        owners: list[Pool | HolderBlocks] = [*self._pools.values()]
        for held in owners + [state.blocks for state in self._holders.values()]:
            for place in held.known_places():
                above: int | None = place
                while above is not None and above not in used:
                    used.add(above)
                    above = self._tree[above][0] if above in self._tree else None
        for place in self._tree.keys() - used:
            del self._tree[place]
        self._tidy_at = 2 * len(self._tree) + 4_096
