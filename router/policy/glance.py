"""What ranks cost at a glance: all terms of the cost policy in one expression, for ranks that hold little of a prompt.

The terms say what each cost is and why; this reckons their sum some ten times faster, from numbers that are written
down once for each rank (`Sketch`) and once for each query (`Stakes`). Good for a rank that is not the session's home
and has no other tiers; never above what the terms say there, credit left out, but for the last bits of a sum
(`tests/router/policy/test_policy_glance.py`).
"""

import math
from typing import NamedTuple

from router.config_policy import Coefficients, PolicyWeights
from router.policy.base import PlacementQuery, RankView
from router.policy.prefill import prefill_s
from router.policy.steps import added_step_s, context_token_s

_INFINITE = float("inf")


class Sketch(NamedTuple):
    """A rank in numbers, weights applied; its wait left out."""

    #: Factor on seconds of prefill: the request's own, and what it holds up.
    work: float
    #: Seconds that generating beside those open there costs; the same for each token of the prompt.
    decode_s: float
    decode_token_s: float
    #: The same for sessions that pause there, all of them back; how slowly it generates.
    returns_s: float
    returns_token_s: float
    pace: float
    #: Tokens that fit in beside those open there, and what each of the others costs: per token of output expected, that
    #: of those which generate and that of those which wait.
    room_tokens: float
    room_s: float
    remaining_tokens: float
    waiting_requests: float
    #: Tokens that push nothing out, those that can be pushed out at most, and the factor on the prefill of each.
    free_tokens: float
    evictable_tokens: float
    evicted: float
    #: Live tokens, how many of them are lost in a pause, and the exponent's numerator of that.
    live_tokens: float
    lost_tokens: float
    kept_tokens: float
    #: Factor on the prefill of a token lost.
    lost: float
    #: Share of the time that it is busy, halved; live sessions.
    busy: float
    live_sessions: float


class Stakes(NamedTuple):
    """A query in numbers. All are at least 0, and no rank costs less where one of them is more."""

    #: Prefill of what is not held, at the fleet's pace.
    work_s: float
    #: Tokens of prompt; with the output expected; that output; what is new of both.
    prompt_tokens: float
    room_tokens: float
    output_tokens: float
    new_tokens: float
    #: Prefill of one token in the middle of the prompt, and that of all turns to come.
    token_s: float
    turns_token_s: float
    #: Pace of generating; as far as its limit lets it generate; with the tokens that a return meets; returns of a
    #: session until the answer is complete.
    decode: float
    slowed: float
    returns: float
    returned: float
    #: Work of a request in all turns to come; what of it a crowded rank costs; one over the average of live sessions.
    turns_work_s: float
    crowding_s: float
    sessions: float


