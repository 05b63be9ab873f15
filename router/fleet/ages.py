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
        #: How many of them by age (`find_bin`).
        self.reused = [0.0] * BINS
        #: Requests that left their tokens there.
        self.stored = 0.0

    def record_stored(self) -> None:
        """A request left its tokens on the rank."""
        self.stored += 1.0
        if self.stored >= HALVE_AT:
            self.stored /= 2
            self.reused = [count / 2 for count in self.reused]

    def record_reused(self, age_s: float) -> None:
        """Tokens that were so old were asked for again."""
        self.reused[find_bin(age_s)] += 1.0

    def find_reuse_ratio(self, age_s: float, *, prior_ratio: float, prior_decay_s: float) -> float:
        """Probability that a token which nobody asked for in `age_s` seconds is asked for again; 0..1.

        Of the requests that left tokens, those asked for again sooner are out; of the rest, the share that came later.
        """
        place = find_bin(age_s)
        sooner, later = math.fsum(self.reused[:place]), math.fsum(self.reused[place:])
        left = max(self.stored - sooner, later)
        believed = prior_ratio * math.exp(-age_s / prior_decay_s)
        return (PRIOR_REQUESTS * believed + later) / (PRIOR_REQUESTS + left)


def find_bin(age_s: float) -> int:
    """0 below 1 s, then one for each doubling."""
    if not age_s >= 1.0:
        return 0
    return min(BINS - 1, 1 + int(math.log2(age_s))) if age_s < math.inf else BINS - 1
