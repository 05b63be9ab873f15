"""How requests are placed: the `policy:` of the fleet's configuration, and the whole of a `policy.yaml`.

What each key does stands beside it and in `docs/config.md`, which is made from here. A policy file is taken whole or
refused whole.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from router.config.model import ConfigModel, Ratio, Seconds, Text, Weight, describe_refusal, describe_valid
from router.config.text import parse_config_text
from router.errors import ConfigError

Rate = Annotated[float, Field(strict=True, gt=0, le=1e15)]


class PolicyName(StrEnum):
    """Policies that can be configured."""

    CACHE_AFFINITY = "cache_affinity"
    ROUND_ROBIN = "round_robin"
    RANDOM = "random"
    LEAST_LOAD = "least_load"
    SESSION_HASH = "session_hash"
    POWER_OF_TWO = "power_of_two"
    PREFIX_THRESHOLD = "prefix_threshold"
    OVERLAP_LINEAR = "overlap_linear"
    WEIGHTED_SCORES = "weighted_scores"


class PolicyWeights(ConfigModel):
    """Factor on each term of the cost; all terms are seconds, so 1 is neutral and 0 switches a term off."""

    #: Predicted seconds of work ahead of the request on a rank, of this router and of others.
    wait: Weight = 1.0
    #: Seconds until running requests leave the KV cache room for this one. Above 1: who comes later waits behind it.
    admission: Weight = 4.0
    #: Seconds to prefill what the rank does not hold, or to fetch it from other tiers where that is quicker.
    reuse: Weight = 1.0
    #: Seconds by which that prefill holds up each request served there. 1 where an engine gives no tokens meanwhile.
    stall: Weight = 1.5
    #: Seconds to send a prefill's cache to the rank that generates. Only for pairs of ranks.
    transfer: Weight = 1.0
    #: Seconds by which those generating slow each other. Below 1: moving away prefills anew, which slows all.
    decode: Weight = 0.8
    #: The same for sessions that pause there and may be back before the answer is complete.
    returns: Weight = 0.3
    #: Seconds of prefill that later requests repeat because this one pushes their tokens out.
    balance: Weight = 3.0
    #: Seconds that the session's further turns lose on a rank whose live sessions fill it or keep it busy.
    settle: Weight = 1.0
    #: Credit, in seconds, for one more copy of a head that many sessions share. Larger copies sooner.
    spread: Weight = 1.0


class Coefficients(ConfigModel):
    """What work costs on one rank. The defaults are of the order of a mid-size model on one data-centre GPU.

    Measured times of streams and of whole answers scale them while the router runs, so that their proportions matter
    more than their level.
    """

    #: Seconds that a prefill takes however little it computes: a pass over the weights.
    prefill_step_s: Annotated[float, Field(strict=True, ge=0, le=60)] = 0.015
    #: Seconds of prefill for one uncached token, whatever stands before it.
    prefill_s_per_token: Annotated[float, Field(strict=True, ge=0, le=10)] = 2e-5
    #: Seconds of prefill for one uncached token and one token it attends to.
    attention_s_per_token_pair: Annotated[float, Field(strict=True, ge=0, le=1)] = 6.5e-10
    #: Seconds between two tokens of a request alone on a rank.
    decode_step_s: Annotated[float, Field(strict=True, ge=0, le=60)] = 6e-3
    #: Seconds that each further generating request adds to that.
    decode_s_per_request: Annotated[float, Field(strict=True, ge=0, le=60)] = 1e-4
    #: Seconds added to that when the tokens attended to fill the whole KV cache, and in proportion below: the time to
    #: read all memory that the cache has, which is much the same on any GPU for any model.
    decode_s_per_full_cache: Annotated[float, Field(strict=True, ge=0, le=60)] = 0.04
    #: Seconds that each token attended to adds instead, where the size of the cache is unknown, or the time for a full
    #: one is set to 0.
    decode_s_per_context_token: Annotated[float, Field(strict=True, ge=0, le=1)] = 1e-8
    #: Prompt tokens assumed for a request that others queued, where the engine reports only how many.
    foreign_request_tokens: Annotated[int, Field(strict=True, ge=0, le=10_000_000)] = 2_000
    #: Probability that a token pushed out at once would have been asked for again, before ages are measured.
    reuse_probability: Ratio = 0.5
    #: Age in seconds at which that probability has fallen to 1/e of it, before ages are measured.
    reuse_decay_s: Seconds = 600.0
    #: Further requests expected of a session that settles on a rank.
    future_turns: Annotated[float, Field(strict=True, ge=0, le=100_000)] = 10.0
    #: Share of `settle` that counts for a session that has a home already, so that it may leave a crowded one.
    rebalance_ratio: Ratio = 0.0
    #: Share of a request's work that each further turn is taken to wait on a rank with twice the average of live
    #: sessions.
    crowding_ratio: Annotated[float, Field(strict=True, ge=0, le=100)] = 0.5
    #: How well a cache keeps its live sessions: a session's tokens outlive a pause with the probability
    #: `1 - exp(-x * capacity / live tokens)`. 2 fits an LRU under agent sessions.
    working_set_factor: Annotated[float, Field(strict=True, gt=0, le=1_000)] = 2.0
    #: Pause in seconds after which a session no longer counts among the live ones of its rank.
    live_idle_s: Seconds = 180.0
    #: Copies of a hot head, on as many ranks, beyond which one more earns nothing.
    max_copies: Annotated[int, Field(strict=True, ge=1, le=100_000)] = 4
    #: Bytes of KV cache for one token, to reckon a transfer.
    kv_bytes_per_token: Annotated[int, Field(strict=True, ge=1, le=1 << 30)] = 131_072
    #: Bytes a second from a prefill rank to a decode rank where the pair's link says nothing.
    link_bytes_per_s: Rate = 4.0e10
    #: Factor on the time of a transfer between workers whose `zone` differs.
    cross_zone_factor: Annotated[float, Field(strict=True, ge=1, le=1_000)] = 4.0
    #: Share of a predicted (not yet confirmed) overlap that is believed, 0..1.
    predicted_credit_ratio: Ratio = 0.9


Knobs = dict[Annotated[str, Field(max_length=100)], bool | int | float]


class ShadowConfig(ConfigModel):
    """A second policy that scores live traffic without acting."""

    #: Way of choosing.
    name: PolicyName = PolicyName.CACHE_AFFINITY
    weights: PolicyWeights = PolicyWeights()
    coefficients: Coefficients = Coefficients()
    #: Knobs of its own, for the policies that have some.
    settings: Knobs = Field(default_factory=dict)

    @field_validator("name", mode="before")
    @classmethod
    def _known_name(cls, value: object) -> object:
        return check_policy_name(value)


class PolicyConfig(ConfigModel):
    """How requests are placed."""

    #: Way of choosing; all but `cache_affinity` are there to compare with.
    name: PolicyName = PolicyName.CACHE_AFFINITY
    weights: PolicyWeights = PolicyWeights()
    coefficients: Coefficients = Coefficients()
    #: Knobs of its own, for the policies that have some: `prefix_threshold`, `overlap_linear`, `weighted_scores`.
    settings: Knobs = Field(default_factory=dict)
    #: A second policy that scores the same requests and changes nothing; none by default. Costs time at each decision.
    shadow: ShadowConfig | None = None

    @field_validator("name", mode="before")
    @classmethod
    def _known_name(cls, value: object) -> object:
        return check_policy_name(value)


class PolicySection(PolicyConfig):
    """`policy:` of the fleet's configuration: the policy itself, or the file that it is read from."""

    #: A `policy.yaml`, read again whenever it changes; a relative path starts at the folder of the fleet's file. The
    #: other keys of this section then stay away.
    file: Text | None = None

    @model_validator(mode="after")
    def _file_stands_alone(self) -> Self:
        others = sorted(self.model_fields_set - {"file"})
        if self.file is not None and others:
            problem = f"the policy comes from {self.file}; leave out one of the two keys"
            told = {"key": others[0], "value": getattr(self, others[0]), "problem": problem}
            raise PydanticCustomError("two_policies", "{problem}", told)
        return self


def check_policy_name(value: object) -> object:
    """A known name; any other is answered with the valid ones."""
    names = [name.value for name in PolicyName]
    if value in names:
        return value
    raise PydanticCustomError("unknown_policy", "{problem}", {"problem": describe_valid(value, names)})


def load_policy_config(text: str, file_name: str) -> PolicyConfig:
    """Parses a whole `policy.yaml` or refuses it whole.

    Raises:
        ConfigError: names the file, key path, value and what would be valid.
    """
    data = parse_config_text(text, file_name)
    if not isinstance(data, Mapping):
        problem = "the top must be a mapping with keys such as name, weights, coefficients"
        raise ConfigError(file_name=file_name, key_path="", value=data, problem=problem)
    try:
        return PolicyConfig.model_validate(data)
    except ValidationError as error:
        path, value, problem, shows_value = describe_refusal(error.errors(include_url=False)[0])
        raise ConfigError(
            file_name=file_name, key_path=".".join(path), value=value, problem=problem, shows_value=shows_value
        ) from None
