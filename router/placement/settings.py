"""Bounds and times of placement, and the counts of what came and changed nothing."""

from collections.abc import Callable

import msgspec

from router.fleet.breaker import BreakerSettings
from wire.ids import WorkerId


class RequestLimit(msgspec.Struct, frozen=True, kw_only=True):
    """Most requests that some workers may have at once."""

    workers: frozenset[WorkerId]
    max_requests: int


class PlacerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds and times of placement."""

    #: Pause after which a session's home is forgotten.
    home_idle_ttl_s: float = 3_600.0
    #: Homes kept; as many live sessions and pins.
    max_homes: int = 100_000
    #: Longest that a predicted residency is believed without a first token.
    residency_ttl_s: float = 30.0
    #: How long it is believed after the first token, for events on their way.
    residency_grace_s: float = 1.0
    #: Predictions kept.
    max_predictions: int = 1_024
    #: Decisions kept for explanation.
    max_decisions: int = 4_096
    #: Scale predicted seconds by measured ones.
    learn_pace: bool = True
    #: Price every rank by the terms in Python, and tell of all; the choice is the same.
    is_exhaustive: bool = False
    #: Clock by which a second policy is kept to its share of the time; None lets it judge every request.
    shadow_timer: Callable[[], float] | None = None
    #: What workers may have at once.
    limits: tuple[RequestLimit, ...] = ()
    #: Most requests that each rank may have at once; None without a limit.
    requests_per_rank: int | None = None
    #: When ranks that fail get no requests.
    breaker: BreakerSettings = BreakerSettings()
    #: Name of this router in the ledger.
    origin: str = "local"


class StimulusCounts(msgspec.Struct):
    """What came and changed nothing, or not what it was meant to."""

    #: Ends, tokens and progress of requests that are gone.
    late: int = 0
    #: First tokens of requests that had theirs.
    repeated: int = 0
    #: Load reports of ranks that are not of the fleet.
    unknown_targets: int = 0
    #: Choices of a policy that raised or chose a rank it was not given.
    failed_choices: int = 0
