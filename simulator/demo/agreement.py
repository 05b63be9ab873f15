"""Whether two measurements of the same policies put them in the same order. Pure.

Each figure of each policy is compared with that of each other policy. Two that lie closer than the noise count as tied;
the orders differ where two policies stand one way round in the one and the other way round in the other.
"""

from collections.abc import Sequence
from enum import StrEnum
from itertools import combinations

from msgspec import Struct

#: Figures that differ by less than this share of the larger are tied, however little the simulation varies.
NOISE_RATIO = 0.03


class Figure(StrEnum):
    """What policies are ordered by: fields of `Standing`."""

    TTFT = "ttft_mean_ms"
    E2E = "e2e_mean_ms"
    CACHED = "cached_ratio"
    BUSIEST = "busiest_over_mean"


class Standing(Struct, frozen=True):
    """One policy's figures, in one of the two measurements."""

    policy: str
    ttft_mean_ms: float
    e2e_mean_ms: float
    cached_ratio: float
    #: Requests of the busiest rank over those of the average one.
    busiest_over_mean: float

    def read(self, figure: Figure) -> float:
        """The figure's value."""
        value: float = getattr(self, figure.value)
        return value


class Verdict(StrEnum):
    """How two policies stand to one another by one figure in the two measurements."""

    SAME = "same"
    #: Closer than the noise in at least one of the two.
    TIED = "tied"
    OPPOSED = "opposed"


class Pair(Struct, frozen=True):
    """Two policies by one figure, in the order of the simulation, the better first."""

    figure: Figure
    better: str
    worse: str
    verdict: Verdict


class Noise:
    """How far apart two policies' figures must lie to be told apart.

    Args:
        spreads: By policy, how much each figure varies from run to run of the simulation.
        ratio: Share of the larger by which figures must differ at least. More on a machine that is not quiet: it moves
            times, and with them what policies choose that look at load, and so where requests went and what was cached.
    """

    def __init__(self, spreads: Sequence[Standing], ratio: float = NOISE_RATIO) -> None:
        self._spreads = {spread.policy: spread for spread in spreads}
        self._ratio = ratio

    def ties(self, figure: Figure, one: Standing, other: Standing) -> bool:
        """Whether the two lie closer than a share of the larger, or than what either varies by."""
        first, second = one.read(figure), other.read(figure)
        varies = max(self._spreads[each.policy].read(figure) for each in (one, other))
        return abs(first - second) <= max(self._ratio * max(first, second), varies)


class Agreement(Struct, frozen=True):
    """What the comparison of two rankings comes to."""

    pairs: tuple[Pair, ...]

    @property
    def holds(self) -> bool:
        """No two policies stand the other way round, and some could be told apart at all."""
        return not self.select(Verdict.OPPOSED) and bool(self.select(Verdict.SAME))

    def select(self, verdict: Verdict) -> list[Pair]:
        """The pairs of one verdict."""
        return [pair for pair in self.pairs if pair.verdict is verdict]


def rank(standings: Sequence[Standing], figure: Figure) -> list[Standing]:
    """The best first: the highest ratio of what was cached, the lowest of all else."""
    return sorted(standings, key=lambda standing: standing.read(figure), reverse=figure is Figure.CACHED)


def compare(live: Sequence[Standing], simulated: Sequence[Standing], noise: Noise) -> Agreement:
    """Every figure of every two policies."""
    measured = {standing.policy: standing for standing in live}
    pairs = []
    for figure in Figure:
        for better, worse in combinations(rank(simulated, figure), 2):
            first, second = measured[better.policy], measured[worse.policy]
            if noise.ties(figure, better, worse) or noise.ties(figure, first, second):
                verdict = Verdict.TIED
            else:
                verdict = Verdict.SAME if rank([first, second], figure)[0] is first else Verdict.OPPOSED
            pairs.append(Pair(figure, better.policy, worse.policy, verdict))
    return Agreement(tuple(pairs))
