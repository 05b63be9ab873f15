"""Where a configuration's values come from: file, then environment, then command line; and whose a wrong one is.

Lays one source over the other as plain values. A mistake is told of the source that made it, by the name under which
it can be corrected there: a key of the file, a variable, a flag's key.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from router.config.text import YamlError, parse_yaml
from router.errors import ConfigError
from router.shown_value import may_be_secret

#: Environment variables that start so override the file.
ENVIRONMENT_PREFIX = "DOVECOTE__"
#: Named in errors about flags.
COMMAND_LINE = "command line"


def apply_environment(data: Mapping[Any, Any], environment: Mapping[str, str]) -> dict[Any, Any]:
    """Values with `DOVECOTE__SECTION__KEY` variables laid over them; the arguments stay as they are.

    Parts of a name are lower-cased keys, or places in a list; a value is read as YAML, so `8080` is a number.
    """
    merged: Any = dict(data)
    for name in sorted(_find_variables(environment)):
        merged = _set_path(merged, _to_path(name), _parse_value(name, environment[name]), name)
    return merged  # type: ignore[no-any-return]  # the top of `data` is a mapping, and so stays


def apply_flags(data: Mapping[Any, Any], flags: Mapping[str, Any]) -> dict[Any, Any]:
    """Values with those of the command line laid over them: a section key by key, all else whole."""
    merged = dict(data)
    for section, value in flags.items():
        base = merged.get(section)
        merged[section] = {**base, **value} if isinstance(value, Mapping) and isinstance(base, Mapping) else value
    return merged


def find_origin(
    path: list[str], file_name: str, environment: Mapping[str, str], flags: Mapping[str, Any]
) -> tuple[str, str]:
    """Which source a value is of, and its name there."""
    if _gives(flags, path):
        return COMMAND_LINE, ".".join(path)
    variables = [name for name in _find_variables(environment) if _to_path(name) == path[: len(_to_path(name))]]
    return ("environment", max(variables, key=len)) if variables else (file_name, ".".join(path))


def _find_variables(environment: Iterable[str]) -> list[str]:
    return [name for name in environment if name.startswith(ENVIRONMENT_PREFIX)]


def _to_path(name: str) -> list[str]:
    return name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")


def _gives(flags: Mapping[str, Any], path: list[str]) -> bool:
    """Whether the value at a path is one that the command line gave."""
    node: Any = flags
    for part in path:
        if not isinstance(node, Mapping):
            return True
        if part not in node:
            return False
        node = node[part]
    return not isinstance(node, Mapping)


def _parse_value(name: str, text: str) -> object:
    try:
        return parse_yaml(text)
    except YamlError as error:
        problem = f"no valid YAML: {error.problem}"
        raise ConfigError(
            file_name="environment", key_path=name, value=text, problem=problem, shows_value=not may_be_secret(name)
        ) from error


def _set_path(node: object, path: list[str], value: object, name: str) -> object:
    """A copy of `node` with the value at the path."""
    if not path:
        return value
    key, rest = path[0], path[1:]
    if isinstance(node, Mapping):
        return {**node, key: _set_path(node.get(key, {}), rest, value, name)}
    if isinstance(node, list) and key.isdecimal() and int(key) < len(node):
        place = int(key)
        return [*node[:place], _set_path(node[place], rest, value, name), *node[place + 1 :]]
    problem = f"there is nothing at {key!r} to override"
    raise ConfigError(
        file_name="environment", key_path=name, value=value, problem=problem, shows_value=not may_be_secret(name)
    )
