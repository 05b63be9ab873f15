"""What the keys of the configuration mean, read from where they are declared: for `docs/config.md` and for editors.

    python -m router.config.docs > docs/config.md

A key's words are the `#:` lines above it; a section's words are its class's docstring.
"""

import inspect
import sys
import textwrap
from collections.abc import Iterator
from enum import StrEnum
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic_core import PydanticUndefined

from router.config.fleet import FleetConfig
from router.config.policy import PolicyConfig

_HEAD = """# Configuration

Made from `router/config/` by `python -m router.config.docs > docs/config.md`; a test holds the two equal.

`dovecote serve --config fleet.yaml` reads the fleet. Order of precedence: default < file < `DOVECOTE__SECTION__KEY` <
flag. `policy.file` in it names a `policy.yaml`, which is read again when it changes, at SIGHUP and at
`POST /v1/policy/reload`: taken whole, or refused whole, and then the old policy stays. `dovecote check-config FILE...`
says what is wrong with files before they are used; `docs/fleet.schema.json` and `docs/policy.schema.json` let editors
do so (`dovecote check-config --schema fleet` and `--schema policy` print them).
"""


def find_field_words(model: type[BaseModel]) -> dict[str, str]:
    """The `#:` lines above each field of a model, those of its bases included."""
    words: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            words.update(_read_words(textwrap.dedent(inspect.getsource(base)).splitlines()))
    return {name: words[name] for name in model.model_fields if name in words}


def _read_words(lines: list[str]) -> Iterator[tuple[str, str]]:
    held: list[str] = []
    for line in lines:
        text = line.strip()
        if text.startswith("#:"):
            held.append(text.removeprefix("#:").strip())
            continue
        name, colon, _ = text.partition(":")
        if held and colon and name.isidentifier() and line.startswith("    ") and not line.startswith("     "):
            yield name, " ".join(held)
        held = []


def add_words(schema: dict[str, Any], *models: type[BaseModel]) -> dict[str, Any]:
    """A JSON schema with the words of its keys."""
    known = {model.__name__: find_field_words(model) for model in _find_models(*models)}
    for title, part in ((schema.get("title"), schema), *schema.get("$defs", {}).items()):
        for key, value in part.get("properties", {}).items():
            words = known.get(str(title), {}).get(key)
            if words is not None:
                value["description"] = words
    return schema


def describe_policy_schema() -> dict[str, Any]:
    """JSON schema of `policy.yaml`, for editors."""
    return add_words(PolicyConfig.model_json_schema(), PolicyConfig)


def describe_fleet_schema() -> dict[str, Any]:
    """JSON schema of `fleet.yaml`, for editors."""
    return add_words(FleetConfig.model_json_schema(), FleetConfig)


def _find_models(*models: type[BaseModel]) -> list[type[BaseModel]]:
    """The models and those of their fields, each once, in reading order."""
    found: dict[type[BaseModel], None] = {}
    for model in models:
        found[model] = None
        for field in model.model_fields.values():
            for part in _find_parts(field.annotation):
                if isinstance(part, type) and issubclass(part, BaseModel):
                    found.update(dict.fromkeys(_find_models(part)))
    return list(found)


def _find_parts(kind: Any) -> Iterator[Any]:
    """Every type in an annotation."""
    yield kind
    for part in get_args(kind):
        yield from _find_parts(part)


def render_page() -> str:
    """The whole of `docs/config.md`."""
    parts = [_HEAD, *(_render_section(path, model) for path, model in _walk("", FleetConfig))]
    return "\n".join(parts)


def _walk(path: str, model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    yield path, model
    for name, field in model.model_fields.items():
        for part in _find_parts(field.annotation):
            if isinstance(part, type) and issubclass(part, BaseModel):
                many = "[]" if get_origin(field.annotation) is tuple else ""
                yield from _walk(f"{path}.{name}{many}".lstrip("."), part)


def _render_section(path: str, model: type[BaseModel]) -> str:
    words = find_field_words(model)
    rows = []
    for name, field in model.model_fields.items():
        inner = any(isinstance(part, type) and issubclass(part, BaseModel) for part in _find_parts(field.annotation))
        told = words.get(name, "")
        if inner and not told:
            told = f"see `{path}.{name}`".replace("`.", "`")
        rows.append(f"| `{name}` | {_say_kind(field.annotation, field.metadata)} | {_say_default(field)} | {told} |")
    title = f"## `{path}`" if path else "## The fleet"
    summary = inspect.cleandoc(model.__doc__ or "")
    return f"{title}\n\n{summary}\n\n| key | values | default | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def _say_kind(kind: Any, metadata: list[Any]) -> str:
    """Values that a key takes, in few words."""
    if get_origin(kind) is Annotated:
        return _say_kind(get_args(kind)[0], [*get_args(kind)[1:], *metadata])
    if get_origin(kind) in {Union, UnionType}:
        named = dict.fromkeys(_say_kind(part, metadata) for part in get_args(kind) if part is not type(None))
        return " or ".join(named)
    if get_origin(kind) is tuple:
        return "list"
    words = get_args(kind) if get_origin(kind) is Literal else _find_words(kind)
    if words:
        return ", ".join(f"`{word}`" for word in words)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "section"
    names = {int: "whole number", float: "number", str: "text", SecretStr: "text", bool: "`true`, `false`"}
    name = names.get(kind, "mapping")
    return f"{name}{_say_bounds(metadata)}"


def _find_words(kind: Any) -> tuple[str, ...]:
    return tuple(word.value for word in kind) if isinstance(kind, type) and issubclass(kind, StrEnum) else ()


def _say_bounds(metadata: list[Any]) -> str:
    flat = [each for entry in metadata for each in (entry, *getattr(entry, "metadata", ()))]
    for low_name, low_word in (("ge", "from"), ("gt", "above")):
        low = max((getattr(each, low_name) for each in flat if getattr(each, low_name, None) is not None), default=None)
        high = next((each.le for each in flat if getattr(each, "le", None) is not None), None)
        if low is not None:
            return f" {low_word} {_say_number(low)}" + ("" if high is None else f" to {_say_number(high)}")
    return ""


def _say_number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _say_default(field: Any) -> str:
    default = field.default
    if default is PydanticUndefined:
        return "must be given" if field.default_factory is None else "none"
    if default is None or default in ("", ()):
        return "none"
    if isinstance(default, BaseModel):
        return "as below"
    values = default if isinstance(default, tuple) else (default,)
    return ", ".join(f"`{_say_value(value)}`" for value in values)


def _say_value(value: Any) -> str:
    """A value as YAML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return str(value.value if isinstance(value, StrEnum) else value)


if __name__ == "__main__":
    sys.stdout.write(render_page())
