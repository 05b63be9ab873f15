"""Each holder in the index that can serve it: the native one, or for hybrid models the one in Python.

Takes what `PrefixIndex` takes. What a holder is shows in its first events, for an engine with window or recurrent
groups tells of them with its first prompt. So a holder starts in the native index while its first events are kept;
the first one that asks for more moves it, with them.
"""

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import msgspec

from prefix_index import namespace
from prefix_index.base import Alternative, BlockChain, Change, IndexSize, Reach
from prefix_index.components import STANDARD, is_prefix
from prefix_index.layout import Layout
from prefix_index.naive import NaivePrefixIndex
from prefix_index.native import NativePrefixIndex
from wire.events import AllBlocksCleared, BlockStored, Event
from wire.ids import Target
from wire.snapshot import BlockRecord

#: Events and tokens of a holder that are kept while it may still turn out to be hybrid.
TRIAL_EVENTS = 256
TRIAL_TOKENS = 1 << 20


class _Trial(msgspec.Struct):
    """What is known of a holder in the native index."""

    terms: dict[str, Any]
    generation: int
    #: Its only group and block size; None before its first store.
    group: tuple[int | None, int] | None = None
    #: Its events since its cache was empty; None once there were too many.
    events: list[Event] | None = msgspec.field(default_factory=list)
    tokens: int = 0

    def keep(self, event: Event) -> None:
        """Remember an event, if it is still among the first."""
        if isinstance(event, AllBlocksCleared):
            self.events, self.tokens, self.group = [], 0, None
        elif self.events is not None:
            self.events.append(event)
            self.tokens += len(event.token_ids) if isinstance(event, BlockStored) else 0
            if len(self.events) > TRIAL_EVENTS or self.tokens > TRIAL_TOKENS:
                self.events = None

    def fits(self, event: Event) -> bool:
        """Whether the native index has a rule for the event: one full-attention group of one block size."""
        if not isinstance(event, BlockStored):
            return True
        group = (event.group_idx, event.block_tokens)
        self.group = self.group or group
        component = STANDARD.find(event.group_kind, event.group_idx, event.window_tokens)
        is_plain = component is not None and is_prefix(component) and namespace.count_unlisted(event) == 0
        return is_plain and self.group == group


