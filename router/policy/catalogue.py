"""From the name in the configuration to the policy."""

import difflib

from router.config import Coefficients, PolicyName, PolicyWeights
from router.errors import ConfigError
from router.policy.base import Policy
from router.policy.baselines import LeastLoad, Random, RoundRobin, SessionHash
from router.policy.cache_affinity import CacheAffinity


def build_policy(name: str, weights: PolicyWeights | None = None, coefficients: Coefficients | None = None) -> Policy:
    """A policy by name, with the weights and coefficients given or their defaults.

    Raises:
        ConfigError: the name is unknown; the valid ones are in the message.
    """
    costs = coefficients or Coefficients()
    try:
        known = PolicyName(name)
    except ValueError:
        raise _describe_unknown(name) from None
    match known:
        case PolicyName.CACHE_AFFINITY:
            return CacheAffinity(weights or PolicyWeights(), costs)
        case PolicyName.ROUND_ROBIN:
            return RoundRobin(costs)
        case PolicyName.RANDOM:
            return Random(costs)
        case PolicyName.LEAST_LOAD:
            return LeastLoad(costs)
        case PolicyName.SESSION_HASH:
            return SessionHash(costs)


def _describe_unknown(name: str) -> ConfigError:
    names = [known.value for known in PolicyName]
    near = difflib.get_close_matches(name, names, n=1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return ConfigError(
        file_name="policy catalogue", key_path="policy.name", value=name, problem=f"{guess}valid: {', '.join(names)}"
    )
