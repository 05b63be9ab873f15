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
from router.fleet.view import Rank
from router.placement.paces import MIN_MEASURED_OUTPUT, MIN_MEASURED_TOKENS, Paces, Work, predict_work_s, record_work
from router.placement.reservation import Reservation
from router.policy.prefill import prefill_s
from router.policy.steps import attended_s, context_token_s
from wire.ids import RequestId, Target

#: Prompt tokens in a step that also gives tokens to others, at least.
PIECE_TOKENS = 2_048
#: Requests of a window for each that only begins or only ends in it.
WINDOW_TURNS = 8


class GoodEnd(msgspec.Struct, frozen=True):
    """What a single answer says that came to its end."""

    output_tokens: int
    #: Prompt tokens that the engine says it reused; None where it does not say.
    cached_tokens: int | None = None
    #: When all of it was there, if it was not streamed; None of a stream.
    whole_at_s: float | None = None


class _Stay(msgspec.Struct):
    """A request on its rank."""

    entry: Reservation
    #: Its times tell of its rank.
    is_clean: bool
    #: Others had something there when it came.
    has_foreign: bool
    #: Its prefill as the coefficients predict it, tokens of it, and of its answer: as far as they are known.
    prefill_s: float
    uncached_tokens: int
    output_tokens: int
    #: Sums of the rank over what was done when it came.
    done_requests: int
    done_prefill_s: float
    done_prompt_tokens: int
    done_output_tokens: int


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

    def count(self, stay: _Stay, costs: Coefficients) -> None:
        """A request came and went."""
        tokens = stay.output_tokens - 1
        self.requests += 1
        self.prefill_s += max(0.0, stay.prefill_s - costs.prefill_step_s)
        if tokens > 0:
            self.tokens += tokens
            self.attended_tokens += tokens * (stay.entry.prompt_tokens + stay.output_tokens / 2)

    def find_least(self, capacity_tokens: int | None, costs: Coefficients) -> Work:
        """What the rank did at least: no step gives more tokens than there were requests."""
        steps, attended_tokens = self.tokens / self.peak, self.attended_tokens
        if capacity_tokens is not None:
            attended_tokens = min(attended_tokens, steps * capacity_tokens)
        base_s = steps * costs.decode_step_s + self.tokens * costs.decode_s_per_request
        return Work(self.prefill_s, base_s, attended_tokens * context_token_s(capacity_tokens, costs))


class _BusyRank:
    """A rank since it was idle last: who is there, and sums over all that came and over what of it is done."""

    __slots__ = (
        "came_output_tokens",
        "came_prefill_s",
        "came_prompt_tokens",
        "came_requests",
        "done_output_tokens",
        "done_prefill_s",
        "done_prompt_tokens",
        "done_requests",
        "stays",
        "window",
    )

    def __init__(self, now_s: float) -> None:
        self.stays: dict[RequestId, _Stay] = {}
        self.window = _Window(now_s, 0, 0)
        self.came_requests = self.came_prompt_tokens = self.came_output_tokens = 0
        self.done_requests = self.done_prompt_tokens = self.done_output_tokens = 0
        self.came_prefill_s = self.done_prefill_s = 0.0

    def begin(self, entry: Reservation, *, is_clean: bool) -> None:
        """One more."""
        stays, computed_s = self.stays, entry.prefill_s / entry.prefill_ratio
        stays[entry.request_id] = _Stay(
            entry,
            is_clean,
            entry.served_beside > len(stays),
            computed_s,
            entry.uncached_tokens,
            entry.expected_output_tokens,
            self.done_requests,
            self.done_prefill_s,
            self.done_prompt_tokens,
            self.done_output_tokens,
        )
        self.came_requests += 1
        self.came_prefill_s += computed_s
        self.came_prompt_tokens += entry.prompt_tokens
        self.came_output_tokens += entry.expected_output_tokens
        self.window.peak = max(self.window.peak, len(stays))

    def correct(self, stay: _Stay, computed_s: float, output_tokens: int) -> None:
        """What one took in the end is known."""
        self.came_prefill_s += computed_s - stay.prefill_s
        self.came_output_tokens += output_tokens - stay.output_tokens
        stay.prefill_s, stay.output_tokens = computed_s, output_tokens

    def end(self, stay: _Stay) -> None:
        """One is done."""
        del self.stays[stay.entry.request_id]
        self.done_requests += 1
        self.done_prefill_s += stay.prefill_s
        self.done_prompt_tokens += stay.entry.prompt_tokens
        self.done_output_tokens += stay.output_tokens


