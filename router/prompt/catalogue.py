"""Which prompter serves which model name, and the preparation of one prompt for placement.

Filled by the control plane as workers tell what they serve; read by the data plane for every request. Long new text
is prepared in threads of its own, so that the event loop goes on; a turn that goes on with a known conversation is
prepared in place. Where there is no exact prompt there is a chain of text chunks.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from prefix_index import BlockChain
from router.prompt.approximate import ApproximateReuse, TextChain, chain_text
from router.prompt.prompter import Foresight, Prompt, Prompter, PromptInput, Unrenderable

#: New text above this is prepared off the event loop: some 4k tokens, 2 ms.
INLINE_BYTES = 16 << 10
#: Text that is only cut into chunks is, below this: some 0.5 ms at most, where a thread costs 0.1 ms.
INLINE_TEXT_BYTES = 1 << 20
#: Size of a block before any engine told one, so that a first prompt has a chain too.
FIRST_BLOCK_TOKENS = 16
#: Credit of a prompt whose chains are those of its tokens.
EXACT = "exact"
#: Credit of a chat with media.
UP_TO_MEDIA = "exact up to the first message with media; what follows is not known and not credited"


class ModelPrompts(msgspec.Struct, frozen=True):
    """How prompts of one model name are made."""

    prompter: Prompter
    #: Base model, whose name starts the block namespace.
    base: str
    #: LoRA adapter on it, None for the base itself.
    adapter: str | None = None

    def makes_the_same(self, other: "ModelPrompts") -> bool:
        """Whether both are made of equal files for the same model."""
        if (self.base, self.adapter) != (other.base, other.adapter):
            return False
        identity = self.prompter.identity
        return self.prompter is other.prompter or (identity is not None and identity == other.prompter.identity)


class PreparedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """What placement needs of a prompt."""

    prompt_tokens: int
    #: The prompt in the namespace of plain keys, and in that of pairs where some engine has those; the smallest block
    #: size first, the others in `others`. Empty without exact credit.
    chains: tuple[BlockChain, ...] = ()
    #: Makes the chains anew, for the block sizes known then; None where some engine had told one already.
    rehash: Callable[[], tuple[BlockChain, ...]] | None = None
    #: Chunks of its text, where there are no chains or some worker has no events.
    text: TextChain | None = None
    #: Why there is no exact credit: a closed word; None where there is.
    uncredited: str | None = None
    #: What its credit rests on, in words.
    credit: str = EXACT

    @property
    def head_hashes(self) -> Sequence[int]:
        """Chained hashes that tell conversations apart: of tokens, else of text."""
        if self.chains:
            return self.chains[0].hashes
        return () if self.text is None else self.text.hashes

    @property
    def plain(self) -> BlockChain | None:
        """The chain of plain keys."""
        return self.chains[0] if self.chains else None

    @property
    def pairs(self) -> BlockChain | None:
        """The chain of pairs."""
        return self.chains[1] if len(self.chains) > 1 else None

    @property
    def is_whole(self) -> bool:
        """Whether every token of it is known."""
        return bool(self.chains) and not self.is_partial

    @property
    def is_partial(self) -> bool:
        """Whether only the prompt's start is known, so that its credit is a lower bound."""
        return self.credit == UP_TO_MEDIA


