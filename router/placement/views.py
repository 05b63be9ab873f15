"""Puts together what a policy sees of a rank: facts, reports, the ledger's sums and the overlaps of one prompt."""

import msgspec

from router.config import Coefficients
from router.fleet.load import ReportedLoad
from router.fleet.recent import RecentShare
from router.fleet.tiers import ReuseOption
from router.fleet.view import Rank
from router.placement.ledger import RankTotals
from router.policy.base import RankView
from router.policy.prefill import prefill_s

#: A report older than this says nothing of the present.
REPORT_TTL_S = 30.0


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
    most = max(0, prompt_tokens - 1)
    confirmed = min(max(confirmed_tokens, 0), most)
    predicted = min(max(predicted_tokens, 0), most)
    if predicted <= confirmed:
        return Overlap(confirmed, 0)
    return Overlap(confirmed, confirmed + int((predicted - confirmed) * credit_ratio))


class ForeignLoad(msgspec.Struct, frozen=True):
    """What others have on a rank, as far as known."""

    wait_s: float = 0.0
    waiting_requests: int = 0
    running_requests: int = 0


_NO_FOREIGN = ForeignLoad()


def find_foreign_load(
    report: ReportedLoad | None, *, now_s: float, costs: Coefficients, prefill_ratio: float
) -> ForeignLoad:
    """Work of others: what the report showed above this router's own, less what was done since."""
    if report is None:
        return _NO_FOREIGN
    age_s = report.age_s(now_s)
    requests = report.foreign_requests()
    tokens = report.foreign_waiting_tokens(costs.foreign_request_tokens)
    if age_s > REPORT_TTL_S or (requests == 0 and tokens == 0):
        return _NO_FOREIGN
    reported_s = tokens * prefill_ratio * costs.prefill_s_per_token
    waiting = min(report.waiting_requests, requests)
    return ForeignLoad(max(0.0, reported_s - age_s), waiting, requests - waiting)


def build_view(
    rank: Rank,
    *,
    overlap: Overlap,
    own: RankTotals,
    foreign: ForeignLoad,
    expected_output_tokens: int,
    foreign_context_tokens: int,
    recent: RecentShare,
    options: tuple[ReuseOption, ...] = (),
) -> RankView:
    """A rank as a policy sees it; of requests that others placed, output and context are taken as given here."""
    return RankView(
        target=rank.facts.target,
        overlap_tokens=overlap.confirmed_tokens,
        predicted_overlap_tokens=overlap.predicted_tokens,
        own_wait_s=own.waiting_s,
        foreign_wait_s=foreign.wait_s,
        open_requests=own.open_requests + foreign.waiting_requests + foreign.running_requests,
        decoding_requests=own.decoding_requests + foreign.running_requests,
        remaining_output_tokens=own.remaining_output_tokens + foreign.running_requests * expected_output_tokens,
        context_tokens=own.context_tokens + foreign.running_requests * foreign_context_tokens,
        capacity_tokens=rank.find_capacity_tokens(),
        resident_tokens=rank.find_resident_tokens(),
        fill_tokens_per_s=recent.fill_tokens_per_s,
        recent_work_s=recent.work_s,
        busy_ratio=recent.busy_ratio,
        request_work_s=recent.request_work_s,
        options=options,
        links=rank.facts.links,
    )


def charge_s(prompt_tokens: int, cached_tokens: int, costs: Coefficients, prefill_ratio: float) -> float:
    """Seconds of prefill that a placement adds to its rank."""
    return prefill_ratio * prefill_s(prompt_tokens - cached_tokens, prompt_tokens, costs)
