"""The `retries:` of the configuration: which requests are sent to another worker, and how often."""

from typing import Annotated

from pydantic import Field

from router.config_model import ConfigModel, Ratio


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
