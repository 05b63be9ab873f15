"""The chat template of a tokenizer folder, rendered as engines render it.

Takes `tokenizer_config.json` (or `chat_template.jinja` beside it) and OpenAI messages, gives the prompt text.
What engines do to messages and tools before their template sees them lies in `engine_form`.
Runs in jinja2's immutable sandbox with the filters and globals that published templates expect. A message
the template refuses is `TemplateRefused`, for the engine to answer; it is never an error of the router.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.sandbox
import msgspec
from jinja2.runtime import LoopContext

from router.prompt.engine_form import DEFAULT_FORM, ArgumentForm, EngineForm

__all__ = ["ArgumentForm", "ChatTemplate", "TemplateRefused", "load_chat_template"]

#: Special tokens that templates may name, as `tokenizer_config.json` gives them.
_TOKEN_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
#: Templates are a few kilobytes; the largest published ones stay below 64 KB.
_MAX_TEMPLATE_BYTES = 1 << 20


#: A template that loops over a message's content takes parts; vLLM and SGLang look for the same thing.
_CONTENT_LOOP = re.compile(r"for\s+\w+\s+in\s+(?:\w+(?:\.content\b|\[['\"]content['\"]\])|content\b)")


class TemplateRefused(ValueError):  # noqa: N818  (a fact about the messages, not a fault)
    """The template raised on these messages; the text says what it said."""


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now(tz=UTC).astimezone().strftime(form)


def _tojson(value: Any, indent: int | None = None, **_ignored: Any) -> str:
    """JSON with `, ` and `: ` between and no HTML escapes: the form that templates were trained on."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


class _Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The sandbox, with a short way for what templates do most and what it allows in any case."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        """As the sandbox, which asks of every access whether it is safe."""
        kind = type(obj)
        if kind is dict:
            if attribute in obj and attribute not in _DICT_NAMES:
                return obj[attribute]
        elif attribute in _SAFE_NAMES.get(kind, ()):
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)


#: Names that mean a method of a plain object and not its member.
_DICT_NAMES = frozenset(dir(dict))
_SAFE_NAMES: dict[type, frozenset[str]] = {
    LoopContext: frozenset({"first", "last", "index", "index0", "revindex", "revindex0", "length"}),
    str: frozenset({"startswith", "endswith", "split", "strip", "lstrip", "rstrip", "replace", "upper", "lower"}),
}


def _environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class ChatTemplate:
    """One compiled template with the special tokens of its tokenizer."""

    def __init__(self, source: str, tokens: Mapping[str, str]) -> None:
        self._template = _environment().from_string(source)
        self._tokens = dict(tokens)
        self._source = source
        #: Whether the template walks over content parts itself; else engines hand it joined text.
        self.takes_parts = _CONTENT_LOOP.search(source) is not None
        #: Whether its text can depend on the time of day.
        self.reads_clock = "strftime_now" in source

    def mentions(self, word: str) -> bool:
        """Whether a name stands anywhere in the template."""
        return word in self._source

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None,
        options: Mapping[str, Any] | None = None,
        *,
        form: EngineForm = DEFAULT_FORM,
    ) -> str:
        """Text of the conversation, by default with the generation prompt appended.

        Args:
            messages: OpenAI messages.
            tools: OpenAI tool definitions, None where the request has none.
            options: `chat_template_kwargs` of the request, on top of the defaults.
            form: What this engine does to messages and tools first.

        Raises:
            TemplateRefused: The template does not accept these messages.
        """
        values = {**self._tokens, "add_generation_prompt": True, "documents": None, **(options or {})}
        try:
            values["tools"] = None if tools is None else [form.shape_tool(tool) for tool in tools]
            values["messages"] = [form.shape_message(message, takes_parts=self.takes_parts) for message in messages]
            return self._template.render(values)
        except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise TemplateRefused(str(error) or type(error).__name__) from error
        except RecursionError as error:
            raise TemplateRefused("messages nest too deep") from error


def load_chat_template(folder: Path) -> ChatTemplate | None:
    """The template of a tokenizer folder, None where it has none.

    Raises:
        ValueError: A file is there and is not what it should be.
    """
    config = _read_config(folder / "tokenizer_config.json")
    beside = folder / "chat_template.jinja"
    source = _read_text(beside) if beside.is_file() else _default_source(config.get("chat_template"))
    if source is None:
        return None
    try:
        return ChatTemplate(source, _special_tokens(config))
    except jinja2.TemplateError as error:
        raise ValueError(f"{folder}: chat template does not compile: {error}") from error


def _read_text(path: Path) -> str:
    if path.stat().st_size > _MAX_TEMPLATE_BYTES:
        raise ValueError(f"{path}: larger than {_MAX_TEMPLATE_BYTES} bytes")
    return path.read_text(encoding="utf-8")


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise ValueError(f"{path}: not a JSON object: {error}") from error


def _default_source(template: Any) -> str | None:
    """A template is a text, or a list of named texts of which `default` counts."""
    if isinstance(template, str):
        return template
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        default = named.get("default")
        return default if isinstance(default, str) else None
    return None


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    named = {name: config.get(name) for name in _TOKEN_NAMES}
    texts = {name: token.get("content") if isinstance(token, dict) else token for name, token in named.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}