class AdaptivePrefixIndex:
    """`PrefixIndex` over both.

    A holder that turns out to be hybrid after its first events is moved without them: it then counts for less
    than it has, never for more, until its stream begins anew. Other tiers than the device are kept apart, but only
    a holder in Python names them as alternatives: those attached with a layout, a host domain or pools are there
    from the start. Cost and memory: those of the index a holder is in.
    """

    supports: ClassVar[frozenset[str]] = frozenset({"groups", "layout", "generations"})

    def __init__(self, *, secret: int = 0, max_orphans: int = 65_536) -> None:
        self.native = NativePrefixIndex(secret=secret, max_orphans=max_orphans)
        self.python = NaivePrefixIndex(secret=secret, max_orphans=max_orphans)
        self._trials: dict[Target, _Trial] = {}
        #: Registrations of the holders in Python, by the number we gave.
        self._moved: dict[Target, int] = {}
        self._generation = 0

    def attach(
        self,
        holder: Target,
        *,
        model: str,
        host: str | None = None,
        pools: tuple[str, ...] = (),
        layout: Layout | None = None,
        **dialect: Any,
    ) -> int:
        """See `PrefixIndex`; `dialect` is `rule` and `bigram` of the indexes below."""
        self.drop(holder)
        self._generation += 1
        if host is None and not pools and layout is None:
            terms = {"model": model, **dialect}
            self.native.attach(holder, **terms)
            self._trials[holder] = _Trial(terms, self._generation)
        else:
            self.python.attach(holder, model=model, host=host, pools=pools, layout=layout, **dialect)
            self._moved[holder] = self._generation
        return self._generation

    def apply(self, holder: Target, event: Event, *, generation: int | None = None) -> Change:
        """See `PrefixIndex`."""
        trial = self._trials.get(holder)
        known = self._moved.get(holder) if trial is None else trial.generation
        if known is None or generation not in (None, known):
            return Change()
        if trial is not None and trial.fits(event):
            trial.keep(event)
            return self.native.apply(holder, event)
        if trial is not None:
            self._move(holder, trial, trial.events or [])
        return self.python.apply(holder, event)

    def drop(self, holder: Target) -> int:
        """See `PrefixIndex`."""
        self._trials.pop(holder, None)
        self._moved.pop(holder, None)
        return self.native.drop(holder) + self.python.drop(holder)

    def clear(self, holder: Target) -> int:
        """See `PrefixIndex`."""
        trial = self._trials.get(holder)
        if trial is not None:
            trial.keep(AllBlocksCleared())
        return self._home(holder).clear(holder)

    def doubt(self, holder: Target) -> int:
        """See `PrefixIndex`. What is doubted is not told again to another index."""
        trial = self._trials.get(holder)
        if trial is not None:
            trial.events = None
        return self._home(holder).doubt(holder)

    def drop_pool(self, pool: str) -> int:
        """See `PrefixIndex`."""
        return self.python.drop_pool(pool)

    def find_reuse(self, chain: BlockChain) -> dict[Target, int]:
        """See `PrefixIndex`."""
        found = self.native.find_reuse(chain)
        for other in chain.others:
            for holder, tokens in self.native.find_reuse(other).items():
                found[holder] = min(tokens, found.get(holder, tokens))
        return found | self.python.find_reuse(chain) if self._moved else found

    def find_alternatives(self, chain: BlockChain, holder: Target) -> tuple[Alternative, ...]:
        """See `PrefixIndex`."""
        if holder not in self._trials:
            return self.python.find_alternatives(chain, holder)
        tokens = self.find_reuse(chain).get(holder, 0)
        return (Alternative(Reach.DEVICE, tokens),) if tokens else ()

    def correct(self, holder: Target, chain: BlockChain, cached_tokens: int) -> int:
        """See `PrefixIndex`."""
        if holder in self._trials:
            return self.find_reuse(chain).get(holder, 0)
        return self.python.correct(holder, chain, cached_tokens)

    def dump(self, holder: Target) -> Iterator[BlockRecord]:
        """See `PrefixIndex`; holders in the native index keep no names to dump (see `supports`)."""
        return self.python.dump(holder)

    def load(self, holder: Target, records: Iterable[BlockRecord]) -> int:
        """See `PrefixIndex`."""
        trial = self._trials.get(holder)
        if trial is not None:
            self._move(holder, trial, [])
        return self.python.load(holder, records)

    def block_count(self, holder: Target) -> int:
        """See `PrefixIndex`."""
        return self._home(holder).block_count(holder)

    def block_sizes(self) -> set[int]:
        """See `PrefixIndex`."""
        return self.native.block_sizes() | self.python.block_sizes()

    def is_modelled(self, holder: Target) -> bool:
        """See `PrefixIndex`."""
        return self._home(holder).is_modelled(holder)

    def size(self) -> IndexSize:
        """See `PrefixIndex`."""
        sizes, native = self.python.size(), self.native.count()
        return IndexSize(
            blocks=sizes.blocks + native.entries,
            parked_blocks=sizes.parked_blocks + native.parked_entries,
            evicted_blocks=sizes.evicted_blocks + native.evicted_entries,
        )

    def check_invariants(self) -> None:
        """See `PrefixIndex`."""
        self.native.check_invariants()
        self.python.check_invariants()
        if self._trials.keys() & self._moved.keys():
            raise AssertionError("a holder is in both indexes")

    def _home(self, holder: Target) -> NativePrefixIndex | NaivePrefixIndex:
        return self.native if holder in self._trials else self.python

    def _move(self, holder: Target, trial: _Trial, events: list[Event]) -> None:
        """Go on in Python, with the events so far."""
        del self._trials[holder]
        self.native.drop(holder)
        self.python.attach(holder, **trial.terms)
        self._moved[holder] = trial.generation
        for event in events:
            self.python.apply(holder, event)
