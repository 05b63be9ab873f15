"""The `queue:` and `admission:` of the configuration: how much workers take at once, and who waits meanwhile."""

from typing import Annotated

from pydantic import Field

from router.admission import QueueSettings
from router.config.model import ConfigModel, Count, Seconds, Text

Tenant = Annotated[str, Field(strict=True, min_length=1, max_length=64)]
Share = Annotated[float, Field(strict=True, gt=0, le=1_000_000)]


class AdmissionLimit(ConfigModel):
    """Most requests that some workers may have at once; the next one is refused where no other worker is free."""

    #: Ids of the workers that share the limit; each must be one of `workers`. `queue.requests_per_rank` limits workers
    #: of any source.
    workers: Annotated[tuple[Text, ...], Field(min_length=1, max_length=10_000)]
    #: Requests placed there and not ended, over all of them.
    max_requests: Count


class QueueConfig(ConfigModel):
    """Requests that wait for a place instead of being refused."""

    #: Most requests that wait, over all models and tenants; 0 lets none wait: what finds no place is answered 503.
    max_waiting: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 0
    #: Longest that a request waits; then 503.
    max_wait_s: Seconds = 30.0
    #: Wait also while no worker takes requests at all: while the only one restarts, is out by its probes or its
    #: breaker, or is replaced. With `false` those are answered 503 at once, so that clients or a balancer can turn
    #: elsewhere.
    waits_out_outages: Annotated[bool, Field(strict=True)] = True
    #: Most requests that each rank has at once; without a limit here or in `admission` nobody waits for room.
    requests_per_rank: Count | None = None
    #: Shares of tenants in proportion to each other, in tokens of work while they wait for the same model; 1 where left
    #: out.
    weights: dict[Tenant, Share] = Field(default_factory=dict)
    #: Wait after which a request of a lower priority gets one place in eight.
    aging_s: Seconds = 5.0
    #: Tokens by which a request may be longer than another of its tenant, for each second that it waits longer, and
    #: still go first.
    handicap_tokens_per_s: Annotated[float, Field(strict=True, gt=0, le=1e12)] = 20_000.0

    def to_settings(self) -> QueueSettings:
        """For the queue."""
        return QueueSettings(
            max_waiting=self.max_waiting,
            max_wait_s=self.max_wait_s,
            waits_out_outages=self.waits_out_outages,
            aging_s=self.aging_s,
            handicap_tokens_per_s=self.handicap_tokens_per_s,
            weights=dict(self.weights),
        )
