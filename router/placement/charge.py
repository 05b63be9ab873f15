"""From a decision to what it takes of the ranks chosen: a reservation of one rank, or of each of a pair."""

import msgspec

from router.placement.chooser import Selection
from router.placement.homes import mark_chain
from router.placement.legs import name_leg
from router.placement.question import Question
from router.placement.reservation import Reservation
from router.placement.stimuli import RequestArrived
from router.policy.base import Seat
from wire.ids import SessionId


class Charge(msgspec.Struct, frozen=True):
    """What a placement takes."""

    #: Of the rank that generates.
    entry: Reservation
    #: Of another one that prefills; None where there is none.
    leg: Reservation | None = None
    #: Prompt tokens that the first receives from the second into its cache.
    received_tokens: int = 0


def make_charge(
    arrival: RequestArrived,
    question: Question,
    selection: Selection,
    *,
    work_s: float,
    conversation: SessionId | None,
    origin: str,
) -> Charge:
    """What a selection takes.

    Args:
        arrival: The request.
        question: As asked.
        selection: The ranks chosen.
        work_s: Seconds of work for the one that prefills.
        conversation: By which its home is known; None without a session.
        origin: Router that places it.
    """
    seat = selection.seat if selection.prefill is None else selection.prefill
    query, cached_tokens = question.query, seat.usable_overlap_tokens
    entry = Reservation(
        request_id=arrival.request_id,
        target=seat.target,
        origin=origin,
        reserved_at_s=question.now_s,
        prompt_tokens=query.prompt_tokens,
        uncached_tokens=query.prompt_tokens - cached_tokens,
        prefill_s=work_s,
        remaining_prefill_s=work_s,
        expected_output_tokens=query.expected_output_tokens,
        max_output_tokens=arrival.max_output_tokens,
        session=conversation,
        assumed_cached_tokens=cached_tokens,
        starts_at_once=seat.open_requests == 0 and not seat.has_options and arrival.prompts == 1,
        served_beside=seat.served_requests,
        prefill_ratio=query.prefill_ratio * seat.prefill_ratio,
        mark=None if conversation is None else mark_chain(arrival.chain_hashes, arrival.chain_block_tokens),
    )
    if selection.prefill is None:
        return Charge(entry)
    return _split(entry, selection.seat, is_prefilled=arrival.prefilled_by is not None)


def _split(whole: Reservation, decode: Seat, *, is_prefilled: bool) -> Charge:
    """A pair's: the rank that generates computes nothing of the prompt, and receives what it does not hold of it."""
    prompt_tokens, replace = whole.prompt_tokens, msgspec.structs.replace
    entry = replace(
        whole, target=decode.target, uncached_tokens=0, prefill_s=0.0, remaining_prefill_s=0.0, starts_at_once=False
    )
    leg = replace(whole, request_id=name_leg(whole.request_id), expected_output_tokens=1, max_output_tokens=1)
    received_tokens = prompt_tokens - min(decode.overlap_tokens, prompt_tokens)
    return Charge(entry, None if is_prefilled else leg, received_tokens)
