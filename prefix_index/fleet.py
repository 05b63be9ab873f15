"""Ranks, host domains and shared pools of one index: who reads what, who is numbered how, and the caps.

A rank owns what it reported of its device and host. A host domain is the ranks that name it; a pool owns what
was reported of it and outlives the ranks.
"""

from collections.abc import Iterator, Mapping

from prefix_index import reuse
from prefix_index.base import Alternative, IndexSize, Reach
from prefix_index.delta import Delta
from prefix_index.records import dump, load
from prefix_index.residency import POOL_TIERS, HolderBlocks, Terms
from prefix_index.reuse import Chains
from prefix_index.shelves import Group, Pool
from wire.events import Medium
from wire.ids import Target
from wire.snapshot import BlockRecord

_DEVICE, _HOST = frozenset({Medium.DEVICE}), frozenset({Medium.HOST})


class Holder:
    """One attached rank: its bit in every mask, its blocks, how many places its full attention holds."""

    def __init__(self, target: Target, bit: int, generation: int, blocks: HolderBlocks) -> None:
        self.target = target
        self.bit = bit
        self.generation = generation
        self.blocks = blocks
        self.full_places = 0
        #: Blocks of it in the fleet's total.
        self.counted_blocks = 0
        self.host: str | None = None
        self.pools: tuple[str, ...] = ()

    @property
    def groups(self) -> Mapping[int | None, Group]:
        """Reported groups and those that are believed."""
        return self.blocks.groups | dict(self.blocks.modelled.groups.items())

    @property
    def is_plain(self) -> bool:
        """True when the masks say all: full attention of one block size, and nothing else."""
        blocks = self.blocks
        sizes = {group.block_tokens.get(Medium.DEVICE) for group in blocks.full}
        return blocks.is_modelled and blocks.is_full_only and not blocks.modelled.groups and len(sizes) == 1

    @property
    def block_count(self) -> int:
        """Places on the device: those of full attention, or of any group where there is none."""
        if self.blocks.full:
            return self.full_places
        groups = self.blocks.groups.values()
        return len({place for group in groups for place in group.places.get(Medium.DEVICE, ())})

    def find_device_reuse(self, chains: Chains, limit_tokens: int, full_tokens: int | None) -> int:
        """Reusable tokens from the device; `full_tokens` is how far full attention goes by the masks."""
        views = self._device_views()
        if not views:
            return 0
        sizes = {group.block_tokens.get(Medium.DEVICE) for group in self.blocks.full}
        if full_tokens is not None and len(sizes) == 1:
            limit_tokens = min(limit_tokens, full_tokens)
            open_views = [view for view in views if not view.is_prefix]
        else:
            open_views = views
        return reuse.find_boundary(open_views, chains, limit_tokens, reuse.find_grain(views))

    def correct(self, chains: Chains, limit_tokens: int, cached_tokens: int) -> int:
        """See `PrefixIndex.correct`."""
        full = [view for view in self._device_views() if view.is_prefix]
        full_tokens = min((view.cover(chains, limit_tokens) for view in full), default=0)
        self.blocks.modelled.correct(chains, min(full_tokens, limit_tokens), max(0, cached_tokens))
        return self.find_device_reuse(chains, limit_tokens, None)

    def dump(self) -> Iterator[BlockRecord]:
        """See `PrefixIndex.dump`."""
        return dump(self.blocks)

    def load(self, record: BlockRecord, delta: Delta) -> bool:
        """Take in one record; False where it was refused."""
        return load(self.blocks, record, delta)

    def _device_views(self) -> list[reuse.GroupView]:
        groups = self.groups
        if not self.blocks.is_modelled or not reuse.is_complete(self.blocks.groups):
            return []
        return reuse.make_views([(Reach.DEVICE, groups, _DEVICE)])


