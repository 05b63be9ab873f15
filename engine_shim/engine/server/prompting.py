"""Prompts of a request as token ids: rendered with the chat template, tokenized, off the event loop when long."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from engine_shim.engine.server.errors import bad_request
from engine_shim.engine.server.limits import MAX_PROMPTS
from engine_shim.engine.tokenizer import TemplateRefused, Tokenizer

T = TypeVar("T")


class ChatPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation to render."""

    messages: Sequence[dict[str, Any]]
    tools: Sequence[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    template_arguments: dict[str, Any] | None = None


class Prompting:
    """Turns what clients send into ids."""

    def __init__(self, tokenizer: Tokenizer, *, inline_chars: int) -> None:
        self._tokenizer = tokenizer
        self._inline_chars = inline_chars
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="tokenize")

    def close(self) -> None:
        """End the worker threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def encode_chat(self, prompt: ChatPrompt) -> tuple[int, ...]:
        """Ids of a rendered conversation.

        Raises:
            ApiError: The template refuses the messages.
        """
        if not prompt.messages:
            raise bad_request("messages must not be empty", "messages")
        chars = sum(_count_chars(message.get("content")) for message in prompt.messages)
        chars += 500 * len(prompt.tools or ())
        return await self._run(chars, lambda: self._render_and_encode(prompt))

    async def encode_text(self, text: str, param: str = "prompt") -> tuple[int, ...]:
        """Ids of a plain text.

        Raises:
            ApiError: The text has no UTF-8 form.
        """
        return await self._run(len(text), lambda: self._encode(text, param))

    async def encode_prompts(self, prompt: object, param: str) -> tuple[tuple[int, ...], ...]:
        """Ids of each prompt in a text, a list of texts, a list of ids, or a list of such lists.

        Raises:
            ApiError: It is none of these, or holds too many prompts.
        """
        if isinstance(prompt, str):
            return (await self.encode_text(prompt, param),)
        if not isinstance(prompt, list) or not prompt:
            raise bad_request(f"{param} must be a text, ids, or a list of either, and not empty", param)
        if _are_ids(prompt):
            return (tuple(prompt),)
        if len(prompt) > MAX_PROMPTS:
            raise bad_request(f"{param} holds {len(prompt)} prompts; at most {MAX_PROMPTS} are allowed", param)
        return tuple([await self._encode_one(one, param) for one in prompt])

    async def _encode_one(self, prompt: object, param: str) -> tuple[int, ...]:
        if isinstance(prompt, str):
            return await self.encode_text(prompt, param)
        if isinstance(prompt, list) and _are_ids(prompt):
            return tuple(prompt)
        raise bad_request(f"{param} must hold texts or lists of token ids", param)

    async def _run(self, chars: int, work: Callable[[], T]) -> T:
        if chars <= self._inline_chars:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _render_and_encode(self, prompt: ChatPrompt) -> tuple[int, ...]:
        try:
            text = self._tokenizer.template.render(
                prompt.messages,
                tools=prompt.tools or None,
                add_generation_prompt=prompt.add_generation_prompt,
                template_arguments=prompt.template_arguments,
            )
        except TemplateRefused as error:
            raise bad_request(f"the chat template refuses these messages: {error}", "messages") from error
        return self._encode(text, "messages")

    def _encode(self, text: str, param: str) -> tuple[int, ...]:
        try:
            return tuple(self._tokenizer.encode(text))
        except ValueError as error:
            raise bad_request(f"{param} is not valid Unicode: {error}", param) from error


def _are_ids(values: list[Any]) -> bool:
    return all(type(value) is int for value in values)


def _count_chars(content: object) -> int:
    """About how long a message is; exact only for texts."""
    match content:
        case str():
            return len(content)
        case list():
            return sum(
                len(part["text"]) for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
            )
    return 0
