"""Puts together what a policy sees of a rank: facts, reports, the ledger's sums and the overlaps of one prompt.

What does not change from request to request is rounded (`coarse`), so that ranks which are alike cost the same: noise
decides between none of them.
"""

import math

import msgspec

from router.config.policy import Coefficients
from router.fleet.load import ReportedLoad
from router.fleet.pace import WorkerRatios
from router.fleet.tiers import ReuseOption
from router.fleet.view import Rank
from router.placement.ledger import RankTotals
from router.placement.live import LiveShare
from router.policy.base import RankView

#: A report older than this says nothing of the present.
REPORT_TTL_S = 30.0
#: Output assumed for a request that others placed.
FOREIGN_OUTPUT_TOKENS = 256
#: Of it, tokens that fall beside an answer that begins now.
FOREIGN_JOINT_TOKENS = 128
#: Of a rank that has long been given nothing; beyond, the figures of its memory are too small to divide by.
LONGEST_AGE_S = 2.0**40
#: Steps of the busy ratio, and of the ratio of evicted tokens that are asked for again.
RATIO_STEPS = 32


class Overlap(msgspec.Struct, frozen=True):
    """Tokens of one prompt's head on one rank."""

    #: Resident, as events confirmed.
    confirmed_tokens: int
    #: Expected from requests being prefilled there, discounted.
    predicted_tokens: int


NO_OVERLAP = Overlap(0, 0)


def bound_overlap(*, confirmed_tokens: int, predicted_tokens: int, prompt_tokens: int, credit_ratio: float) -> Overlap:
    """Overlap within the prompt, whose last token is always computed; only the unconfirmed excess is discounted."""
    if confirmed_tokens <= 0 and predicted_tokens <= 0:
        return NO_OVERLAP
    most = prompt_tokens - 1 if prompt_tokens > 1 else 0
    confirmed = most if confirmed_tokens > most else max(0, confirmed_tokens)
    if predicted_tokens <= confirmed or confirmed == most:
        return Overlap(confirmed, 0)
    predicted = min(predicted_tokens, most)
    return Overlap(confirmed, confirmed + int((predicted - confirmed) * credit_ratio))


class ForeignLoad(msgspec.Struct, frozen=True):
    """What others have on a rank, as far as known."""

    wait_s: float = 0.0
    waiting_requests: int = 0
    running_requests: int = 0


_NO_FOREIGN = ForeignLoad()


def find_foreign_load(report: ReportedLoad | None, *, now_s: float, request_tokens: int) -> ForeignLoad:
    """Work of others: what the report showed above this router's own, less what was done since."""
    if report is None or not report.has_foreign:
        return _NO_FOREIGN
    age_s = report.age_s(now_s)
    requests = report.foreign_requests()
    tokens = report.foreign_waiting_tokens(request_tokens)
    if age_s > REPORT_TTL_S or (requests == 0 and tokens == 0):
        return _NO_FOREIGN
    waiting = min(report.waiting_requests, requests)
    return ForeignLoad(max(0.0, tokens * report.s_per_token - age_s), waiting, requests - waiting)


def build_view(
    rank: Rank, *, own: RankTotals, foreign: ForeignLoad, live: LiveShare, ratios: WorkerRatios, costs: Coefficients,
    now_s: float,
) -> RankView:  # fmt: skip
    """A rank as a policy sees it, whatever is asked: nothing of the prompt there, and no wait.

    Of requests that others placed, output and context are taken as given. `router/policy/pricing/standing.cpp` repeats
    it, to the last bit, for tables of ranks.
    """
    capacity_tokens = rank.find_capacity_tokens()
    share = rank.recent.share(now_s)
    age_s = None
    if capacity_tokens and share.fill_tokens_per_s > 0:
        age_s = min(LONGEST_AGE_S, capacity_tokens / share.fill_tokens_per_s)
    open_requests, foreign_requests = own.open_requests, foreign.waiting_requests + foreign.running_requests
    foreign_joint_tokens = foreign_requests * FOREIGN_JOINT_TOKENS
    return RankView(
        target=rank.facts.target,
        open_requests=open_requests + foreign_requests,
        served_requests=open_requests + foreign.running_requests,
        decoding_requests=own.decoding_requests + foreign.running_requests,
        remaining_output_tokens=own.remaining_output_tokens + foreign.running_requests * FOREIGN_OUTPUT_TOKENS,
        context_tokens=own.context_tokens + foreign.running_requests * costs.foreign_request_tokens,
        joint_output_tokens=own.joint_output_tokens + foreign_joint_tokens,
        joint_context_tokens=own.joint_context_tokens + foreign_joint_tokens * costs.foreign_request_tokens,
        open_tokens=own.open_tokens + foreign_requests * costs.foreign_request_tokens,
        capacity_tokens=capacity_tokens,
        resident_tokens=coarse(rank.find_resident_tokens()),
        live_tokens=coarse(live.tokens),
        live_sessions=live.sessions,
        paused_sessions=live.paused.count,
        paused_tokens=coarse(live.paused.tokens),
        cache_age_s=None if age_s is None else math.exp2(round(math.log2(age_s))),
        eviction_reuse_ratio=0.0 if age_s is None else _find_reuse_ratio(rank, age_s, costs),
        busy_ratio=round(share.busy_ratio * RATIO_STEPS) / RATIO_STEPS,
        prefill_ratio=ratios.prefill,
        decode_ratio=ratios.decode,
        context_ratio=ratios.context,
        links=rank.facts.links,
    )


def _find_reuse_ratio(rank: Rank, age_s: float, costs: Coefficients) -> float:
    ratio = rank.ages.find_reuse_ratio(age_s, prior_ratio=costs.reuse_probability, prior_decay_s=costs.reuse_decay_s)
    return round(ratio * RATIO_STEPS) / RATIO_STEPS


def coarse(count: int) -> int:
    """A count with its five highest bits: within 3% of the count."""
    shift = count.bit_length() - 5
    return count if shift <= 0 else (count >> shift) << shift


def complete(
    standing: RankView, overlap: Overlap, *, own_wait_s: float, foreign_wait_s: float, options: tuple[ReuseOption, ...]
) -> RankView:
    """The rank with what lies there of one prompt, and the wait at one moment."""
    if overlap is NO_OVERLAP and own_wait_s == 0.0 and foreign_wait_s == 0.0 and not options:
        return standing
    return msgspec.structs.replace(
        standing,
        overlap_tokens=overlap.confirmed_tokens,
        predicted_overlap_tokens=overlap.predicted_tokens,
        own_wait_s=own_wait_s,
        foreign_wait_s=foreign_wait_s,
        options=options,
    )
