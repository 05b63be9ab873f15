"""Policies as the command line names them.

`name`, `name:setting=value,setting=value` for a baseline's knobs, or a policy file, `policy.yaml`.
"""

from pathlib import Path

from router.config.policy import Coefficients, load_policy_config
from router.errors import ConfigError
from router.policy.base import Policy
from router.policy.catalogue import build_policies, build_policy

#: Suffixes that tell a file from a name.
POLICY_FILES = frozenset({".yaml", ".yml"})


def parse_policy(text: str, coefficients: Coefficients | None = None) -> Policy:
    """The policy.

    Raises:
        ConfigError: The name or a setting is unknown, a value is none of its kind, or the file cannot be taken.
    """
    if Path(text).suffix in POLICY_FILES:
        return _read_policy(Path(text))
    name, _, knobs = text.partition(":")
    settings = {}
    for knob in filter(None, knobs.split(",")):
        key, equals, value = knob.partition("=")
        if not equals:
            problem = "a setting looks like key=value"
            raise ConfigError(file_name="--policy", key_path=name, value=knob, problem=problem)
        settings[key.strip()] = value.strip()
    return build_policy(name, coefficients=coefficients, settings=settings)


def _read_policy(path: Path) -> Policy:
    """The policy that acts, of a file; one that only scores is left out."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = f"cannot be read: {error}"
        raise ConfigError(file_name=str(path), key_path="", value=None, problem=problem, shows_value=False) from error
    return build_policies(load_policy_config(text, str(path)))[0]