class Fleet:
    """Attached ranks and the pools they share."""

    def __init__(self, *, max_holder_blocks: int, max_blocks: int) -> None:
        self._max_holder_blocks, self._max_blocks = max_holder_blocks, max_blocks
        self.holders: dict[Target, Holder] = {}
        self._at_bit: dict[int, Holder] = {}
        self._pools: dict[tuple[str, str], Pool] = {}
        self._generation = 0
        self._evicted_blocks = 0
        self._own_blocks = 0

    def add(self, target: Target, terms: Terms, *, host: str | None, pools: tuple[str, ...]) -> int:
        """Attach a rank; its number."""
        self._generation += 1
        bit = next(bit for bit in range(len(self._at_bit) + 1) if bit not in self._at_bit)
        own = [self._pools.setdefault((pool, terms.model), Pool()) for pool in pools]
        holder = Holder(target, 1 << bit, self._generation, HolderBlocks(terms, own[0] if own else None))
        holder.host, holder.pools = host, pools
        self.holders[target] = self._at_bit[bit] = holder
        return self._generation

    def remove(self, target: Target) -> None:
        """Detach a rank whose credit was taken."""
        holder = self.holders.pop(target, None)
        if holder is not None:
            self._recount(holder)
            del self._at_bit[holder.bit.bit_length() - 1]

    def drop_pool(self, name: str) -> int:
        """Forget what a pool holds; its count."""
        count = 0
        for (pool_name, _), pool in self._pools.items():
            if pool_name == name:
                count += len(pool)
                pool.groups.clear()
        return count

    def at_bits(self, mask: int) -> Iterator[Target]:
        """Ranks of a mask's bits."""
        while mask:
            bit = mask.bit_length() - 1
            yield self._at_bit[bit].target
            mask ^= 1 << bit

    def find_others(self, found: Mapping[Target, int]) -> list[Holder]:
        """Ranks that the masks do not settle: hybrid ones among `found`, and those without full attention."""
        holders = [self.holders[target] for target in found]
        rootless = [holder for holder in self.holders.values() if holder.blocks.groups and not holder.blocks.full]
        return [holder for holder in holders if not holder.is_plain] + rootless

    def find_alternatives(self, target: Target, chains: Chains, limit_tokens: int) -> tuple[Alternative, ...]:
        """See `PrefixIndex.find_alternatives`."""
        holder = self.holders.get(target)
        if holder is None or not holder.blocks.is_modelled:
            return ()
        sources = list(self._find_sources(holder))
        views = []
        for reach in Reach:
            near = [source for source in sources if list(Reach).index(source[0]) <= list(Reach).index(reach)]
            known = {group_idx: group for _, groups, _ in near for group_idx, group in groups.items()}
            views.append((reach, reuse.make_views(near) if reuse.is_complete(known) else []))
        declared = holder.blocks.modelled.declared
        return tuple(reuse.find_alternatives(views, chains, limit_tokens, declared))

    def _find_sources(self, holder: Holder) -> Iterator[tuple[Reach, Mapping[int | None, Group], frozenset[Medium]]]:
        """What a rank reads, nearest first."""
        model = holder.blocks.terms.model
        yield Reach.DEVICE, holder.groups, _DEVICE
        yield Reach.HOST, holder.groups, _HOST
        for other in self.holders.values() if holder.host is not None else ():
            if other is not holder and other.host == holder.host and other.blocks.terms.model == model:
                yield Reach.HOST, other.groups, _HOST
        if not holder.pools:
            yield Reach.POOLS, holder.groups, POOL_TIERS
        for name in holder.pools:
            yield Reach.POOLS, self._pools[name, model].groups, POOL_TIERS

    def evict(self, holder: Holder) -> Iterator[tuple[Holder, list[int]]]:
        """Forget the oldest blocks where `holder` or all together hold too many; places lost by rank."""
        while len(holder.blocks.names.blocks) > self._max_holder_blocks:
            yield self._evict_from(holder)
        pool = holder.blocks.pool
        while pool is not None and len(pool) > self._max_holder_blocks:
            self._evict_from_pool(pool)
        self._recount(holder)
        while self._total_blocks > self._max_blocks:
            fullest = max(self.holders.values(), key=lambda each: each.counted_blocks)
            pool = max(self._pools.values(), key=len, default=Pool())
            if len(pool) > fullest.counted_blocks:
                self._evict_from_pool(pool)
            else:
                yield self._evict_from(fullest)
            self._recount(fullest)

    def _evict_from(self, holder: Holder) -> tuple[Holder, list[int]]:
        self._evicted_blocks += 1
        return holder, holder.blocks.forget_oldest()

    def _evict_from_pool(self, pool: Pool) -> None:
        self._evicted_blocks += 1
        pool.remove_oldest()

    def _recount(self, holder: Holder) -> None:
        """Bring the total up to date after blocks of `holder`, or of a pool, came or went."""
        count = len(holder.blocks.names.blocks)
        self._own_blocks += count - holder.counted_blocks
        holder.counted_blocks = count

    @property
    def _total_blocks(self) -> int:
        return self._own_blocks + sum(map(len, self._pools.values()))

    def size(self) -> IndexSize:
        """See `PrefixIndex.size`."""
        for holder in self.holders.values():
            self._recount(holder)
        parked = sum(len(holder.blocks.names.parked) for holder in self.holders.values())
        return IndexSize(blocks=self._total_blocks, parked_blocks=parked, evicted_blocks=self._evicted_blocks)

    def check_invariants(self) -> None:
        """Raise AssertionError where the ranks contradict themselves or the caps do not hold."""
        self.size()
        for target, holder in self.holders.items():
            holder.blocks.check_invariants()
            if holder.blocks.full and len(set(holder.blocks.places())) != holder.full_places:
                raise AssertionError(f"{target}: places of full attention are miscounted")
            if self._at_bit[holder.bit.bit_length() - 1] is not holder or holder.target != target:
                raise AssertionError(f"{target}: stands at another's bit")
            if len(holder.blocks.names.blocks) > self._max_holder_blocks:
                raise AssertionError(f"{target}: more blocks than the cap")
        if self._total_blocks > self._max_blocks:
            raise AssertionError("more blocks than the cap of all")
