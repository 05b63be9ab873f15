"""Turns a request's fields into the token ids the engine will compute, and those into block chains.

One `Prompter` a tokenizer folder. Everything it cannot do exactly as the engine is `Unrenderable` with a
closed reason: the request is then placed without cache credit, never with a wrong one.
"""

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from prefix_index import BlockChain, block_hashes
from router.prompt.template import ArgumentForm, ChatTemplate, TemplateRefused, load_chat_template
from router.prompt.tokenizer import Tokenizer, load_tokenizer
from wire.block_hash import TOKEN_LIMIT, namespace_seed

#: Body fields that change what the engine caches in ways that are not modelled here.
UNMODELLED_FIELDS = frozenset({"extra_key", "lora_path", "input_embeds", "prompt_embeds", "mm_processor_kwargs"})
#: Body fields that change the prompt's text in ways only the engine knows.
OPAQUE_FIELDS = frozenset({"chat_template", "continue_final_message", "documents", "truncate_prompt_tokens", "suffix"})


class Unrenderable(msgspec.Struct, frozen=True):
    """Why this prompt earns no cache credit: a closed word, fit for a label."""

    #: `template`, `multimodal`, `opaque_field`, `unmodelled_field`, `batch`, `shape`, `no_template`.
    reason: str


class PromptInput(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a request body that make its prompt, decoded."""

    messages: Sequence[Any] | None = None
    tools: Sequence[Any] | None = None
    template_options: Mapping[str, Any] | None = None
    #: Text, ids, or a list of either, of a plain completion.
    prompt: object = None
    add_generation_prompt: object = None
    add_special_tokens: object = None
    cache_salt: object = None
    #: Names of all fields in the body, for those that make a prompt opaque.
    field_names: frozenset[str] = frozenset()


class Prompt(msgspec.Struct, frozen=True):
    """Token ids of a prompt; equal to what the engine computes."""

    token_ids: "array[int]"
    cache_salt: str | None


class Prompter:
    """Renders, tokenizes and hashes. Thread-safe; long prompts belong off the event loop."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        self.tokenizer = tokenizer
        self.template = template
        #: Settled by the parity probe of the first engine that answers one.
        self.argument_form = ArgumentForm.OBJECT

    @classmethod
    def load(cls, folder: Path) -> "Prompter":
        """The prompter of a tokenizer folder.

        Raises:
            ValueError: A file is absent or not what it should be.
        """
        return cls(load_tokenizer(folder), load_chat_template(folder))

    def prepare(self, request: PromptInput) -> Prompt | Unrenderable:
        """Ids of the request's prompt, or why it has none that can be trusted."""
        if not request.field_names.isdisjoint(UNMODELLED_FIELDS):
            return Unrenderable("unmodelled_field")
        if not request.field_names.isdisjoint(OPAQUE_FIELDS):
            return Unrenderable("opaque_field")
        salt = request.cache_salt
        if salt is not None and not isinstance(salt, str):
            return Unrenderable("shape")
        ids = self._chat_ids(request) if request.messages is not None else self._completion_ids(request)
        return ids if isinstance(ids, Unrenderable) else Prompt(ids, salt or None)

    @staticmethod
    def find_chain(prompt: Prompt, *, block_tokens: int, model: str, adapter: str | None = None) -> BlockChain:
        """Canonical block hashes of the prompt in one namespace.

        Cost: 0.1 ms for 100k tokens with the native module, some 4 ms without.
        """
        seed = namespace_seed(model, adapter=adapter, cache_salt=prompt.cache_salt)
        hashes = tuple(block_hashes(prompt.token_ids, block_tokens, seed))
        return BlockChain(block_tokens=block_tokens, hashes=hashes, token_count=len(prompt.token_ids))

    def render(self, request: PromptInput, arguments: ArgumentForm) -> str | Unrenderable:
        """Text of a chat request."""
        if self.template is None:
            return Unrenderable("no_template")
        messages = request.messages or ()
        if not all(isinstance(message, Mapping) for message in messages):
            return Unrenderable("shape")
        if any(_has_media(message.get("content")) for message in messages):
            return Unrenderable("multimodal")
        options = dict(request.template_options or {})
        if isinstance(request.add_generation_prompt, bool):
            options["add_generation_prompt"] = request.add_generation_prompt
        try:
            return self.template.render(messages, request.tools or None, options, arguments=arguments)
        except TemplateRefused:
            return Unrenderable("template")

    def _chat_ids(self, request: PromptInput) -> "array[int] | Unrenderable":
        text = self.render(request, self.argument_form)
        if isinstance(text, Unrenderable):
            return text
        return self._encode(text, add_special_tokens=request.add_special_tokens is True)

    def _completion_ids(self, request: PromptInput) -> "array[int] | Unrenderable":
        prompt = request.prompt
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
            prompt = prompt[0]
        if isinstance(prompt, str):
            return self._encode(prompt, add_special_tokens=request.add_special_tokens is not False)
        if not isinstance(prompt, list) or not prompt:
            return Unrenderable("shape")
        if isinstance(prompt[0], str | list):
            return Unrenderable("batch")
        if not all(type(token) is int and 0 <= token < TOKEN_LIMIT for token in prompt):
            return Unrenderable("shape")
        return array("I", prompt)

    def _encode(self, text: str, *, add_special_tokens: bool) -> "array[int] | Unrenderable":
        try:
            return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        except UnicodeEncodeError:
            return Unrenderable("shape")


def _has_media(content: object) -> bool:
    """Whether a message carries anything but text."""
    if not isinstance(content, list):
        return False
    texts = ("text", "input_text", "output_text")
    return any(
        not (isinstance(part, str) or (isinstance(part, Mapping) and part.get("type") in texts)) for part in content
    )
