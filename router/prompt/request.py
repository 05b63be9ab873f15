"""The fields of a request body that make its prompt, and what comes of them. No state."""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from router.errors import RequestError
from router.prompt.conversations import TokenRun
from router.prompt.native import Json

#: Body fields that change what the engine caches in ways that are not modelled here.
UNMODELLED_FIELDS = frozenset(
    {
        "audio_data", "extra_key", "image_data", "input_embeds", "lora_path", "mm_processor_kwargs", "prompt_embeds",
        "video_data",
    }
)  # fmt: skip
#: Body fields that change the prompt's text in ways only the engine knows.
OPAQUE_FIELDS = frozenset({"chat_template", "documents", "truncate_prompt_tokens", "suffix"})
#: Fields that some templates read.
TEMPLATE_FIELDS = frozenset({"reasoning_effort"})


class Unrenderable(msgspec.Struct, frozen=True):
    """Why this prompt earns no cache credit: a closed word, fit for a label."""

    #: `template`, `multimodal`, `opaque_field`, `unmodelled_field`, `batch`, `shape`, `no_template`, `conversion`,
    #: `engine_state`, `pooling`.
    reason: str


class MediaItem(msgspec.Struct, frozen=True):
    """An image, a sound or the like, and the tokens that stand for it."""

    #: What the engine calls its content.
    key: str
    #: First token that stands for it, and how many do.
    offset: int
    tokens: int


class PromptInput(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a request body that make its prompt; messages and tools decoded or as JSON."""

    messages: Sequence[Any] | None = None
    #: The messages member as it stands in the body; takes the place of `messages`.
    messages_json: Json | None = None
    tools: Sequence[Any] | None = None
    tools_json: Json | None = None
    template_options: Mapping[str, Any] | None = None
    #: Text, ids, or a list of either, of a plain completion.
    prompt: object = None
    add_generation_prompt: object = None
    continue_final_message: object = None
    add_special_tokens: object = None
    cache_salt: object = None
    tool_choice: object = None
    #: Placeholders of media among prompt ids, as engines' render routes give them.
    features: object = None
    #: Names of all fields in the body, for those that make a prompt opaque.
    field_names: frozenset[str] = frozenset()
    #: Whether tool calls in its messages have the order of fields in which its engine makes them, not a client's.
    has_made_calls: bool = False
    #: Why no prompt can be made of it whatever it holds: a closed word; None where one may be.
    unrenderable: str | None = None
    #: Whether it is known that its JSON can be decoded.
    is_sound: bool = False

    @property
    def is_chat(self) -> bool:
        """Whether the prompt is made of messages."""
        return self.messages is not None or self.messages_json is not None

    @property
    def continues(self) -> bool:
        """Whether the final message is to be continued."""
        return self.continue_final_message is True

    def read_messages(self) -> Sequence[Any]:
        """The messages, decoded.

        Raises:
            RequestError: They cannot be read.
        """
        return self.messages or () if self.messages_json is None else decode_list(self.messages_json, "messages")

    def read_tools(self) -> Sequence[Any] | None:
        """The tools, decoded; None where there are none.

        Raises:
            RequestError: They cannot be read.
        """
        tools = self.tools if self.tools_json is None else decode_list(self.tools_json, "tools")
        return tools or None

    def read_text(self) -> tuple[Json, ...]:
        """The bytes that make the prompt, what comes first in it first.

        Raises:
            RequestError: The messages cannot be read.
        """
        members = (_as_json(self.tools, self.tools_json), _as_json(self.messages, self.messages_json))
        if not self.is_sound:
            self.read_messages()
        pieces = (*members, b"" if self.prompt is None else msgspec.json.encode(self.prompt))
        return tuple(piece for piece in pieces if piece)

    def read_options(self) -> dict[str, Any]:
        """Options of the template."""
        options = dict(self.template_options or {})
        if isinstance(self.add_generation_prompt, bool):
            options["add_generation_prompt"] = self.add_generation_prompt
        return options


def _as_json(value: object, data: Json | None) -> Json:
    if data is not None:
        return data
    return b"" if value is None else msgspec.json.encode(value)


def decode_list(data: Json, name: str) -> list[Any]:
    """A member that is a list.

    Raises:
        RequestError: It is none, or cannot be read.
    """
    try:
        return msgspec.json.decode(data, type=list[Any])
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise RequestError(f"{name} cannot be read: {str(error)[:200]}", param=name) from error
    except RecursionError as error:
        raise RequestError(f"{name} cannot be read: nested too deep", param=name) from error


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """Token ids of a prompt; equal to what the engine computes."""

    run: TokenRun
    cache_salt: str | None
    #: Media among the tokens, by offset.
    media: tuple[MediaItem, ...] = ()
    #: Tokens of the prompt where the run is only its known start; None where the run is all of it.
    whole_tokens: int | None = None

    @property
    def token_ids(self) -> "array[int]":
        """The ids; not to be changed."""
        return self.run.ids

    @property
    def token_count(self) -> int:
        """Tokens of the whole prompt; an estimate where only its start is known."""
        return len(self.run.ids) if self.whole_tokens is None else self.whole_tokens
