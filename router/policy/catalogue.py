"""From the name in the configuration to the policy."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from router.config.model import describe_valid
from router.config.policy import Coefficients, PolicyConfig, PolicyName, PolicyWeights
from router.errors import ConfigError
from router.policy.base import Policy
from router.policy.baselines import LeastLoad, Random, RoundRobin, SessionHash
from router.policy.cache_affinity import CacheAffinity
from router.policy.overlap_linear import OverlapLinear, OverlapLinearSettings
from router.policy.power_of_two import PowerOfTwo
from router.policy.prefix_threshold import PrefixThreshold, PrefixThresholdSettings
from router.policy.weighted_scores import WeightedScores, WeightedScoresSettings

#: Largest value of a baseline's knob.
MAX_KNOB = 1e9

BASELINES: dict[PolicyName, Callable[[Coefficients], Policy]] = {
    PolicyName.ROUND_ROBIN: RoundRobin,
    PolicyName.RANDOM: Random,
    PolicyName.LEAST_LOAD: LeastLoad,
    PolicyName.POWER_OF_TWO: PowerOfTwo,
    PolicyName.SESSION_HASH: SessionHash,
}
#: Baselines with knobs of their own, and the struct of these.
TUNED_BASELINES: dict[PolicyName, tuple[Callable[[Coefficients, Any], Policy], type[msgspec.Struct]]] = {
    PolicyName.PREFIX_THRESHOLD: (PrefixThreshold, PrefixThresholdSettings),
    PolicyName.OVERLAP_LINEAR: (OverlapLinear, OverlapLinearSettings),
    PolicyName.WEIGHTED_SCORES: (WeightedScores, WeightedScoresSettings),
}


def build_policy(
    name: str,
    weights: PolicyWeights | None = None,
    coefficients: Coefficients | None = None,
    settings: Mapping[str, object] | None = None,
) -> Policy:
    """A policy by name, with the weights, coefficients and knobs given or their defaults.

    Raises:
        ConfigError: the name or a knob is unknown, or a knob's value is none; the valid ones are in the message.
    """
    costs = coefficients or Coefficients()
    try:
        known = PolicyName(name)
    except ValueError:
        problem = describe_valid(name, (valid.value for valid in PolicyName))
        raise ConfigError(file_name="policy catalogue", key_path="policy.name", value=name, problem=problem) from None
    if known in TUNED_BASELINES:
        make, form = TUNED_BASELINES[known]
        return make(costs, read_settings(form, known, settings or {}))
    if settings:
        problem = f"{known.value} has no knobs of its own"
        raise ConfigError(
            file_name="policy catalogue", key_path=known.value, value=next(iter(settings)), problem=problem
        )
    if known is PolicyName.CACHE_AFFINITY:
        return CacheAffinity(weights or PolicyWeights(), costs)
    return BASELINES[known](costs)


def read_settings(form: type[msgspec.Struct], name: PolicyName, settings: Mapping[str, object]) -> msgspec.Struct:
    """Knobs of a baseline as its struct; numbers may be text.

    Raises:
        ConfigError: a knob is unknown, or its value is not of its kind, negative, or no number.
    """
    for key in settings:
        if key not in form.__struct_fields__:
            problem = f"unknown; {describe_valid(key, form.__struct_fields__)}"
            raise ConfigError(file_name="policy catalogue", key_path=f"{name.value}.{key}", value=key, problem=problem)
    try:
        known = msgspec.convert(dict(settings), form, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(
            file_name="policy catalogue", key_path=name.value, value=dict(settings), problem=str(error)
        ) from None
    for key in form.__struct_fields__:
        value = getattr(known, key)
        if not 0 <= value <= MAX_KNOB:
            problem = f"must be a number from 0 to {MAX_KNOB:,.0f}"
            raise ConfigError(
                file_name="policy catalogue", key_path=f"{name.value}.{key}", value=value, problem=problem
            )
    return known


def build_policies(config: PolicyConfig) -> tuple[Policy, Policy | None]:
    """The policy that acts and the one that only scores, None where there is none.

    Raises:
        ConfigError: A knob of a policy is unknown, or its value is none.
    """
    acting = build_policy(config.name, config.weights, config.coefficients, config.settings)
    shadow = config.shadow
    if shadow is None:
        return acting, None
    return acting, build_policy(shadow.name, shadow.weights, shadow.coefficients, shadow.settings)
