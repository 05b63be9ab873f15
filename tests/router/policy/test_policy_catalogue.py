"""A name in the configuration becomes a policy, or an error that names the valid ones."""

import pytest

from router.config.policy import Coefficients, PolicyName, PolicyWeights
from router.errors import ConfigError
from router.policy.catalogue import build_policy


@pytest.mark.parametrize("name", [name.value for name in PolicyName])
def test_every_name_builds_its_policy(name):
    assert build_policy(name).name == name


def test_weights_and_coefficients_are_handed_on():
    costs = Coefficients(prefill_s_per_token=0.5)
    assert build_policy("cache_affinity", PolicyWeights(wait=2.0), costs).coefficients == costs


@pytest.mark.parametrize(("name", "guess"), [("round-robin", "did you mean 'round_robin'? "), ("zzz", "")])
def test_an_unknown_name_is_answered_with_the_valid_ones(name, guess):
    with pytest.raises(ConfigError) as caught:
        build_policy(name)
    assert str(caught.value) == (
        f"policy catalogue: policy.name: '{name}': {guess}valid here: cache_affinity, round_robin, random, least_load, "
        "session_hash, power_of_two, prefix_threshold, overlap_linear, weighted_scores"
    )


def test_knobs_of_a_baseline_are_taken_as_text_and_unknown_ones_are_answered_with_the_valid_ones():
    policy = build_policy("overlap_linear", settings={"prefill_load_scale": "4"})
    assert policy._settings.prefill_load_scale == 4.0
    with pytest.raises(ConfigError, match=r"overlap_linear\.scale: .*valid here: prefill_load_scale"):
        build_policy("overlap_linear", settings={"scale": "4"})
    with pytest.raises(ConfigError, match="weighted_scores"):
        build_policy("weighted_scores", settings={"queue": "much"})
    for value in ("nan", "-1", "1e300"):
        with pytest.raises(ConfigError, match="must be a number from 0"):
            build_policy("weighted_scores", settings={"queue": value})
    with pytest.raises(ConfigError, match="round_robin has no knobs"):
        build_policy("round_robin", settings={"queue": "1"})
