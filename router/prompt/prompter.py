"""Turns a request's fields into the token ids the engine will compute, and those into block chains.

One `Prompter` a tokenizer folder. Everything it cannot do exactly as the engine is `Unrenderable` with a
closed reason: the request is then placed without cache credit, never with a wrong one. A turn that goes on with a
known conversation costs what is new in it; everything else is rendered and tokenized in full.
"""

import logging
import secrets
from array import array
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import msgspec

from prefix_index import BlockChain
from router.prompt.conversations import ConversationStore, TokenRun
from router.prompt.engine_form import DEFAULT_FORM, CallForm, ContinueForm, EngineForm
from router.prompt.files import identify
from router.prompt.media import MARKS, find_known_text, has_media, hash_with_media, mark_media, read_media, shape_media
from router.prompt.request import (
    OPAQUE_FIELDS,
    TEMPLATE_FIELDS,
    UNMODELLED_FIELDS,
    Prompt,
    PromptInput,
    Unrenderable,
)
from router.prompt.template import ChatTemplate, LimitExceeded, TemplateRefused, load_chat_template
from router.prompt.tokenizer import TextEncoder, load_tokenizer
from router.prompt.turns import Lookup, TurnRenderer
from wire.block_hash import TOKEN_LIMIT, namespace_seed

__all__ = ["Prompt", "PromptInput", "Prompter", "Unrenderable"]

#: The option of templates that reason.
THINKING = "enable_thinking"
_SHORT_CHAT = (
    {"role": "system", "content": "s"},
    {"role": "user", "content": "u"},
    {"role": "assistant", "content": "a"},
    {"role": "user", "content": "u"},
)
_log = logging.getLogger("dovecote.prompt")
#: Put after a message that is to be continued; what the template does to blanks shows by the last one.
_CONTINUE_MARK = "\u241econtinue\u241e "
#: Tokens an image is taken for in the length of a prompt; in the range of usual processors.
_MEDIA_TOKENS = 1_000


class Foresight(msgspec.Struct, frozen=True):
    """What preparing a request will take."""

    #: Its messages among known conversations; None where it is rendered in full whatever is known.
    lookup: Lookup | None
    #: Bytes that have to be rendered and tokenized.
    new_bytes: int
    #: Why nothing is known of its prompt; None where something may be.
    refused: Unrenderable | None = None
    #: Whether its local rendering is to be compared with the full one.
    checks: bool = False


