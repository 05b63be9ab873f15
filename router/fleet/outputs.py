"""How long answers get: a bounded histogram of lengths, and what it says of an answer that is under way.

Lengths of answers have a long tail, so that an answer is expected to go on for the longer, the longer it is already.
What is said follows the histogram after some more answers, and is reckoned for a length when someone asks; from then on
a look is one bisection.
"""

import math
from bisect import bisect_right
from itertools import accumulate, pairwise
from operator import mul

import msgspec

#: Lengths in tokens between which answers are told apart: half a doubling each, up to half a million.
GRID: tuple[float, ...] = (0.0, *(8.0 * 2.0 ** (step / 2) for step in range(33)))
#: Answers that the prior counts as, and its shape: log-normal, in tokens.
PRIOR_ANSWERS = 32.0
PRIOR_MEDIAN_TOKENS = 256.0
PRIOR_SIGMA = 1.0
#: After so many answers all counts are halved, so that a change of the traffic shows.
HALVE_AT = 4_096.0
#: Answers after which all is reckoned anew.
REBUILD_AFTER = 64
#: Limits of clients whose outlook is kept until then.
MAX_OUTLOOKS = 256


class Outlook(msgspec.Struct, frozen=True):
    """What is to be expected of an answer that begins."""

    #: Its length, within what the client allows.
    expected_tokens: int
    #: The same of one that is under way: at least one more.
    remaining_tokens: int
    #: Tokens for which it goes on beside another one that begins, and their share of those without a limit.
    joint_tokens: int
    joint_ratio: float


class OutputLengths:
    """Lengths of answers of late."""

    def __init__(self) -> None:
        self._counts = [PRIOR_ANSWERS * share for share in _find_prior_shares()]
        self._answers = PRIOR_ANSWERS
        self._fresh = 0
        #: Share of answers longer than each length of the grid, and its steps, as of the last `_rebuild`.
        self._survival: list[float] = []
        self._falls: list[float] = []
        #: Tokens to come at each place of the grid, alone and beside another answer; None where nobody asked yet.
        self._to_come: list[tuple[int, int] | None] = []
        #: By limit, as far as asked for.
        self._outlooks: dict[int | None, Outlook] = {}
        self._rebuild()

    @property
    def expected_tokens(self) -> int:
        """Mean length of an answer."""
        return self._find(0)[0]

    def foresee(self, limit_tokens: int | None) -> Outlook:
        """What is to be expected of an answer, whose length the client may limit."""
        outlook = self._outlooks.get(limit_tokens)
        return self._foresee(limit_tokens) if outlook is None else outlook

    def _foresee(self, limit_tokens: int | None) -> Outlook:
        alone, beside = self._find(0)
        joint_tokens = _limit(beside, 0, limit_tokens)
        outlook = Outlook(
            alone if limit_tokens is None else min(max(limit_tokens, 0), alone),
            _limit(alone, 0, limit_tokens),
            joint_tokens,
            joint_tokens / beside,
        )
        if len(self._outlooks) < MAX_OUTLOOKS:
            self._outlooks[limit_tokens] = outlook
        return outlook

    def record(self, output_tokens: int) -> None:
        """An answer is complete."""
        self._counts[_find_place(output_tokens)] += 1.0
        self._answers += 1.0
        if self._answers >= HALVE_AT:
            self._answers /= 2
            self._counts = [count / 2 for count in self._counts]
        self._fresh += 1
        if self._fresh >= REBUILD_AFTER:
            self._rebuild()

    def find_remaining_tokens(self, output_tokens: int, limit_tokens: int | None = None) -> int:
        """Tokens that an answer of so many is expected to go on for; at least 1, at most what a limit leaves."""
        return _limit(self._find(output_tokens)[0], output_tokens, limit_tokens)

    def find_both_tokens(self, output_tokens: int, limit_tokens: int | None) -> tuple[int, int]:
        """`find_remaining_tokens` and `find_joint_tokens` of one answer."""
        remaining, joint = self._find(output_tokens)
        return _limit(remaining, output_tokens, limit_tokens), _limit(joint, output_tokens, limit_tokens)

    def find_joint_tokens(self, output_tokens: int, limit_tokens: int | None = None) -> int:
        """Tokens for which it is expected to go on beside an answer that begins now: the shorter of the two."""
        return _limit(self._find(output_tokens)[1], output_tokens, limit_tokens)

    def _find(self, output_tokens: int) -> tuple[int, int]:
        place = _find_place(output_tokens)
        return self._to_come[place] or self._reckon(place)

    def _reckon(self, place: int) -> tuple[int, int]:
        """Cost: the length of the grid, once for each place that is asked for until the next `_rebuild`."""
        alone, beside = _find_means(self._survival, self._falls, place)
        found = self._to_come[place] = round(max(1.0, alone)), round(max(1.0, beside))
        return found

    def _rebuild(self) -> None:
        self._fresh = 0
        self._survival = self._find_survival()
        self._falls = [after - before for before, after in pairwise(self._survival)]
        self._to_come = [None] * (len(GRID) - 1)
        self._outlooks.clear()

    def _find_survival(self) -> list[float]:
        """Share of answers longer than each length of the grid; summed from its end, where the small figures stand."""
        left = list(accumulate(reversed(self._counts)))
        return [count / left[-1] for count in reversed(left)]


