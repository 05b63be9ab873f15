"""The hybrid rule: how much of a prompt can be reused, given what every cache group has.

Reuse is the largest boundary L of every group's blocks at which every group has what its component needs: full
attention [0, L), a window group [L - window, L), a recurrent group a checkpoint at L. It is searched downward,
not taken as the smallest of the groups' own maxima.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from math import lcm

from msgspec.structs import replace

from prefix_index.base import Alternative, Load, Reach
from prefix_index.components import Component, Recovery
from prefix_index.layout import GroupLayout, find_size_bytes
from prefix_index.shelves import Group
from wire.events import Medium

#: Hashes of a prompt by block size.
Chains = Mapping[int, tuple[int, ...]]
#: Where a shelf stands, its block size, its places.
Shelf = tuple[Reach, int, Container[int]]
#: What the worker declared of each group.
Declared = Mapping[int | None, GroupLayout]


class GroupView:
    """One group as a rank reads it: the shelves of every holder within reach."""

    def __init__(self, group_idx: int | None, component: Component, *, is_prefix: bool, grain_tokens: int) -> None:
        self.group_idx = group_idx
        self.component = component
        self.is_prefix = is_prefix
        self.grain_tokens = grain_tokens
        #: Nearest holder first; of one holder the largest blocks first.
        self.shelves: list[Shelf] = []

    def find_start(self, end_tokens: int) -> int:
        """First token that must be resident for the boundary at `end_tokens`."""
        return max(0, self.component.find_start(end_tokens)) if end_tokens else 0

    def find_hole(self, chains: Chains, end_tokens: int) -> int | None:
        """End of the last block that the boundary at `end_tokens` needs and no shelf has; None where none lacks."""
        start, place = self.find_start(end_tokens), end_tokens
        while place > start:
            size = next((size for _, size, _ in self._ending(chains, place)), 0)
            if not size:
                return place
            place -= size
        return None

    def cover(self, chains: Chains, limit_tokens: int) -> int:
        """End of the unbroken run of blocks from the prompt's start."""
        sizes = sorted({size for _, size, _ in self.shelves}, reverse=True)
        place, size = 0, 1
        while size and place < limit_tokens:
            size = next((size for size in sizes if place % size == 0 and self._has(chains, size, place + size)), 0)
            place += size
        return place

    def find_loads(self, chains: Chains, end_tokens: int, layout: GroupLayout | None) -> Iterator[Load]:
        """What the boundary needs from each holder but the device."""
        tokens: dict[Reach, int] = {}
        start, place = self.find_start(end_tokens), end_tokens
        while place > start:
            reach, size, _ = next(self._ending(chains, place), (Reach.DEVICE, self.grain_tokens, ()))
            tokens[reach] = tokens.get(reach, 0) + size
            place -= size
        for source in (Reach.HOST, Reach.POOLS):
            if source in tokens:
                count = tokens[source]
                yield Load(self.group_idx, self.component.name, source, count, find_size_bytes(layout, count))

    def _has(self, chains: Chains, block_tokens: int, end_tokens: int) -> bool:
        """True where some shelf has the block of that size ending there."""
        return any(size == block_tokens for _, size, _ in self._ending(chains, end_tokens))

    def _ending(self, chains: Chains, end_tokens: int) -> Iterator[Shelf]:
        """Shelves that have the block ending there."""
        for shelf in self.shelves:
            _, size, places = shelf
            index, rest = divmod(end_tokens, size)
            hashes = chains.get(size, ())
            if not rest and 0 < index <= len(hashes) and hashes[index - 1] in places:
                yield shelf


def find_boundary(views: Sequence[GroupView], chains: Chains, limit_tokens: int, grain_tokens: int) -> int:
    """Largest multiple of `grain_tokens` up to the limit that every view allows."""
    for view in views:
        if view.is_prefix:
            limit_tokens = min(limit_tokens, view.cover(chains, limit_tokens))
    others = [view for view in views if not view.is_prefix]
    end = limit_tokens // grain_tokens * grain_tokens
    while end > 0:
        hole = next((hole for view in others if (hole := view.find_hole(chains, end)) is not None), None)
        if hole is None:
            return end
        # Every boundary from the hole's end to here needs the block that is not there.
        end = (hole - 1) // grain_tokens * grain_tokens
    return 0


