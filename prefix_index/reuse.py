"""The hybrid rule: how much of a prompt can be reused, given what every cache group has.

Reuse is the largest boundary L of every group's blocks at which every group has what its component needs: full
attention [0, L), a window group [L - window, L), a recurrent group a checkpoint at L. It is searched downward,
not taken as the smallest of the groups' own maxima.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import lcm

import msgspec
from msgspec.structs import replace

from prefix_index.base import Alternative, Load, Reach
from prefix_index.components import Component, Recovery
from prefix_index.layout import GroupLayout, find_size_bytes
from prefix_index.shelves import REACHES, Store
from wire.events import Medium

Declared = Mapping[int | None, GroupLayout]
_RELAXED: tuple[set[Recovery], ...] = (
    set(), {Recovery.REBUILD}, {Recovery.REPLAY}, {Recovery.REBUILD, Recovery.REPLAY},
)  # fmt: skip


class View(msgspec.Struct, eq=False):
    """One group as a rank reads it, along one prompt."""

    number: int | None
    component: Component
    is_prefix: bool
    #: Distance of the boundaries at which the group's blocks end.
    grain_tokens: int
    #: Blocks by their end: how far each is, its tokens; nearest first, at one distance the largest first.
    ending: dict[int, list[tuple[Reach, int]]] = {}

    def find_start(self, end_tokens: int) -> int:
        """First token that a boundary needs."""
        return max(0, self.component.find_start(end_tokens)) if end_tokens else 0

    def walk(self, end_tokens: int) -> Iterator[tuple[int, Reach | None, int]]:
        """Blocks that a boundary needs, last first: end, how far (None at a hole), tokens."""
        start, end = self.find_start(end_tokens), end_tokens
        while end > start:
            reach, size = next(iter(self.ending.get(end, ())), (None, self.grain_tokens))
            yield end, reach, size
            end -= size

    def find_hole(self, end_tokens: int) -> int | None:
        """End of the last block that a boundary needs and nothing within reach has; None where none lacks."""
        return next((end for end, reach, _ in self.walk(end_tokens) if reach is None), None)

    def cover(self, limit_tokens: int) -> int:
        """End of the unbroken run of blocks from the prompt's start, the largest at each step."""
        steps, end = dict(sorted((end - size, size) for end, found in self.ending.items() for _, size in found)), 0
        while end < limit_tokens and end in steps:
            end += steps[end]
        return end


def find_boundary(views: Sequence[View], limit_tokens: int, grain_tokens: int) -> int:
    """Largest multiple of `grain_tokens` up to the limit that every view allows."""
    limit_tokens = min([limit_tokens, *(view.cover(limit_tokens) for view in views if view.is_prefix)])
    others = [view for view in views if not view.is_prefix]
    end = limit_tokens // grain_tokens * grain_tokens
    while end > 0:
        hole = next((hole for view in others if (hole := view.find_hole(end)) is not None), None)
        if hole is None:
            return end
        # Every boundary from the hole's end to here needs the block that is not there.
        end = (hole - 1) // grain_tokens * grain_tokens
    return 0


def find_grain(views: Iterable[View]) -> int:
    """Distance of the boundaries that all groups have."""
    return lcm(*(view.grain_tokens for view in views))


def is_complete(groups: Iterable[int | None]) -> bool:
    """True when no group below the highest number is unknown yet: one of them could decide."""
    numbers = sorted({number for number in groups if number is not None})
    return numbers == list(range(len(numbers)))


def make_views(sources: Iterable[tuple[Reach, Store]], chains: Mapping[int, tuple[int, ...]]) -> list[View]:
    """A prompt's blocks by group in what is within reach, nearest first; none where a group's rule is not known."""
    views: dict[int | None, View] = {}
    for reach, store in sources:
        for number, group in store.groups.items():
            if group.component is None:
                return []
            grain = group.sizes.get(Medium.DEVICE) or max(group.sizes.values(), default=1)
            view = views.setdefault(number, View(number, group.component, group.is_prefix, grain))
            for tier, size in sorted(group.sizes.items(), key=lambda each: -each[1]):
                for index, place in enumerate(chains.get(size, ()) if REACHES[tier] is reach else (), 1):
                    if ((number, tier), place) in store.held:
                        view.ending.setdefault(index * size, []).append((reach, size))
    return list(views.values())


def find_alternatives(
    reached: Iterable[tuple[Reach, list[View]]], limit_tokens: int, declared: Declared
) -> Iterator[Alternative]:
    """Alternatives from the narrowest reach to the widest; see `PrefixIndex.find_alternatives`."""
    found: list[Alternative] = []
    for reach, views in reached:
        recoveries = {view.component.recovery for view in views}
        for relaxed in (each for each in _RELAXED if views and each <= recoveries):
            new = replace(_plan(views, limit_tokens, relaxed, declared), reach=reach)
            is_beaten = any(
                old.reuse_tokens >= new.reuse_tokens and old.recompute_tokens <= new.recompute_tokens for old in found
            )
            if new.recompute_tokens < new.reuse_tokens and not is_beaten:
                found.append(new)
                yield new


def _plan(views: list[View], limit_tokens: int, relaxed: set[Recovery], declared: Declared) -> Alternative:
    """The boundary that is open when the groups of some kinds of recovery may be rebuilt or replayed."""
    grain = find_grain(views)
    kept = [view for view in views if view.component.recovery not in relaxed]
    rebuilt, replayed = (
        [view for view in views if view.component.recovery is each and each in relaxed]
        for each in (Recovery.REBUILD, Recovery.REPLAY)
    )
    end = find_boundary(kept, limit_tokens, grain)
    checkpoint = find_boundary(replayed, end, grain) if replayed else end
    broken = [view for view in rebuilt if view.find_hole(end) is not None]
    fetched = [(view, end) for view in (*kept, *rebuilt) if view not in broken]
    fetched += [(view, checkpoint) for view in replayed]
    return Alternative(
        Reach.DEVICE,
        end,
        tuple(load for view, at in fetched for load in _find_loads(view, at, declared.get(view.number))),
        window_tokens=max((end - view.find_start(end) for view in broken), default=0),
        replay_tokens=end - checkpoint,
    )


def _find_loads(view: View, end_tokens: int, layout: GroupLayout | None) -> Iterator[Load]:
    """What a boundary needs from beyond the device."""
    tokens: Counter[Reach | None] = Counter()
    for _, reach, size in view.walk(end_tokens):
        tokens[reach] += size
    for source in (Reach.HOST, Reach.POOLS):
        if count := tokens[source]:
            yield Load(view.number, view.component.name, source, count, find_size_bytes(layout, count))
