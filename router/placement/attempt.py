"""What is remembered of a running request beside its load: to compare measured times with predicted ones."""

import msgspec

from router.config import Coefficients
from router.fleet.pace import Pace
from router.placement.ledger import RankTotals
from router.policy.prefill import prefill_s
from wire.ids import SessionId, Target

#: Fewer uncached tokens than this are over too quickly to tell the speed of prefill from fixed costs.
MIN_MEASURED_TOKENS = 256
#: Fewer tokens of output than this tell nothing of the time between them.
MIN_MEASURED_OUTPUT = 16


class Attempt(msgspec.Struct, kw_only=True):
    """One running request."""

    target: Target
    session: SessionId | None
    decided_at_s: float
    prompt_tokens: int
    #: Tokens assumed to be cached when the load was charged.
    assumed_cached_tokens: int
    #: Nothing of this router's was ahead of it: its time to first token is its prefill.
    starts_at_once: bool
    first_token_at_s: float | None = None
    #: Seconds between tokens predicted for it when it began to generate, without the measured ratio.
    predicted_step_s: float = 0.0


class Paces(msgspec.Struct):
    """The two speeds of the fleet that are learned."""

    prefill: Pace
    decode: Pace


def record_prefill(
    paces: Paces, attempt: Attempt, *, cached_tokens: int | None, ttft_s: float, costs: Coefficients
) -> None:
    """The first token came: learns the speed of prefill where the request had the rank to itself."""
    cached = attempt.assumed_cached_tokens if cached_tokens is None else cached_tokens
    uncached_tokens = attempt.prompt_tokens - cached
    if attempt.starts_at_once and uncached_tokens >= MIN_MEASURED_TOKENS:
        predicted_s = prefill_s(uncached_tokens, attempt.prompt_tokens, costs)
        paces.prefill.record(predicted_s=predicted_s, measured_s=ttft_s)


def predict_step_s(totals: RankTotals, costs: Coefficients) -> float:
    """Seconds between two tokens on a rank that generates for the requests summed in `totals`."""
    return (
        costs.decode_step_s
        + costs.decode_s_per_request * totals.decoding_requests
        + costs.decode_s_per_context_token * totals.context_tokens
    )


def record_decode(paces: Paces, attempt: Attempt, *, output_tokens: int, now_s: float) -> None:
    """The answer is complete: learns the time between tokens."""
    if attempt.first_token_at_s is not None and output_tokens >= MIN_MEASURED_OUTPUT:
        measured_s = (now_s - attempt.first_token_at_s) / (output_tokens - 1)
        paces.decode.record(predicted_s=attempt.predicted_step_s, measured_s=measured_s)
