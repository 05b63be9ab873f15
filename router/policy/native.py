"""The cost policy compiled: every rank that may be chosen is priced in one call, some 100 ns each.

The terms say what each cost is and why; `router/policy/pricing/` repeats them in C++, each operation in the same order,
so that totals, ties and the choice are theirs to the last bit (`tests/models/test_pricing_model.py`). What it cannot
reckon with, which are figures that are no numbers or beyond belief, is left to the terms. Without a compiler there is
no such module, and the terms serve alone.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol

import msgspec

from router.config.policy import Coefficients
from router.fleet.pace import WorkerPaces
from router.fleet.tiers import ReuseOption
from router.fleet.view import Rank
from router.policy.base import Choice, CostTable, PlacementQuery, Seat
from router.policy.cache_affinity import CacheAffinity
from router.policy.ties import TIE_RATIO, TIE_S, draw, hash_target
from wire.ids import Target

_native: ModuleType | None
try:
    _native = import_module("router.policy._pricing")
except ImportError:
    _native = None

#: A choice, and what is met on the rank chosen: None where that was priced in Python.
Priced = tuple[Choice, Seat | None]
#: Of so few ranks all stand in the explanation; of more the home, the chosen and so many of the cheapest.
FEW_RANKS = 8


def pricing_available() -> bool:
    """True when the compiled module was built and loads."""
    return _native is not None


class Held(msgspec.Struct, frozen=True):
    """Tokens of a prompt's head by rank."""

    confirmed: Mapping[Target, int]
    #: Expected of requests being prefilled, and the share of it that is believed.
    expected: Mapping[Target, int]
    credit_ratio: float


class Standing(Protocol):
    """A rank as it is kept."""

    target: Target
    rank: Rank
    #: When it changed last.
    touched_s: float


class RankTable:
    """The ranks of a pool in numbers. Made only where `pricing_available`."""

    def __init__(self, targets: Iterable[Target], costs: Coefficients) -> None:
        listed = list(targets)
        assert _native is not None  # noqa: S101 - said above
        self.core: Any = _native.Table(listed, [hash_target(target) for target in listed], costs)
        #: Ranks whose figures are beyond what is reckoned with here.
        self.odd: set[Target] = set()

    def write(
        self, standings: Sequence[Standing], ledger: object, live: object, paces: WorkerPaces, now_s: float
    ) -> None:
        """Writes ranks anew: what `router.placement.views.build_view` makes of the same, and the wait as it goes by.

        Args:
            standings: Which.
            ledger: What is open there: `router.placement.ledger.Ledger`.
            live: What lives there: `router.placement.live.LiveSessions`.
            paces: How fast workers are.
            now_s: When.
        """
        odd = self.core.write(standings, ledger, live, paces, now_s)
        if odd or self.odd:
            self.odd.difference_update(standing.target for standing in standings)
            self.odd.update(odd)

    def targets(self) -> list[Target]:
        """All of them, in order."""
        targets: list[Target] = self.core.targets()
        return targets


class NativePricer:
    """One policy before tables of ranks. Made only where `pricing_available`."""

    def __init__(self, policy: CacheAffinity, *, seed: int) -> None:
        assert _native is not None  # noqa: S101 - said above
        self._core: Any = _native.Pricer(policy.weights, policy.coefficients, (TIE_S, TIE_RATIO), draw)
        self._term_names = policy.term_names
        self._seed = seed

    def choose(
        self,
        query: PlacementQuery,
        tables: Sequence[RankTable],
        held: Held,
        *,
        now_s: float,
        excluded: frozenset[Target],
        given: Mapping[Target, Sequence[float]],
        options: Mapping[Target, tuple[ReuseOption, ...]],
    ) -> Priced | None:
        """As `CacheAffinity.choose` of every rank but the excluded; None where that has to be asked.

        Args:
            query: What is placed.
            tables: Ranks, up to date.
            held: What lies where.
            now_s: When.
            excluded: Ranks that may not be chosen.
            given: Costs by term of ranks that were priced by the terms.
            options: Ways to serve the prompt, to be told of.
        """
        cores = [table.core for table in tables]
        told = self._core.choose(
            cores,
            query,
            held.confirmed,
            held.expected,
            held.credit_ratio,
            now_s,
            excluded,
            given,
            self._seed,
            FEW_RANKS,
        )
        return None if told is None else self._read(query, told, options)

    def choose_home(
        self,
        query: PlacementQuery,
        tables: Sequence[RankTable],
        held: Held,
        *,
        now_s: float,
        least_prefill_ratio: float,
    ) -> Priced | None:
        """The home where no other rank can cost as little by its prefill alone, else None.

        Only the home's row has to be up to date, and of what is expected only what lies there and the most elsewhere.
        """
        cores = [table.core for table in tables]
        told = self._core.choose_home(
            cores, query, held.confirmed, held.expected, held.credit_ratio, now_s, least_prefill_ratio
        )
        return None if told is None else self._read(query, told, {})

    def _read(
        self, query: PlacementQuery, told: tuple[Any, ...], options: Mapping[Target, tuple[ReuseOption, ...]]
    ) -> Priced:
        target, tied_count, targets, confirmed, predicted, terms_s, totals_s, seat = told
        costs = CostTable(
            targets,
            query.home,
            array("q", confirmed),
            array("q", predicted),
            self._term_names,
            array("d", terms_s),
            array("d", totals_s),
            {each: options[each] for each in targets if options.get(each)} if options else {},
        )
        choice = Choice(target=target, costs=costs, tied_count=tied_count)
        return choice, None if seat is None else Seat(target, *seat)