class Spans:
    """All ranks that have requests, and what their times teach."""

    def __init__(self, paces: Paces, costs: Coefficients) -> None:
        self._paces = paces
        #: Of the policy that acts.
        self.costs = costs
        self._ranks: dict[Target, _BusyRank] = {}

    def begin(self, entry: Reservation, *, is_clean: bool) -> None:
        """A request is sent to a rank that does all of it.

        Args:
            entry: As it was charged.
            is_clean: Its times tell of its rank: it has one prompt, for which nothing is fetched, and was on no other
                rank before.
        """
        busy = self._ranks.get(entry.target)
        if busy is None:
            busy = self._ranks[entry.target] = _BusyRank(entry.reserved_at_s)
        busy.begin(entry, is_clean=is_clean)

    def see_first_token(self, entry: Reservation, rank: Rank | None, now_s: float) -> None:
        """The first token of a stream: its prefill was done since it was sent."""
        busy = self._ranks.get(entry.target)
        stay = None if busy is None else busy.stays.get(entry.request_id)
        # One that starts at once is measured for itself (`record_prefill`).
        if busy is None or stay is None or not stay.is_clean or entry.starts_at_once:
            return
        if stay.uncached_tokens >= MIN_MEASURED_TOKENS:
            self._learn(busy, stay, Work(stay.prefill_s), rank, ended_s=now_s)

    def end(self, entry: Reservation, rank: Rank | None, good: GoodEnd | None, now_s: float) -> None:
        """The request is over; `good` is None where its end teaches nothing."""
        busy = self._ranks.get(entry.target)
        stay = None if busy is None else busy.stays.get(entry.request_id)
        if busy is None or stay is None:
            return
        if good is not None:
            self._correct(busy, stay, good)
            if good.whole_at_s is not None and _is_telling(stay):
                self._learn(busy, stay, self._find_own(stay, rank), rank, ended_s=good.whole_at_s)
            if stay.is_clean and entry.reserved_at_s >= busy.window.begun_s:
                busy.window.count(stay, self.costs)
        busy.end(stay)
        self._close_window(busy, entry.target, rank, now_s)

    def forget(self, target: Target) -> None:
        """The rank is gone."""
        self._ranks.pop(target, None)

    def names(self) -> list[RequestId]:
        """Requests that are watched."""
        return [name for busy in self._ranks.values() for name in busy.stays]

    def _correct(self, busy: _BusyRank, stay: _Stay, good: GoodEnd) -> None:
        """Counts of its engine take the place of expected ones."""
        computed_s, prompt_tokens = stay.prefill_s, stay.entry.prompt_tokens
        if good.cached_tokens is not None:
            stay.uncached_tokens = prompt_tokens - min(max(good.cached_tokens, 0), prompt_tokens)
            computed_s = prefill_s(stay.uncached_tokens, prompt_tokens, self.costs, self._paces.attention.ratio)
            computed_s += self.costs.prefill_step_s
        busy.correct(stay, computed_s, good.output_tokens)

    def _find_own(self, stay: _Stay, rank: Rank | None) -> Work:
        """What a whole answer takes of a rank of its own: its prefill, and a step for each token after the first."""
        costs, steps = self.costs, max(0, stay.output_tokens - 1)
        context_s = attended_s(stay.entry.prompt_tokens + stay.output_tokens / 2, _find_capacity(rank), costs)
        return Work(stay.prefill_s, steps * (costs.decode_step_s + costs.decode_s_per_request), steps * context_s)

    def _learn(self, busy: _BusyRank, stay: _Stay, own: Work, rank: Rank | None, *, ended_s: float) -> None:
        """A request's own work was done by a time, with whatever else."""
        paces, worker, measured_s = self._paces, stay.entry.target.worker, ended_s - stay.entry.reserved_at_s
        own_s = predict_work_s(paces, worker, own)
        most = own if own_s > measured_s else self._find_most(busy, stay, own, rank)
        if most is own or (most is not None and predict_work_s(paces, worker, most) < measured_s):
            record_work(paces, worker, most, measured_s=measured_s, now_s=ended_s)
        elif not paces.is_settled:
            # What it agrees with counts too: else the first that is out of line would be taken for the first there is.
            record_work(paces, worker, own, measured_s=own_s, now_s=ended_s)

    def _find_most(self, busy: _BusyRank, stay: _Stay, own: Work, rank: Rank | None) -> Work | None:
        """All that the rank can have done since a request came; None where others may be there."""
        if stay.has_foreign or (rank is not None and rank.report is not None and rank.report.has_foreign):
            return None
        requests = busy.came_requests - stay.done_requests
        if requests == 1:
            return own
        costs, capacity_tokens = self.costs, _find_capacity(rank)
        computed_s = busy.came_prefill_s - stay.done_prefill_s
        output_tokens = busy.came_output_tokens - stay.done_output_tokens
        open_tokens = busy.came_prompt_tokens - stay.done_prompt_tokens + output_tokens
        if capacity_tokens is not None and open_tokens <= capacity_tokens and costs.prefill_s_per_token > 0:
            # None had to wait for room.
            pieces = computed_s / (PIECE_TOKENS * costs.prefill_s_per_token)
            steps = stay.output_tokens + requests + pieces
        else:
            steps = output_tokens
        step_s = costs.decode_step_s + costs.decode_s_per_request * requests
        return Work(computed_s, steps * step_s, steps * attended_s(open_tokens, capacity_tokens, costs))

    def _close_window(self, busy: _BusyRank, target: Target, rank: Rank | None, now_s: float) -> None:
        window, still_there = busy.window, len(busy.stays)
        if still_there and window.requests < WINDOW_TURNS * (window.opened + still_there):
            return
        # A request that was alone has told already.
        if window.requests > 1:
            least, measured_s = window.find_least(_find_capacity(rank), self.costs), now_s - window.begun_s
            if predict_work_s(self._paces, target.worker, least) > measured_s:
                record_work(self._paces, target.worker, least, measured_s=measured_s, now_s=now_s)
        if still_there:
            busy.window = _Window(now_s, still_there, still_there)
        else:
            del self._ranks[target]


def _find_capacity(rank: Rank | None) -> int | None:
    return None if rank is None else rank.find_capacity_tokens()


def _is_telling(stay: _Stay) -> bool:
    """Whether its times tell of its rank, and its work is long enough to stand out from what each request takes."""
    is_long = stay.uncached_tokens >= MIN_MEASURED_TOKENS or stay.output_tokens >= MIN_MEASURED_OUTPUT
    return stay.is_clean and is_long
