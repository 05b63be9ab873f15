"""From the name in the configuration to the policy."""

from collections.abc import Callable

from router.config import Coefficients, PolicyName, PolicyWeights, describe_valid
from router.errors import ConfigError
from router.policy.base import Policy
from router.policy.baselines import LeastLoad, Random, RoundRobin, SessionHash
from router.policy.cache_affinity import CacheAffinity

BASELINES: dict[PolicyName, Callable[[Coefficients], Policy]] = {
    PolicyName.ROUND_ROBIN: RoundRobin,
    PolicyName.RANDOM: Random,
    PolicyName.LEAST_LOAD: LeastLoad,
    PolicyName.SESSION_HASH: SessionHash,
}


def build_policy(name: str, weights: PolicyWeights | None = None, coefficients: Coefficients | None = None) -> Policy:
    """A policy by name, with the weights and coefficients given or their defaults.

    Raises:
        ConfigError: the name is unknown; the valid ones are in the message.
    """
    costs = coefficients or Coefficients()
    try:
        known = PolicyName(name)
    except ValueError:
        problem = describe_valid(name, (valid.value for valid in PolicyName))
        raise ConfigError(file_name="policy catalogue", key_path="policy.name", value=name, problem=problem) from None
    if known is PolicyName.CACHE_AFFINITY:
        return CacheAffinity(weights or PolicyWeights(), costs)
    return BASELINES[known](costs)