class PromptCatalogue:
    """Prompters by model name. Owned by the event loop; only the preparing itself runs elsewhere."""

    def __init__(
        self,
        *,
        block_sizes: Callable[[], Iterable[int]],
        has_bigram: Callable[[], bool] = lambda: False,
        inline_bytes: int = INLINE_BYTES,
    ) -> None:
        """Start empty.

        Args:
            block_sizes: Tokens a block, for every size in the fleet now.
            has_bigram: Whether some engine keys its cache by pairs of tokens.
            inline_bytes: Most new text that is prepared on the event loop.
        """
        self._block_sizes = block_sizes
        self._has_bigram = has_bigram
        self._inline_bytes = inline_bytes
        self._models: dict[str, ModelPrompts] = {}
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="dovecote-prompt")
        #: What ranks are likely to hold of prompts without exact chains.
        self.approximate = ApproximateReuse()

    def put(self, name: str, prompts: ModelPrompts) -> None:
        """Serve a model name from now on; one made of equal files stays, with what it knows."""
        known = self._models.get(name)
        if known is None or not prompts.makes_the_same(known):
            self._models[name] = prompts

    def keep_only(self, names: Container[str]) -> None:
        """Forget the names that nobody serves any more."""
        self._models = {name: prompts for name, prompts in self._models.items() if name in names}

    def find(self, model: str | None) -> ModelPrompts | None:
        """How prompts of a model are made; without a name, those of the only base model there is."""
        if model is not None:
            return self._models.get(model)
        bases = {prompts.base for prompts in self._models.values()}
        return self._models.get(bases.pop()) if len(bases) == 1 else None

    @property
    def held_tokens(self) -> int:
        """Tokens held for incremental preparation, over all prompters."""
        return sum(prompter.held_tokens for prompter in self._prompters())

    @property
    def held_bytes(self) -> int:
        """Bytes held for it."""
        return sum(prompter.held_bytes for prompter in self._prompters())

    async def prepare(self, model: str | None, request: PromptInput, size_bytes: int) -> PreparedPrompt:
        """Render, tokenize and hash one prompt.

        Args:
            model: Name asked for.
            request: The body's fields.
            size_bytes: Length of the body.

        Raises:
            RequestError: Messages or tools cannot be read.
        """
        prompts = self.find(model)
        if prompts is None and size_bytes <= INLINE_TEXT_BYTES:
            return self._without_chains(self._chain_text(model, None, request), "no_tokenizer")
        sizes = sorted(self._block_sizes())
        foresight = None if prompts is None else prompts.prompter.foresee(request, size_bytes)
        new_bytes = size_bytes if foresight is None else foresight.new_bytes
        if new_bytes <= self._inline_bytes and not (prompts is not None and prompts.prompter.is_costly):
            return self._prepare(model, prompts, request, foresight, sizes)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._prepare, model, prompts, request, foresight, sizes)

    def close(self) -> None:
        """End the threads; what they still do is dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _prompters(self) -> Iterable[Prompter]:
        return {id(prompts.prompter): prompts.prompter for prompts in self._models.values()}.values()

    def _prepare(
        self, model: str | None, prompts: ModelPrompts | None, request: PromptInput, foresight: Foresight | None,
        sizes: list[int],
    ) -> PreparedPrompt:  # fmt: skip
        if prompts is None:
            return self._without_chains(self._chain_text(model, None, request), "no_tokenizer")
        prompt = prompts.prompter.prepare(request, foresight)
        text = self._chain_text(model, prompts, request) if self.approximate.is_needed else None
        if isinstance(prompt, Unrenderable):
            return self._without_chains(text or self._chain_text(model, prompts, request), prompt.reason)
        chains = self._make_chains(prompts, prompt, sizes or [FIRST_BLOCK_TOKENS])
        credit = EXACT if prompt.whole_tokens is None else UP_TO_MEDIA
        return PreparedPrompt(
            prompt_tokens=prompt.token_count,
            chains=chains,
            rehash=None if sizes else partial(self._rehash, prompts, prompt),
            text=text,
            uncredited=None if credit == EXACT else "media_tail",
            credit=credit,
        )

    def _make_chains(self, prompts: ModelPrompts, prompt: Prompt, sizes: list[int]) -> tuple[BlockChain, ...]:
        """One chain a namespace, in all sizes."""
        chains = []
        for is_bigram in (False, True) if self._has_bigram() else (False,):
            first, *others = (
                prompts.prompter.find_chain(
                    prompt, block_tokens=size, model=prompts.base, adapter=prompts.adapter, is_bigram=is_bigram
                )
                for size in sizes
            )
            chains.append(msgspec.structs.replace(first, others=tuple(others)) if others else first)
        return tuple(chains)

    def _rehash(self, prompts: ModelPrompts, prompt: Prompt) -> tuple[BlockChain, ...]:
        return self._make_chains(prompts, prompt, sorted(self._block_sizes()) or [FIRST_BLOCK_TOKENS])

    @staticmethod
    def _chain_text(model: str | None, prompts: ModelPrompts | None, request: PromptInput) -> TextChain:
        salt = request.cache_salt
        return chain_text(
            request.read_text(),
            model=prompts.base if prompts is not None else model or "",
            adapter=None if prompts is None else prompts.adapter,
            cache_salt=salt if isinstance(salt, str) and salt else None,
        )

    def _without_chains(self, text: TextChain, reason: str) -> PreparedPrompt:
        tokens = self.approximate.estimate_tokens(text.size_bytes)
        return PreparedPrompt(prompt_tokens=tokens, text=text, uncredited=reason, credit=f"none: {reason}")
