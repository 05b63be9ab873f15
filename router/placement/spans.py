"""What requests that share their rank teach of its speed: bounds, from the work that it did in a span of time. Pure.

A first token, or an answer that comes whole, tells when some work was done, and not what else the rank did meanwhile.
However an engine orders its work, as long as it works while it has work, it did

- at least the request's own prefill and steps, which nobody else did for it;
- at most all prefills of requests that were there meanwhile, and so many steps: the request's own and one beside each
  piece of a prefill, where the KV cache has room for all; else every token of them in a step of its own.

For a request that was alone both bounds are the same: it is a measurement. A span shorter than the least work takes, or
longer than the most, tells how wrong the learned speeds are at least; one between the two tells nothing.

A rank that is never idle tells more: requests that came and went within a window were served in it, all of them,
whatever their order. The window over their work bounds the pace, the closer the more requests there are for each that
only begins or only ends in it.
"""

import msgspec

from router.config.policy import Coefficients
from router.placement.paces import MIN_MEASURED_OUTPUT, MIN_MEASURED_TOKENS, Paces, Work, record_work
from router.placement.reservation import Reservation, StepParts
from router.policy.prefill import prefill_s
from router.policy.steps import attended_s, context_token_s
from wire.ids import RequestId, Target

#: Prompt tokens in a step that also gives tokens to others, at least.
PIECE_TOKENS = 2_048
#: Requests of a window for each that only begins or only ends in it.
WINDOW_TURNS = 8


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when a rank gives a request's first token, or when the request is over."""

    now_s: float
    costs: Coefficients
    #: Size of the rank's KV cache; None while unknown.
    capacity_tokens: int | None = None
    #: Others have something there.
    has_foreign: bool = False
    #: Prompt tokens that the engine says it reused; None where it does not say.
    cached_tokens: int | None = None
    #: Tokens of a good answer; None where there is none, or several, or their number is unknown.
    output_tokens: int | None = None
    #: When all of an answer was there that was not streamed; None of others.
    whole_at_s: float | None = None


class _Sums(msgspec.Struct):
    """Sums over requests."""

    requests: int = 0
    #: As the coefficients predict it.
    prefill_s: float = 0.0
    uncached_tokens: int = 0
    prompt_tokens: int = 0
    #: As expected of answers that are not over.
    output_tokens: int = 0

    def add(self, other: "_Sums", sign: int = 1) -> None:
        self.requests += sign * other.requests
        self.prefill_s += sign * other.prefill_s
        self.uncached_tokens += sign * other.uncached_tokens
        self.prompt_tokens += sign * other.prompt_tokens
        self.output_tokens += sign * other.output_tokens

    def minus(self, other: "_Sums") -> "_Sums":
        return _Sums(
            self.requests - other.requests,
            self.prefill_s - other.prefill_s,
            self.uncached_tokens - other.uncached_tokens,
            self.prompt_tokens - other.prompt_tokens,
            self.output_tokens - other.output_tokens,
        )


_NOTHING = _Sums()


class _Stay(msgspec.Struct):
    """A request on its rank."""

    entry: Reservation
    #: What it takes, as far as known.
    own: _Sums
    #: All that was over when it came.
    over: _Sums
    #: Its times tell of its rank: nothing is fetched for it, and it was on no other before.
    is_clean: bool
    #: Others had something there when it came.
    has_foreign: bool


class _Window(msgspec.Struct):
    """A span of a rank that has work, and what came and went within it."""

    begun_s: float
    #: Requests that only end in it, and the most there were at once.
    opened: int
    peak: int
    requests: int = 0
    #: Without what a pass takes at least: one pass may serve several.
    prefill_s: float = 0.0
    #: Tokens after the first ones, and what all of them attend to.
    tokens: int = 0
    attended_tokens: float = 0.0

    def count(self, own: _Sums, costs: Coefficients) -> None:
        """A request came and went."""
        tokens = max(0, own.output_tokens - 1)
        self.requests += 1
        self.prefill_s += max(0.0, own.prefill_s - costs.prefill_step_s)
        self.tokens += tokens
        self.attended_tokens += tokens * (own.prompt_tokens + own.output_tokens / 2)

    def find_least(self, told: Told) -> Work:
        """What the rank did at least: no step gives more tokens than there were requests."""
        costs, steps, attended_tokens = told.costs, self.tokens / self.peak, self.attended_tokens
        if told.capacity_tokens is not None:
            attended_tokens = min(attended_tokens, steps * told.capacity_tokens)
        base_s = steps * costs.decode_step_s + self.tokens * costs.decode_s_per_request
        context_s = attended_tokens * context_token_s(told.capacity_tokens, costs)
        return Work(self.prefill_s, StepParts(base_s, context_s))


class _BusyRank:
    """A rank since it was idle last."""

    __slots__ = ("came", "over", "stays", "window")

    def __init__(self, now_s: float) -> None:
        self.stays: dict[RequestId, _Stay] = {}
        self.came = _Sums()
        self.over = _Sums()
        self.window = _Window(now_s, 0, 0)