def find_grain(views: Iterable[GroupView]) -> int:
    """Distance of the boundaries that all groups have."""
    return lcm(*(view.grain_tokens for view in views))


def is_complete(groups: Mapping[int | None, Group]) -> bool:
    """True when no group below the highest number is unknown yet: one of them could decide."""
    numbers = sorted(number for number in groups if number is not None)
    return numbers == list(range(len(numbers)))


def make_views(sources: Sequence[tuple[Reach, Mapping[int | None, Group], frozenset[Medium]]]) -> list[GroupView]:
    """Views of groups over holders, nearest first; empty where a group's rule is not known.

    Args:
        sources: For each holder how far it is, its groups, and which of its tiers are meant.
    """
    views: dict[int | None, GroupView] = {}
    for reach, groups, tiers in sources:
        for group_idx, group in groups.items():
            if group.component is None:
                return []
            view = views.get(group_idx)
            if view is None:
                view = views[group_idx] = GroupView(
                    group_idx, group.component, is_prefix=group.is_prefix, grain_tokens=group.grain_tokens
                )
            shelves = ((reach, group.block_tokens[tier], group.places[tier]) for tier in group.places if tier in tiers)
            view.shelves += sorted(shelves, key=lambda shelf: -shelf[1])
    return list(views.values())


def find_alternatives(
    views_by_reach: Sequence[tuple[Reach, list[GroupView]]], chains: Chains, limit_tokens: int, declared: Declared
) -> Iterator[Alternative]:
    """Alternatives from the narrowest reach to the widest; see `PrefixIndex.find_alternatives`."""
    found: list[Alternative] = []
    for reach, views in views_by_reach:
        recoveries = {view.component.recovery for view in views}
        for relaxed in (set(), {Recovery.REBUILD}, {Recovery.REPLAY}, {Recovery.REBUILD, Recovery.REPLAY}):
            if not views or not relaxed <= recoveries:
                continue
            new = replace(_plan(views, chains, limit_tokens, relaxed, declared), reach=reach)
            if new.recompute_tokens < new.reuse_tokens and not any(_is_as_good(old, new) for old in found):
                found.append(new)
                yield new


def _is_as_good(old: Alternative, new: Alternative) -> bool:
    """True where one that reaches no further reuses as much and computes no more again."""
    return old.reuse_tokens >= new.reuse_tokens and old.recompute_tokens <= new.recompute_tokens


def _plan(
    views: list[GroupView], chains: Chains, limit_tokens: int, relaxed: set[Recovery], declared: Declared
) -> Alternative:
    """The boundary that is open when the groups of some kinds of recovery may be rebuilt or replayed."""
    grain = find_grain(views)
    kept = [view for view in views if view.component.recovery not in relaxed]
    end = find_boundary(kept, chains, limit_tokens, grain)
    loads = _find_all_loads(kept, chains, end, declared)
    window_tokens, replay = 0, []
    for view in views:
        if view.component.recovery not in relaxed:
            continue
        if view.component.recovery is Recovery.REPLAY:
            replay.append(view)
        elif view.find_hole(chains, end) is None:
            loads += _find_all_loads([view], chains, end, declared)
        else:
            window_tokens = max(window_tokens, end - view.find_start(end))
    checkpoint = find_boundary(replay, chains, end, grain) if replay else end
    loads += _find_all_loads(replay, chains, checkpoint, declared)
    return Alternative(Reach.DEVICE, end, loads, window_tokens=window_tokens, replay_tokens=end - checkpoint)


def _find_all_loads(
    views: Iterable[GroupView], chains: Chains, end_tokens: int, declared: Declared
) -> tuple[Load, ...]:
    return tuple(load for view in views for load in view.find_loads(chains, end_tokens, declared.get(view.group_idx)))
