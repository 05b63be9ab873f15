"""The chat template of a tokenizer folder, rendered as engines render it.

Takes `tokenizer_config.json` (or `chat_template.jinja` beside it) and OpenAI messages, gives the prompt text.
What engines do to messages and tools before their template sees them lies in `engine_form`.
Runs in `sandbox`, with the filters and functions that published templates expect and a budget of steps and text. A
message the template refuses is `TemplateRefused`, for the engine to answer; it is never an error of the router.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from router.prompt.budget import LimitExceeded, Limits, TemplateRefused
from router.prompt.engine_form import DEFAULT_FORM, ArgumentForm, EngineForm
from router.prompt.files import MAX_CONFIG_BYTES, MAX_TEMPLATE_BYTES, identify, is_there, read_object, read_text
from router.prompt.operators import BoundedContext, Operators
from router.prompt.sandbox import make_environment

__all__ = ["ArgumentForm", "ChatTemplate", "LimitExceeded", "Limits", "TemplateRefused", "load_chat_template"]

#: Special tokens that templates may name, as `tokenizer_config.json` gives them.
_TOKEN_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
#: Templates are a few kilobytes; the largest published ones stay below 64 KB.
MAX_TEMPLATE_CHARS = 256 << 10
DEFAULT_LIMITS = Limits()
#: Renderings beyond their limits, none within between, after which a template gets less.
EXCEEDED_IN_A_ROW = 4


#: A template that loops over a message's content takes parts; vLLM and SGLang look for the same thing.
_CONTENT_LOOP = re.compile(r"for\s+\w+\s+in\s+(?:\w+(?:\.content\b|\[['\"]content['\"]\])|content\b)")


class ChatTemplate:
    """One compiled template with the special tokens of its tokenizer."""

    def __init__(self, source: str, tokens: Mapping[str, str], *, limits: Limits = DEFAULT_LIMITS) -> None:
        """Compile a template.

        Args:
            source: Its text.
            tokens: Special tokens by the names that templates know them by.
            limits: What a rendering may use.

        Raises:
            ValueError: It does not compile.
        """
        if len(source) > MAX_TEMPLATE_CHARS:
            raise ValueError(f"larger than {MAX_TEMPLATE_CHARS:,} characters")
        try:
            self._template = make_environment().from_string(source)
        except RecursionError as error:
            raise ValueError("does not compile: nested too deep") from error
        except Exception as error:  # python's own compiler has its say too
            raise ValueError(f"does not compile: {error}") from error
        self._tokens = dict(tokens)
        self._limits = limits
        #: Renderings since the last one that stayed within its limit.
        self._exceeded = 0
        self._source = source
        #: Whether the template walks over content parts itself; else engines hand it joined text.
        self.takes_parts = _CONTENT_LOOP.search(source) is not None
        #: As vLLM tells whether a template knows the role.
        self._names_developer = "'developer'" in source or '"developer"' in source
        #: Whether its text can depend on the time of day.
        self.reads_clock = "strftime_now" in source

    @property
    def identity(self) -> bytes:
        """Names what it renders; equal templates with equal tokens have equal names."""
        return identify(
            self._source.encode("utf-8", "surrogatepass"), msgspec.json.encode(self._tokens, order="sorted")
        )

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
            values["messages"] = form.shape_messages(
                messages, takes_parts=self.takes_parts, names_developer=self._names_developer
            )
            context = cast("BoundedContext", self._template.new_context(values))
            context.budget = Operators(self._choose_limits(), values)
            text = context.budget.join(list(self._template.root_render_func(context)))
            self._exceeded = 0
            return text
        except LimitExceeded:
            self._exceeded += 1
            raise
        except TemplateRefused:
            raise
        except RecursionError as error:
            raise TemplateRefused("messages nest too deep") from error
        except Exception as error:  # whatever foreign code stumbles over
            raise TemplateRefused(str(error) or type(error).__name__) from error

    def _choose_limits(self) -> Limits:
        """A tenth for a template that exceeds them time and again, until a rendering stays within that."""
        if self._exceeded < EXCEEDED_IN_A_ROW:
            return self._limits
        steps, chars = self._limits.steps // 10, self._limits.chars // 10
        return msgspec.structs.replace(self._limits, steps=steps, most_steps=steps, chars=chars, most_chars=chars)


def load_chat_template(folder: Path) -> ChatTemplate | None:
    """The template of a tokenizer folder, None where it has none.

    Raises:
        ValueError: A file is there and is not what it should be; the text names it.
    """
    path, beside = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    config = read_object(path, MAX_CONFIG_BYTES)[1] if is_there(path) else {}
    if is_there(beside):
        path, source = beside, read_text(beside, MAX_TEMPLATE_BYTES)
    else:
        found = _find_source(config.get("chat_template"), path)
        if found is None:
            return None
        source = found
    try:
        return ChatTemplate(source, _special_tokens(config))
    except ValueError as error:
        raise ValueError(f"{path}: the chat template {error}") from error


def _find_source(template: Any, path: Path) -> str | None:
    """A template is a text, or a list of named texts of which `default` counts."""
    if template is None or isinstance(template, str):
        return template
    if not isinstance(template, list) or not all(isinstance(entry, dict) for entry in template):
        raise ValueError(f"{path}: the chat template is neither text nor a list of named texts")
    default = next((entry.get("template") for entry in template if entry.get("name") == "default"), None)
    if default is not None and not isinstance(default, str):
        raise ValueError(f"{path}: the default chat template is not text")
    return default


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    named = {name: config.get(name) for name in _TOKEN_NAMES}
    texts = {name: token.get("content") if isinstance(token, dict) else token for name, token in named.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}
