"""YAML of a configuration file as plain values: safe, and strict about keys that stand twice."""

from typing import Any

import yaml


class _UniqueKeyLoader(yaml.SafeLoader):
    """Safe YAML in which a key may stand only once in a mapping."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuses a repeated key instead of taking the last."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    problem = f"key {key.value!r} stands twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def parse_yaml(text: str) -> object:
    """Values of a YAML text; ValueError for whatever the parser trips over."""
    try:
        return yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader underneath
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        raise ValueError(f"{line}{error.problem}") from error
    except (yaml.YAMLError, LookupError, AttributeError, TypeError, RecursionError) as error:
        # A value that does not fit its explicit tag escapes the parser as a plain Python error.
        raise ValueError(str(error)) from error
