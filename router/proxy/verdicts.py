"""What one exchange says of the rank that had it, for its breaker. Pure.

Whoever ends an exchange tells: `judge_status` of an answer that came through, `judge_error` of one that did not. A leg
of several is judged for itself.
Source: docs/faults.md D01, D02.
"""

import math

from router.errors import DovecoteError, UpstreamError
from router.fleet.breaker import Verdict
from router.placement.stimuli import Outcome
from router.proxy.headers import Headers, find_header

#: The worker is full, or asks for a pause.
FULL_STATUSES = frozenset({429, 503})
#: It does not have what was asked for, which is no failing of it.
_NEUTRAL_STATUSES = frozenset({501, 505})


def judge_status(status: int, outcome: Outcome = Outcome.DONE) -> Verdict:
    """Of an answer that came through.

    Args:
        status: Its status.
        outcome: How it ended: an error event within a stream of status 200 is a failure too.
    """
    if status in FULL_STATUSES:
        return Verdict.FULL
    if status >= 500:
        return Verdict.NEUTRAL if status in _NEUTRAL_STATUSES else Verdict.FAILED
    if status >= 400:
        return Verdict.NEUTRAL
    return Verdict.GOOD if outcome is Outcome.DONE else Verdict.FAILED


def judge_error(error: DovecoteError) -> Verdict:
    """Of an exchange that failed: only what the worker did counts."""
    return Verdict.FAILED if isinstance(error, UpstreamError) else Verdict.NEUTRAL


def read_retry_after_s(headers: Headers) -> float | None:
    """How long a worker wants to be left alone; None where it does not say in seconds."""
    said = find_header(headers, b"retry-after")
    try:
        seconds = float(said) if said is not None else math.nan
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
