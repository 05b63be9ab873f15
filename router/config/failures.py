"""The `probes:`, `breaker:` and `retries:` of the configuration: how failures are known, and what follows."""

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from router.config.model import ConfigModel, Count, Ratio, Seconds
from router.fleet.breaker import BreakerSettings

_DEFAULT = BreakerSettings()
#: Requests of one rank that are remembered at most.
_MAX_WINDOW = 1_024


class ProbesConfig(ConfigModel):
    """How health is asked for."""

    interval_s: Seconds = 2.0
    #: Failed probes in a row that make a worker unhealthy.
    unhealthy_after: Count = 3
    #: Good probes in a row that make it healthy again.
    healthy_after: Count = 1


class BreakerConfig(ConfigModel):
    """When a rank that fails gets no requests. Only failures of the engine count: what clients did wrong does not."""

    #: Failed requests in a row that open a rank's breaker; those of one conversation, or of one request that comes
    #: again and again, count once.
    failures: Count = _DEFAULT.failures
    #: Or so many failures among the last `window` requests, though others went well; not where all are of one tenant
    #: and others are served.
    window: Count = _DEFAULT.window
    window_failures: Count = _DEFAULT.window_failures
    #: Time for which it stays open; doubled each time until a request goes well.
    open_s: Seconds = _DEFAULT.open_s
    max_open_s: Seconds = _DEFAULT.max_open_s
    #: Requests at once that try the rank after that time.
    trials: Count = _DEFAULT.trials

    @model_validator(mode="after")
    def _can_open_and_close(self) -> Self:
        for key, value, limit_key, limit in (
            ("window_failures", self.window_failures, "window", self.window),
            ("open_s", self.open_s, "max_open_s", self.max_open_s),
        ):
            if value > limit:
                problem = f"more than {limit_key}, which is {limit:g}"
                raise PydanticCustomError("bad_breaker", "{problem}", {"key": key, "value": value, "problem": problem})
        if self.window > _MAX_WINDOW:
            problem = f"at most {_MAX_WINDOW}"
            raise PydanticCustomError(
                "bad_breaker", "{problem}", {"key": "window", "value": self.window, "problem": problem}
            )
        return self

    def to_settings(self) -> BreakerSettings:
        """For placement."""
        return BreakerSettings(**self.model_dump())


class RetriesConfig(ConfigModel):
    """When a request that no worker can have begun is sent to another one. One that may have begun never is."""

    #: Sendings of one request, the first included.
    max_attempts: Annotated[int, Field(strict=True, ge=1, le=16)] = 3
    #: Retries allowed for each request of late, so that a dying fleet is not flooded; ten more are always allowed.
    budget_ratio: Ratio = 0.2
    #: Pause before the first retry, doubled for each further one; a random part of it is waited.
    backoff_s: Annotated[float, Field(strict=True, ge=0, le=60)] = 0.025
    #: Longest pause.
    max_backoff_s: Annotated[float, Field(strict=True, ge=0, le=60)] = 0.5
