"""Policies as the command line names them: `name`, or `name:setting=value,setting=value` for a baseline's knobs."""

from router.config import Coefficients
from router.errors import ConfigError
from router.policy.base import Policy
from router.policy.catalogue import build_policy


def parse_policy(text: str, coefficients: Coefficients | None = None) -> Policy:
    """The policy.

    Raises:
        ConfigError: The name or a setting is unknown, or a value is none of its kind.
    """
    name, _, knobs = text.partition(":")
    settings = {}
    for knob in filter(None, knobs.split(",")):
        key, equals, value = knob.partition("=")
        if not equals:
            problem = "a setting looks like key=value"
            raise ConfigError(file_name="--policy", key_path=name, value=knob, problem=problem)
        settings[key.strip()] = value.strip()
    return build_policy(name, coefficients=coefficients, settings=settings)
