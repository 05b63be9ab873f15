"""Groups that a dialect does not report, believed from what the worker's layout and the reported events imply.

Engines that publish only full attention still keep windows and checkpoints, at the end of what a step stored.
The belief ends with the full-attention block, and the engine's answers correct it.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from prefix_index.components import Registry
from prefix_index.layout import GroupLayout, Layout
from prefix_index.shelves import Group
from wire.events import Medium

Chains = Mapping[int, tuple[int, ...]]


class Beliefs(dict[int | None, Group]):
    """Groups that are believed, by their number in the layout."""


class Modelled:
    """Belief about one rank's unreported groups, by their number in the layout."""

    def __init__(self, layout: Layout | None, registry: Registry) -> None:
        self.groups = Beliefs()
        #: What the worker says of every group; of one without a number, what it says of its first prefix group.
        self.declared: dict[int | None, GroupLayout] = {}
        #: False where the layout names a kind that is not known.
        self.is_known = True
        for number, declared in enumerate(layout.groups if layout is not None else ()):
            component = registry.find(declared.kind, number, declared.window_tokens)
            group = Group(declared.kind, declared.window_tokens, component)
            self.is_known &= component is not None
            self.declared[number] = declared
            if group.is_prefix:
                self.declared.setdefault(None, declared)
            elif component is not None:
                self.groups[number] = group

    def forget_group(self, group_idx: int | None) -> None:
        """The engine numbers its groups, so it reports them all: believe nothing any more."""
        if group_idx is not None:
            self.groups = Beliefs()

    def believe(self, stored: Iterator[tuple[int, int]], count: int, tier: Medium, block_tokens: int) -> Iterable[int]:
        """The engine stored a run in full attention: what else it keeps of it.

        Args:
            stored: Place and end in tokens of the run's last block and those before it, beyond its start.
            count: Blocks in the run.
            tier: Where it was stored.
            block_tokens: Tokens in each.

        Returns:
            Places that came to be believed.
        """
        groups = [each for each in self.groups.items() if tier is Medium.DEVICE or self.declared[each[0]].is_offloaded]
        groups = [(number, group) for number, group in groups if group.open_shelf(tier, block_tokens)]
        if not groups:
            return
        widest = max((group.window_tokens or 0 for _, group in groups), default=0)
        run = list(islice(stored, max(count, -(-widest // block_tokens))))
        for number, group in groups:
            step = self.declared[number].checkpoint_tokens
            ends = [index for index in range(min(count, len(run))) if step is None or run[index][1] % step == 0]
            if ends and group.component is not None:
                yield from self._keep(group, tier, run[ends[0] :])

    @staticmethod
    def _keep(group: Group, tier: Medium, run: list[tuple[int, int]]) -> Iterator[int]:
        start = group.component.find_start(run[0][1]) if group.component is not None else 0
        for place, end in run:
            if end <= start:
                return
            if place not in group.places[tier]:
                group.places[tier][place] = 1
                yield place

    def forget(self, tier: Medium, place: int) -> None:
        """The full-attention block at a place is gone, and with it what stood there."""
        for group in self.groups.values():
            if tier in group.places:
                group.places[tier].pop(place, None)

    def correct(self, chains: Chains, full_tokens: int, cached_tokens: int) -> None:
        """The engine reused `cached_tokens` of a prompt of which full attention has the first `full_tokens`."""
        for group in self.groups.values():
            size = group.block_tokens.get(Medium.DEVICE)
            hashes = chains.get(size) if size is not None else None
            if size is None or hashes is None or group.component is None:
                continue
            places = group.places[Medium.DEVICE]
            for index in range(cached_tokens // size, full_tokens // size):
                places.pop(hashes[index], None)
            if cached_tokens % size == 0 and cached_tokens <= full_tokens:
                first = group.component.find_start(cached_tokens) // size
                places.update(dict.fromkeys(hashes[first : cached_tokens // size], 1))
