"""The YAML text of a configuration as plain values: safe, bounded, and strict about keys that stand twice."""

from typing import Any

import yaml

from router.errors import ConfigError

#: A configuration longer than this is refused unread.
MAX_TEXT_CHARS = 4 << 20


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


class YamlError(ValueError):
    """A text is no YAML that can be taken.

    Args:
        problem: What is wrong, in one line.
        line_number: Where, counted from 1; None where the parser does not say.
    """

    def __init__(self, problem: str, line_number: int | None = None) -> None:
        super().__init__(problem if line_number is None else f"line {line_number}: {problem}")
        self.problem = problem
        self.line_number = line_number


def parse_yaml(text: str) -> object:
    """Values of a YAML text.

    Raises:
        YamlError: The parser trips over it.
    """
    try:
        return yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader underneath
    except yaml.MarkedYAMLError as error:
        line_number = None if error.problem_mark is None else error.problem_mark.line + 1
        raise YamlError(error.problem or "it cannot be parsed", line_number) from error
    except (yaml.YAMLError, LookupError, AttributeError, TypeError, ValueError, RecursionError) as error:
        # A value that does not fit its explicit tag escapes the parser as a plain Python error.
        problem = "nested too deep" if isinstance(error, RecursionError) else str(error).partition("\n")[0]
        raise YamlError(problem or "a value does not fit its tag") from error


def parse_config_text(text: str, file_name: str) -> object:
    """Values of a configuration's text; an empty one has none.

    Raises:
        ConfigError: It is too long or no YAML.
    """
    if len(text) > MAX_TEXT_CHARS:
        problem = f"longer than {MAX_TEXT_CHARS:,} characters"
        raise ConfigError(file_name=file_name, key_path="", value=f"{len(text):,} characters", problem=problem)
    try:
        data = parse_yaml(text)
    except YamlError as error:
        line = "" if error.line_number is None else f"line {error.line_number}"
        problem = f"no valid YAML: {error.problem}"
        raise ConfigError(file_name=file_name, key_path=line, value=None, problem=problem, shows_value=False) from error
    return {} if data is None else data
