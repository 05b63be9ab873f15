"""The `breaker:` of the configuration: when a rank that fails gets no requests, and for how long."""

from typing import Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from router.config_model import ConfigModel, Count, Seconds
from router.fleet.breaker import BreakerSettings

_DEFAULT = BreakerSettings()


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


#: Requests of one rank that are remembered at most.
_MAX_WINDOW = 1_024
