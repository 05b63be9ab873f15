"""How old the tokens of a rank are when they are asked for again: a bounded histogram of pauses.

Tells the probability that a token of some age will still be asked for, which is what pushing it out costs. Before a
rank has seen enough, a prior speaks: an exponential decay, from the coefficients.
"""

import math

#: Bins double from 1 s on; the last one holds everything above.
BINS = 16
#: Requests that the prior counts as.
PRIOR_REQUESTS = 16.0
#: After so many requests all counts are halved, so that a change of the traffic shows.
HALVE_AT = 4_096.0


class ReuseAges:
    """Pauses after which the tokens of one rank were asked for again."""

    def __init__(self) -> None:
        self._reused = [0.0] * BINS
        #: Requests that left their tokens there.
        self._stored = 0.0
        #: What was asked for last since the counts changed, and the answer: a busy rank is asked often, and rarely for
        #: another age.
        self._asked: tuple[float, float, float] | None = None
        self._answer = 0.0

    def record_stored(self) -> None:
        """A request left its tokens on the rank."""
        self._asked = None
        self._stored += 1.0
        if self._stored >= HALVE_AT:
            self._stored /= 2
            self._reused = [count / 2 for count in self._reused]

    def record_reused(self, age_s: float) -> None:
        """Tokens that were so old were asked for again."""
        self._asked = None
        self._reused[find_bin(age_s)] += 1.0

    def find_reuse_ratio(self, age_s: float, *, prior_ratio: float, prior_decay_s: float) -> float:
        """Probability that a token which nobody asked for in `age_s` seconds is asked for again; 0..1.

        Of the requests that left tokens, those asked for again sooner are out; of the rest, the share that came later.
        """
        asked = age_s, prior_ratio, prior_decay_s
        if asked != self._asked:
            self._answer = self._find_reuse_ratio(age_s, prior_ratio, prior_decay_s)
            self._asked = asked
        return self._answer

    def _find_reuse_ratio(self, age_s: float, prior_ratio: float, prior_decay_s: float) -> float:
        place = find_bin(age_s)
        sooner, later = sum(self._reused[:place]), sum(self._reused[place:])
        left = max(self._stored - sooner, later)
        believed = prior_ratio * math.exp(-age_s / prior_decay_s)
        return (PRIOR_REQUESTS * believed + later) / (PRIOR_REQUESTS + left)


def find_bin(age_s: float) -> int:
    """0 below 1 s, then one for each doubling."""
    if not age_s >= 1.0:
        return 0
    return min(BINS - 1, 1 + int(math.log2(age_s))) if age_s < math.inf else BINS - 1
