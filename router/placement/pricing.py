"""Prices of every rank that may be chosen, by the compiled terms of the cost policy.

Ranks that these cannot reckon with are priced by the terms in Python and handed in: those with other ways to serve the
prompt, and those whose figures are beyond belief. A turn of a session first looks at its home alone, where the others
need not even be brought up to date if none of them can cost as little.
"""

from collections.abc import Sequence

from router.placement.question import Question
from router.placement.standings import Standings
from router.policy.cache_affinity import CacheAffinity
from router.policy.native import FEW_RANKS, Held, NativePricer, Priced, RankTable
from wire.ids import Target


class Pricing:
    """The choice of one policy for one question after the other."""

    def __init__(self, policy: CacheAffinity, standings: Standings, *, seed: int) -> None:
        self._policy = policy
        self._standings = standings
        self._pricer = NativePricer(policy, seed=seed)

    def choose(self, question: Question) -> Priced | None:
        """What the policy would choose of all ranks; None where it has to be asked."""
        stays = self._stay(question) if question.eligible_count > FEW_RANKS else None
        if stays is None:
            return self.price(question)
        for pool in question.pools:
            self._standings.write_some(pool)
        return stays

    def price(self, question: Question) -> Priced | None:
        """The same, every rank priced."""
        tables = [self._standings.write_all(pool) for pool in question.pools]
        return self._pricer.choose(
            question.query,
            tables,
            Held(question.confirmed, question.expected.spell_out(), question.credit_ratio),
            now_s=question.now_s,
            excluded=question.excluded,
            given=self._price_in_python(question, tables),
            options=question.options,
        )

    def _stay(self, question: Question) -> Priced | None:
        """The home, where no other rank can cost as little."""
        home = question.query.home
        if home is None or question.options:
            return None
        tables = [self._standings.write(pool, home) for pool in question.pools]
        expected = {**question.expected.find_most(2), home: question.expected.find(home)}
        return self._pricer.choose_home(
            question.query,
            tables,
            Held(question.confirmed, expected, question.credit_ratio),
            now_s=question.now_s,
            least_prefill_ratio=self._standings.least_prefill_ratio,
        )

    def _price_in_python(self, question: Question, tables: Sequence[RankTable]) -> dict[Target, list[float]]:
        apart = [*question.options]
        for table in tables:
            apart += table.odd
        if not apart:
            return {}
        return {
            target: self._policy.weigh(question.query, question.view(self._standings, target))
            for target in apart
            if question.allows(target)
        }