class Prompter:
    """Renders, tokenizes and hashes. Thread-safe; long prompts belong off the event loop."""

    def __init__(
        self, tokenizer: TextEncoder, template: ChatTemplate | None, *, conversations: ConversationStore | None = None
    ) -> None:
        self.tokenizer = tokenizer
        self.template = template
        self.conversations = ConversationStore(seed=secrets.randbits(63)) if conversations is None else conversations
        #: Names the files it was made of; None where it was not made of files.
        self.identity: bytes | None = None
        #: Whether its template ran into a limit, so that it is better not rendered on the event loop.
        self.is_costly = False
        self._form = DEFAULT_FORM
        #: The same for messages whose tool calls are the engine's own.
        self._made_form = DEFAULT_FORM
        #: Whether a parity probe found the form; until then it is the usual one.
        self.is_settled = False
        self._opaque_fields = OPAQUE_FIELDS
        self._turns = TurnRenderer(template, tokenizer, self.conversations)

    @classmethod
    def load(cls, folder: Path) -> "Prompter":
        """The prompter of a tokenizer folder, its template tried with the usual options.

        Raises:
            ValueError: A file is absent or not what it should be.
        """
        tokenizer, template = load_tokenizer(folder), load_chat_template(folder)
        prompter = cls(tokenizer, template)
        prompter.identity = identify(tokenizer.identity or b"", b"" if template is None else template.identity)
        prompter._turns.try_out({}, DEFAULT_FORM)
        return prompter

    @property
    def form(self) -> EngineForm:
        """What the engines of this tokenizer do to messages; settled by the parity probe."""
        return self._form

    @form.setter
    def form(self, form: EngineForm) -> None:
        if form != self._form:
            self._form = form
            self._made_form = msgspec.structs.replace(form, calls=CallForm.SENT)
            self.conversations.clear()

    def settle(self, form: EngineForm, *, opaque_fields: frozenset[str]) -> None:
        """An engine showed its form.

        Args:
            form: What it does to messages.
            opaque_fields: Body fields that it takes in a way that is not known; prompts with them earn no credit.
        """
        self.form = form
        self.is_settled = True
        self._opaque_fields = OPAQUE_FIELDS | opaque_fields

    @property
    def held_tokens(self) -> int:
        """Tokens held for incremental preparation."""
        return self.tokenizer.cache.held_tokens + self.conversations.count().tokens

    @property
    def held_bytes(self) -> int:
        """Bytes held for it."""
        return self.tokenizer.cache.held_bytes + self.conversations.count().size_bytes

    def foresee(self, request: PromptInput, size_bytes: int) -> Foresight:
        """Whether a request goes on with a known conversation; costs one pass over its bytes."""
        foresight = self._look_up(request, size_bytes)
        if foresight.lookup is None or foresight.lookup.turn is None:
            return foresight
        if self._turns.is_check_due():
            return msgspec.structs.replace(foresight, checks=True)
        new_bytes = len(foresight.lookup.messages.member) - foresight.lookup.turn.length
        return msgspec.structs.replace(foresight, new_bytes=new_bytes)

    def _look_up(self, request: PromptInput, size_bytes: int) -> Foresight:
        refused = self._refuse(request)
        return Foresight(None if refused is not None else self._turns.look_up(request), size_bytes, refused)

    def prepare(self, request: PromptInput, foresight: Foresight | None = None) -> Prompt | Unrenderable:
        """Ids of the request's prompt, or why it has none that can be trusted.

        Raises:
            RequestError: Messages or tools cannot be read.
        """
        foresight = self._look_up(request, 0) if foresight is None else foresight
        if foresight.refused is not None:
            return foresight.refused
        salt = request.cache_salt if isinstance(request.cache_salt, str) else None
        if not request.is_chat:
            return self._prepare_completion(request, salt or None)
        lookup = foresight.lookup
        if lookup is not None and lookup.turn is not None:
            form = self._find_form(request)
            run = self._turns.go_on(lookup.turn, lookup.messages, request, form, checks=foresight.checks)
            if run is not None:
                return Prompt(run=run, cache_salt=salt or None)
        return self._prepare_chat(request, salt or None, lookup)

    @staticmethod
    def find_chain(
        prompt: Prompt, *, block_tokens: int, model: str, adapter: str | None = None, is_bigram: bool = False
    ) -> BlockChain:
        """Canonical block hashes of the prompt in one namespace.

        Of an engine that keys its cache by pairs of tokens the events tell each pair's first token. A block of pairs
        needs the token after it, and the last token is always computed, so that one token less can be reused.

        Cost: 0.1 ms for 100k new tokens with the native module, some 4 ms without.
        """
        seed = _find_seed(model, adapter, prompt.cache_salt, is_bigram)
        if prompt.media:
            hashes = hash_with_media(prompt.token_ids, block_tokens, seed, prompt.media)
        else:
            hashes = prompt.run.hash_blocks(block_tokens, seed)
        return BlockChain(block_tokens=block_tokens, hashes=hashes, token_count=prompt.token_count - is_bigram)

    @property
    def can_chat(self) -> bool:
        """Whether messages can be rendered."""
        return self.template is not None

    def make_ids(self, request: PromptInput, form: EngineForm) -> "array[int] | Unrenderable":
        """Ids of a chat made in full, as an engine of that form makes them."""
        text = self.render(request, form)
        return text if isinstance(text, Unrenderable) else self._encode(text)

    def render(self, request: PromptInput, form: EngineForm | None = None) -> str | Unrenderable:
        """Text of a chat request in full."""
        messages = request.read_messages()
        if not all(isinstance(message, Mapping) for message in messages):
            return Unrenderable("shape")
        if any(has_media(message.get("content")) for message in messages):
            return Unrenderable("multimodal")
        return self._render(messages, request, form or self._find_form(request))

    def _find_form(self, request: PromptInput) -> EngineForm:
        return self._made_form if request.has_made_calls else self._form

    def _refuse(self, request: PromptInput) -> Unrenderable | None:
        """Why nothing is known of the prompt, told by its fields alone."""
        fields = request.field_names
        told = request.unrenderable or (None if fields.isdisjoint(UNMODELLED_FIELDS) else "unmodelled_field")
        if told is not None:
            return Unrenderable(told)
        if not fields.isdisjoint(self._opaque_fields) or (request.tool_choice == "none" and self._has_tools(request)):
            return Unrenderable("opaque_field")
        if request.is_chat and not self.can_chat:
            return Unrenderable("no_template")
        if not fields.isdisjoint(TEMPLATE_FIELDS) and self._shows_effort(request):
            return Unrenderable("opaque_field")
        if request.cache_salt is not None and not isinstance(request.cache_salt, str):
            return Unrenderable("shape")
        return None

    def _shows_effort(self, request: PromptInput) -> bool:
        """Whether an effort shows before the end of the prompt: vLLM turns thinking on or off by it as well."""
        if self.template is None:
            return False
        if any(self.template.mentions(name) for name in TEMPLATE_FIELDS):
            return True
        return THINKING not in (request.template_options or {}) and self._has_early_thinking

    @cached_property
    def _has_early_thinking(self) -> bool:
        """Whether thinking turned on or off changes more than what follows the last message."""
        if self.template is None or not self.template.mentions(THINKING):
            return False
        options: tuple[dict[str, Any], ...] = ({}, {THINKING: True}, {THINKING: False})
        asked = (
            PromptInput(messages=_SHORT_CHAT, template_options=each, add_generation_prompt=False) for each in options
        )
        return len({str(self.render(one)) for one in asked}) > 1

    @staticmethod
    def _has_tools(request: PromptInput) -> bool:
        return bool(request.tools) or (request.tools_json is not None and len(request.tools_json) > 2)

    def _prepare_chat(self, request: PromptInput, salt: str | None, lookup: Lookup | None) -> Prompt | Unrenderable:
        messages = request.read_messages()
        if not all(isinstance(message, Mapping) for message in messages):
            return Unrenderable("shape")
        if any(has_media(message.get("content")) for message in messages):
            return self._prepare_start(messages, request, salt)
        form = self._find_form(request)
        text = self._render(messages, request, form)
        if isinstance(text, Unrenderable):
            return text
        if request.add_special_tokens is True or request.continues:
            ids = self._encode(text, add_special_tokens=request.add_special_tokens is True)
            return ids if isinstance(ids, Unrenderable) else Prompt(run=TokenRun(ids), cache_salt=salt)
        try:
            return Prompt(run=self._turns.start(text, messages, request, form, lookup), cache_salt=salt)
        except ValueError:
            return Unrenderable("shape")

    def _prepare_start(
        self, messages: Sequence[Mapping[str, Any]], request: PromptInput, salt: str | None
    ) -> Prompt | Unrenderable:
        """The part of a chat with media that stands before the first message that carries some."""
        texts = self._render_around_media(messages, request)
        known = [text for text in texts if isinstance(text, str)]
        if len(known) < len(texts) or request.add_special_tokens is True:
            return Unrenderable("multimodal")
        text = self._find_settled(find_known_text(known), known[-1])
        ids = self._encode(text) if text else Unrenderable("multimodal")
        rest = self._encode(known[0][len(text) :])
        if isinstance(ids, Unrenderable) or isinstance(rest, Unrenderable):
            return Unrenderable("multimodal")
        items = sum(has_media(message.get("content")) for message in messages)
        return Prompt(run=TokenRun(ids), cache_salt=salt, whole_tokens=len(ids) + len(rest) + items * _MEDIA_TOKENS)

    def _render_around_media(
        self, messages: Sequence[Mapping[str, Any]], request: PromptInput
    ) -> list[str | Unrenderable]:
        """The chat with each of `MARKS` for its media, then as it is where its template takes the items."""
        form = self._find_form(request)
        shown = self._render(shape_media(messages), request, form)
        takes_items = self.template is not None and self.template.takes_parts and isinstance(shown, str)
        marked = [mark_media(messages, mark, takes_parts=takes_items) for mark in MARKS]
        return [*(self._render(each, request, form) for each in marked), *([shown] if takes_items else [])]

    def _find_settled(self, start: str, whole: str) -> str:
        """The part of a prompt's start whose ids do not depend on what follows it in the whole."""
        for match in self.tokenizer.cuts.find_tokens(whole):
            if match.start() >= len(start):
                is_apart = match.start() == len(start) and match.group() in self.tokenizer.cuts.contents
                return start if is_apart else start[: self.tokenizer.cuts.find_last(start)]
        return start[: self.tokenizer.cuts.find_last(start)]

    def _render(
        self, messages: Sequence[Mapping[str, Any]], request: PromptInput, form: EngineForm
    ) -> str | Unrenderable:
        if self.template is None:
            return Unrenderable("no_template")
        options, tools = request.read_options(), request.read_tools()
        try:
            if request.continues:
                return _render_continued(self.template, messages, tools, options, form)
            return self.template.render(messages, tools, options, form=form)
        except LimitExceeded as error:
            if not self.is_costly:
                self.is_costly = True
                _log.warning("chat_template_limit reason=%a", str(error))
            return Unrenderable("template")
        except TemplateRefused:
            return Unrenderable("template")

    def _prepare_completion(self, request: PromptInput, salt: str | None) -> Prompt | Unrenderable:
        ids = self._completion_ids(request)
        if isinstance(ids, Unrenderable):
            return ids
        if request.features is None:
            return Prompt(run=TokenRun(ids), cache_salt=salt)
        media = read_media(request.features, len(ids)) if isinstance(request.prompt, list) else None
        return Unrenderable("multimodal") if media is None else Prompt(run=TokenRun(ids), cache_salt=salt, media=media)

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

    def _encode(self, text: str, *, add_special_tokens: bool = False) -> "array[int] | Unrenderable":
        try:
            return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        except ValueError:
            return Unrenderable("shape")


@lru_cache(maxsize=1_024)
def _find_seed(model: str, adapter: str | None, cache_salt: str | None, is_bigram: bool) -> int:
    return namespace_seed(model, adapter=adapter, cache_salt=cache_salt, bigram=is_bigram)


def _render_continued(
    template: ChatTemplate, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None,
    options: Mapping[str, Any], form: EngineForm,
) -> str:  # fmt: skip
    """Text that ends within the final message, for the model to go on with."""
    content = messages[-1].get("content") if messages else None
    if not isinstance(content, str):
        raise TemplateRefused("only a final message of text can be continued")
    if form.continues is ContinueForm.APPENDED:
        asked = {**options, "add_generation_prompt": True}
        return template.render(messages[:-1], tools, asked, form=form) + content
    marked = [*messages[:-1], {**messages[-1], "content": content + _CONTINUE_MARK}]
    text = template.render(marked, tools, {**options, "add_generation_prompt": False}, form=form)
    place = text.rfind(_CONTINUE_MARK.rstrip())
    if place < 0:
        raise TemplateRefused("the final message does not show in the prompt")
    return text[:place] if text.startswith(_CONTINUE_MARK, place) else text[:place].rstrip()