class Spans:
    """All ranks that have requests, and what their times teach."""

    def __init__(self, paces: Paces) -> None:
        self._paces = paces
        self._ranks: dict[Target, _BusyRank] = {}

    def begin(self, entry: Reservation, *, is_clean: bool) -> None:
        """A request is sent to a rank that does all of it.

        Args:
            entry: As it was charged.
            is_clean: Its times tell of its rank: nothing is fetched for it, and it was on no other before.
        """
        rank = self._ranks.get(entry.target)
        if rank is None:
            rank = self._ranks[entry.target] = _BusyRank(entry.reserved_at_s)
        own = _Sums(
            1,
            entry.prefill_s / entry.prefill_ratio,
            entry.uncached_tokens,
            entry.prompt_tokens,
            entry.expected_output_tokens,
        )
        has_foreign = entry.served_beside > len(rank.stays)
        rank.stays[entry.request_id] = _Stay(entry, own, rank.over.minus(_NOTHING), is_clean, has_foreign)
        rank.came.add(own)
        rank.window.peak = max(rank.window.peak, len(rank.stays))

    def see_first_token(self, entry: Reservation, told: Told) -> None:
        """The first token of a stream: its prefill was done since it was sent."""
        rank = self._ranks.get(entry.target)
        stay = None if rank is None else rank.stays.get(entry.request_id)
        # One that starts at once is measured for itself (`record_prefill`).
        if rank is None or stay is None or not stay.is_clean or entry.starts_at_once:
            return
        if entry.uncached_tokens >= MIN_MEASURED_TOKENS:
            least = Work(stay.own.prefill_s, StepParts())
            most = _find_most(rank, stay, least, told)
            self._record(entry.target, least, most, entry.reserved_at_s, told.now_s)

    def end(self, entry: Reservation, told: Told) -> None:
        """The request is over."""
        rank = self._ranks.get(entry.target)
        stay = None if rank is None else rank.stays.get(entry.request_id)
        if rank is None or stay is None:
            return
        if told.output_tokens is not None:
            self._correct(rank, stay, told, told.output_tokens)
            if told.whole_at_s is not None and _is_telling(stay):
                own = _find_own(stay, told)
                self._record(entry.target, own, _find_most(rank, stay, own, told), entry.reserved_at_s, told.whole_at_s)
            if stay.is_clean and entry.reserved_at_s >= rank.window.begun_s:
                rank.window.count(stay.own, told.costs)
        del rank.stays[entry.request_id]
        rank.over.add(stay.own)
        self._close_window(rank, entry.target, told)

    def forget(self, target: Target) -> None:
        """The rank is gone."""
        self._ranks.pop(target, None)

    def _correct(self, rank: _BusyRank, stay: _Stay, told: Told, output_tokens: int) -> None:
        """What it took in the end is known."""
        own, prompt_tokens = stay.own, stay.entry.prompt_tokens
        rank.came.add(own, -1)
        own.output_tokens = output_tokens
        if told.cached_tokens is not None:
            own.uncached_tokens = prompt_tokens - min(max(told.cached_tokens, 0), prompt_tokens)
            attention_ratio = self._paces.attention.ratio
            computed_s = prefill_s(own.uncached_tokens, prompt_tokens, told.costs, attention_ratio)
            own.prefill_s = told.costs.prefill_step_s + computed_s
        rank.came.add(own)

    def _close_window(self, rank: _BusyRank, target: Target, told: Told) -> None:
        window, still_there = rank.window, len(rank.stays)
        if still_there and window.requests < WINDOW_TURNS * (window.opened + still_there):
            return
        # A request that was alone has told already.
        if window.requests > 1:
            self._record(target, window.find_least(told), None, window.begun_s, told.now_s)
        if still_there:
            rank.window = _Window(told.now_s, still_there, still_there)
        else:
            del self._ranks[target]

    def _record(self, target: Target, least: Work, most: Work | None, begun_s: float, ended_s: float) -> None:
        measured_s = ended_s - begun_s
        record_work(self._paces, target.worker, least=least, most=most, measured_s=measured_s, now_s=ended_s)


def _is_telling(stay: _Stay) -> bool:
    """Whether its work is long enough to be told from what every request takes beside it."""
    is_long = stay.own.uncached_tokens >= MIN_MEASURED_TOKENS or stay.own.output_tokens >= MIN_MEASURED_OUTPUT
    return stay.is_clean and is_long


def _find_own(stay: _Stay, told: Told) -> Work:
    """What a whole answer takes of a rank of its own: its prefill, and a step for each token after the first."""
    own, costs = stay.own, told.costs
    steps = max(0, own.output_tokens - 1)
    attended_tokens = own.prompt_tokens + own.output_tokens / 2
    step_s = costs.decode_step_s + costs.decode_s_per_request
    context_s = attended_s(attended_tokens, told.capacity_tokens, costs)
    return Work(own.prefill_s, StepParts(steps * step_s, steps * context_s))


def _find_most(rank: _BusyRank, stay: _Stay, own: Work, told: Told) -> Work | None:
    """All that the rank can have done since a request came; None where others are there."""
    met = rank.came.minus(stay.over)
    if stay.has_foreign or told.has_foreign:
        return None
    if met.requests == 1:
        return own
    costs, open_tokens = told.costs, met.prompt_tokens + met.output_tokens
    if told.capacity_tokens is not None and open_tokens <= told.capacity_tokens:
        steps = max(0, stay.own.output_tokens - 1) + met.requests - 1 + met.uncached_tokens // PIECE_TOKENS
    else:
        steps = met.output_tokens
    step_s = costs.decode_step_s + costs.decode_s_per_request * met.requests
    context_s = attended_s(open_tokens, told.capacity_tokens, costs)
    return Work(met.prefill_s, StepParts(steps * step_s, steps * context_s))
