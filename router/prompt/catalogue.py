"""Which prompter serves which model name, and the preparation of one prompt for placement.

Filled by the control plane as workers tell what they serve; read by the data plane for every request. Long
prompts are prepared in threads of its own, so that the event loop goes on.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from prefix_index import BlockChain
from router.prompt.prompter import Prompter, PromptInput, Unrenderable

#: Bodies above this are prepared off the event loop: some 4k tokens, 2 ms.
INLINE_BYTES = 16 << 10
#: Bytes of a body that are taken for one token where no tokenizer is known.
BYTES_PER_TOKEN = 4


class ModelPrompts(msgspec.Struct, frozen=True):
    """How prompts of one model name are made."""

    prompter: Prompter
    #: Base model, whose name starts the block namespace.
    base: str
    #: LoRA adapter on it, None for the base itself.
    adapter: str | None = None


class PreparedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """What placement needs of a prompt."""

    prompt_tokens: int
    #: One chain a block size; empty without cache credit.
    chains: tuple[BlockChain, ...] = ()
    #: Why there is no credit: a closed word; None where there is.
    uncredited: str | None = None


class PromptCatalogue:
    """Prompters by model name. Owned by the event loop; only the preparing itself runs elsewhere."""

    def __init__(self, *, block_sizes: Callable[[], Iterable[int]], inline_bytes: int = INLINE_BYTES) -> None:
        """Start empty.

        Args:
            block_sizes: Tokens a block, for every size in the fleet now.
            inline_bytes: Longest body prepared on the event loop.
        """
        self._block_sizes = block_sizes
        self._inline_bytes = inline_bytes
        self._models: dict[str, ModelPrompts] = {}
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="dovecote-prompt")

    def put(self, name: str, prompts: ModelPrompts) -> None:
        """Serve a model name from now on; the first registration of a name stays."""
        self._models.setdefault(name, prompts)

    def find(self, model: str | None) -> ModelPrompts | None:
        """How prompts of a model are made; without a name, those of the only base model there is."""
        if model is not None:
            return self._models.get(model)
        bases = {prompts.base for prompts in self._models.values()}
        return self._models.get(bases.pop()) if len(bases) == 1 else None

    @property
    def held_tokens(self) -> int:
        """Tokens held for incremental tokenization, over all tokenizers."""
        prompters = {id(prompts.prompter): prompts.prompter for prompts in self._models.values()}
        return sum(prompter.tokenizer.cache.held_tokens for prompter in prompters.values())

    async def prepare(self, model: str | None, request: PromptInput, size_bytes: int) -> PreparedPrompt:
        """Render, tokenize and hash one prompt.

        Args:
            model: Name asked for.
            request: The body's fields.
            size_bytes: Length of the body, which decides where the work is done.
        """
        prompts = self.find(model)
        if prompts is None:
            return _estimate(size_bytes, "no_tokenizer")
        sizes = sorted(self._block_sizes())
        if size_bytes <= self._inline_bytes:
            return _prepare(prompts, request, sizes, size_bytes)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _prepare, prompts, request, sizes, size_bytes)

    def close(self) -> None:
        """End the threads; what they still do is dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _prepare(prompts: ModelPrompts, request: PromptInput, sizes: list[int], size_bytes: int) -> PreparedPrompt:
    prompt = prompts.prompter.prepare(request)
    if isinstance(prompt, Unrenderable):
        return _estimate(size_bytes, prompt.reason)
    chains = tuple(
        prompts.prompter.find_chain(prompt, block_tokens=size, model=prompts.base, adapter=prompts.adapter)
        for size in sizes
    )
    return PreparedPrompt(prompt_tokens=len(prompt.token_ids), chains=chains)


def _estimate(size_bytes: int, reason: str) -> PreparedPrompt:
    return PreparedPrompt(prompt_tokens=max(1, size_bytes // BYTES_PER_TOKEN), uncredited=reason)