class Glance:
    """The cost policy's costs at a glance."""

    def __init__(self, weights: PolicyWeights, coefficients: Coefficients) -> None:
        self._weights = weights
        self._costs = coefficients

    def sketch(self, rank: RankView) -> Sketch:
        """A rank's numbers."""
        costs, weights = self._costs, self._weights
        capacity = rank.capacity_tokens
        token_s, request_s = context_token_s(capacity, costs, rank.context_ratio), 2 * costs.decode_s_per_request
        pace = rank.decode_ratio
        slow = weights.decode * pace if rank.joint_output_tokens else 0.0
        back = weights.returns * pace if rank.paused_sessions else 0.0
        room_tokens, room_s = _INFINITE, 0.0
        if capacity and rank.open_tokens > 0 and rank.open_requests:
            step_s = costs.decode_step_s + added_step_s(
                rank.decoding_requests, rank.context_tokens, capacity, costs, rank.context_ratio
            )
            room_tokens = capacity - rank.open_tokens
            room_s = weights.admission * pace * step_s / rank.open_tokens / rank.open_requests
        evicts = capacity is not None and rank.eviction_reuse_ratio > 0
        live, kept = rank.live_tokens, costs.working_set_factor * capacity if capacity else _INFINITE
        return Sketch(
            rank.prefill_ratio * (weights.reuse + weights.stall * rank.served_requests),
            slow * (request_s * rank.joint_output_tokens + token_s * rank.joint_context_tokens),
            slow * token_s * rank.joint_output_tokens,
            back * (request_s * rank.paused_sessions + token_s * rank.paused_tokens),
            back * token_s * rank.paused_sessions,
            pace,
            room_tokens,
            room_s,
            rank.remaining_output_tokens,
            max(0, rank.open_requests - rank.decoding_requests),
            max(0, capacity - rank.resident_tokens) if capacity is not None and evicts else _INFINITE,
            capacity or 0,
            weights.balance * rank.eviction_reuse_ratio * rank.prefill_ratio if evicts else 0.0,
            live,
            live * math.exp(-kept / live) if live > 0 else 0.0,
            kept,
            weights.settle * rank.prefill_ratio,
            weights.settle * rank.busy_ratio / 2,
            rank.live_sessions,
        )

    def stakes(self, query: PlacementQuery, overlap_tokens: int) -> Stakes:
        """A query's numbers, where at most so much of its prompt lies on a rank."""
        costs, prompt_tokens, output_tokens = self._costs, query.prompt_tokens, query.expected_output_tokens
        held_tokens = min(overlap_tokens, max(0, prompt_tokens - 1))
        uncached_tokens = prompt_tokens - held_tokens
        turns = 1.0 if query.session is None else 1.0 + costs.future_turns
        if query.home is not None:
            turns *= costs.rebalance_ratio
        pair_s = costs.attention_s_per_token_pair * query.attention_ratio
        token_s = query.prefill_ratio * (costs.prefill_s_per_token + pair_s * prompt_tokens / 2)
        generating_s = output_tokens * query.decode_ratio * costs.decode_step_s
        settles = query.session is not None and prompt_tokens + output_tokens > 0
        turns_work_s = turns * query.request_work_s
        return Stakes(
            query.prefill_ratio * prefill_s(uncached_tokens, prompt_tokens, costs, query.attention_ratio),
            prompt_tokens,
            prompt_tokens + output_tokens,
            output_tokens,
            uncached_tokens + output_tokens,
            token_s,
            turns * token_s if settles else 0.0,
            query.decode_ratio,
            query.decode_ratio * query.joint_ratio,
            query.decode_ratio * query.joint_output_tokens / 2,
            query.return_rate_per_s * generating_s,
            turns_work_s,
            self._weights.settle * costs.crowding_ratio * turns_work_s,
            1.0 / query.mean_live_sessions if query.mean_live_sessions > 0 else 0.0,
        )


def glance_s(stakes: Stakes, sketch: Sketch) -> float:
    """Seconds that a query costs on a rank, its wait and any credit left out."""
    (work_s, prompt_tokens, needed_tokens, output_tokens, new_tokens, token_s, turns_token_s,
     decode, slowed, returns, returned, turns_work_s, crowding_s, sessions) = stakes  # fmt: skip
    (work, decode_s, decode_token_s, returns_s, returns_token_s, pace, room_tokens, room_s, remaining_tokens,
     waiting, free_tokens, evictable_tokens, evicted, live_tokens, lost_tokens, kept_tokens, lost, busy,
     live) = sketch  # fmt: skip
    cost_s = work_s * work + slowed * (decode_s + prompt_tokens * decode_token_s) + turns_work_s * busy
    if returned and (returns_s or returns_token_s):
        cost_s += returns * (1.0 - math.exp(-returned * pace)) * (returns_s + prompt_tokens * returns_token_s)
    if needed_tokens > room_tokens:
        cost_s += decode * room_s * (needed_tokens - room_tokens) * (remaining_tokens + waiting * output_tokens)
    if new_tokens > free_tokens:
        cost_s += token_s * evicted * min(new_tokens - free_tokens, evictable_tokens)
    if turns_token_s:
        after = live_tokens + needed_tokens
        more_tokens = after * math.exp(-kept_tokens / after) - lost_tokens
        if more_tokens > 0.0:
            cost_s += turns_token_s * lost * more_tokens
    excess = live * sessions - 1.0
    if excess > 0.0:
        cost_s += crowding_s * min(excess, 1.0)
    return cost_s