def _find_means(survival: list[float], falls: list[float], begun: int) -> tuple[float, float]:
    """Tokens still to come of an answer as long as a place of the grid; the same beside one that begins.

    The integral of the share that goes on, `S(g + t) / S(g)`; and of that times the share of new answers that do.
    """
    alive = survival[begun]
    if alive <= 0.0:
        return GRID[begun], GRID[begun]
    shares = [survival[place] + part * falls[place] for place, part in _SHIFTED[begun]]
    joint = map(mul, shares, survival)
    return math.fsum(map(mul, _WIDTHS, shares)) / alive, math.fsum(map(mul, _WIDTHS, joint)) / alive


def _shift(begun_tokens: float) -> list[tuple[int, float]]:
    """Where the lengths of the grid lie when moved on by so many tokens: a place, and the part of the way to the next.

    Ends before the first length beyond the grid, which no answer reaches.
    """
    shifted = []
    for tokens in GRID:
        place = bisect_right(GRID, begun_tokens + tokens) - 1
        if place + 1 >= len(GRID):
            break
        shifted.append((place, (begun_tokens + tokens - GRID[place]) / (GRID[place + 1] - GRID[place])))
    return shifted


_SHIFTED = [_shift(tokens) for tokens in GRID[:-1]]
#: Weights of the grid's lengths in an integral by trapezes.
_WIDTHS = [(after - before) / 2 for before, after in zip((0.0, *GRID), (*GRID[1:], GRID[-1]), strict=False)]
_LAST_PLACE = len(GRID) - 2


def _find_place(output_tokens: int) -> int:
    """Place of a length between two of the grid; the last one takes all that are longer."""
    return min(bisect_right(GRID, output_tokens) - 1, _LAST_PLACE) if output_tokens > 0 else 0


def _find_prior_shares() -> list[float]:
    """Share of each place under the prior; the last entry closes the grid and holds nothing."""
    below = [0.0, *(_find_log_normal(tokens) for tokens in GRID[1:-1]), 1.0]
    return [*(after - before for before, after in pairwise(below)), 0.0]


def _find_log_normal(tokens: float) -> float:
    spread = math.log(tokens / PRIOR_MEDIAN_TOKENS) / (PRIOR_SIGMA * math.sqrt(2.0))
    return (1.0 + math.erf(spread)) / 2


def _limit(tokens: int, output_tokens: int, limit_tokens: int | None) -> int:
    if limit_tokens is None or limit_tokens - output_tokens >= tokens:
        return tokens
    return max(1, limit_tokens - output_tokens)
