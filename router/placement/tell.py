"""From what was chosen to the decision that can be asked for again."""

from router.placement.chooser import Forecast, Selection
from router.placement.decision import Decision
from router.placement.eligible import Eligible
from router.placement.explain import Telling
from router.placement.homes import Home
from router.placement.instructions import REFUSALS, RejectReason
from router.placement.question import Question, bound_tokens
from router.placement.stimuli import RequestArrived
from router.placement.views import bound_overlap
from router.policy.base import Policy


def tell_choice(
    policy: Policy,
    eligible: Eligible,
    question: Question,
    selection: Selection,
    *,
    forecast: Forecast,
    home: Home | None,
) -> Decision:
    """The decision for a request that was placed; `home` is its session's, whether it counts or not."""
    arrival = eligible.arrival
    query, choice = question.query, selection.choice
    reused = selection.seat if selection.prefill is None else selection.prefill
    cached_tokens, eligible_count = reused.overlap_tokens, question.eligible_count
    if not cached_tokens and eligible.withheld:
        cached_tokens = bound_overlap(
            confirmed_tokens=eligible.withheld.get(reused.target, 0),
            predicted_tokens=0,
            prompt_tokens=query.prompt_tokens,
            credit_ratio=0.0,
        ).confirmed_tokens
    unused_home = home.target if home is not None and query.home is None else None
    telling = Telling(
        query=query,
        choice=choice,
        eligible_count=eligible_count,
        unused_home=unused_home,
        can_go_home=unused_home is not None and question.allows(unused_home),
        is_failing=unused_home in eligible.doubted,
        is_pinned=arrival.pin is not None,
    )
    return Decision(
        request_id=arrival.request_id,
        decided_at_s=arrival.now_s,
        policy=policy.name,
        model=arrival.model,
        session=arrival.session,
        prompt_tokens=query.prompt_tokens,
        target=choice.target,
        prefill=None if selection.prefill is None else reused.target,
        predicted_cached_tokens=cached_tokens,
        hoped_cached_tokens=reused.usable_overlap_tokens - reused.overlap_tokens,
        predicted_ttft_s=forecast.ttft_s,
        eligible_count=eligible_count,
        telling=telling,
        credit="approximate" if reused.target in arrival.approximate else arrival.credit,
        costs=choice.costs,
    )


def tell_refusal(policy: Policy, arrival: RequestArrived, reason: RejectReason) -> Decision:
    """The decision for a request that goes nowhere."""
    return Decision(
        request_id=arrival.request_id,
        decided_at_s=arrival.now_s,
        policy=policy.name,
        model=arrival.model,
        session=arrival.session,
        prompt_tokens=bound_tokens(arrival.prompt_tokens),
        target=None,
        predicted_cached_tokens=0,
        telling=REFUSALS[reason],
    )
