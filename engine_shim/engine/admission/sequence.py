"""A request on its way: its tokens, how far they are computed, and its lease.

Made and moved between the queues by `Admission` only.
"""

from collections.abc import Iterator

from engine_shim.engine.admission.draws import seed_of_request
from engine_shim.engine.admission.outcome import FinishReason, TokenOutput
from engine_shim.engine.admission.request import EngineRequest
from engine_shim.engine.cache.prefix_cache import Lease
from engine_shim.engine.cache.token_bytes import pack_tokens
from engine_shim.engine.spec import EngineSpec

#: Ids at and above it name blocks of generated tokens, where prompts are lists of block ids.
OWN_BLOCK = 1 << 31


class Sequence:
    """A request's tokens, in two ranges.

    ```
    [0, computed_tokens)              KV lies in the lease's pages
    [computed_tokens, total_tokens)   known, still to compute: a prompt's rest, or the one token sampled last
    ```
    Prefill and decode are the same thing: compute the second range, and sample when it is empty.

    Where ids stand for whole blocks (`EngineSpec.id_tokens`), generated tokens are counted and not kept: the blocks
    they are in get ids of their own, so that nobody else's prompt ever finds them.
    """

    def __init__(self, request: EngineRequest, number: int, spec: EngineSpec, own_ids: Iterator[int]) -> None:
        sampling = request.sampling
        self.request = request
        #: Order of arrival; a lower number is served first.
        self.number = number
        self.prompt_tokens = request.count_prompt_tokens(spec.id_tokens)
        #: Prompt and generated tokens.
        self.total_tokens = self.prompt_tokens
        #: Ids of the prompt and of what was generated, packed; what the cache knows its pages by.
        self.token_bytes = bytearray(pack_tokens(request.prompt_ids))
        self._id_tokens = spec.id_tokens
        self._own_ids = own_ids
        #: Tokens that the ids stand for.
        self._named_tokens = len(request.prompt_ids) * spec.id_tokens
        if self.total_tokens > self._named_tokens:
            self._name_blocks()
        self.computed_tokens = 0
        #: Pages held while running; None in the waiting and retracted queues.
        self.lease: Lease | None = None
        #: Prompt tokens found in the cache at the first admission; None before it.
        self.cached_tokens: int | None = None
        #: Tokens below this count as prefill: the prompt, and after a retraction all that were known.
        self.prefill_end_token = self.prompt_tokens
        #: Output length at which it ends.
        self.limit_tokens = min(sampling.max_new_tokens, spec.sequence_limit_tokens - self.prompt_tokens)
        #: What the draws are made of.
        self.draw_seed = seed_of_request(spec.seed, request.request_id) if sampling.seed is None else sampling.seed
        eos_token_ids = () if sampling.ignore_eos else spec.eos_token_ids
        self._stop_token_ids = frozenset((*sampling.stop_token_ids, *eos_token_ids))

    @property
    def output_tokens(self) -> int:
        """Generated tokens."""
        return self.total_tokens - self.prompt_tokens

    @property
    def left_tokens(self) -> int:
        """Tokens that may still be generated; at least 1 until the sequence ends."""
        return self.limit_tokens - self.total_tokens + self.prompt_tokens

    @property
    def is_decoding(self) -> bool:
        """Whether only the token sampled last is to compute."""
        return self.computed_tokens >= self.prefill_end_token

    def append(self, token_id: int) -> FinishReason | None:
        """Add a generated token; returns why the output ends with it, if it does."""
        self.total_tokens += 1
        if self._id_tokens == 1:
            self.token_bytes += pack_tokens((token_id,))
        elif self.total_tokens > self._named_tokens:
            self._name_blocks()
        if token_id in self._stop_token_ids:
            return "stop"
        return "length" if self.total_tokens - self.prompt_tokens >= self.limit_tokens else None

    def skip(self, tokens: int) -> None:
        """Add generated tokens that do not end the output; only where generated tokens are not kept."""
        if self._id_tokens == 1 or self.output_tokens + tokens >= self.limit_tokens:
            raise ValueError(f"{self.request.request_id} cannot skip {tokens} tokens")
        self.total_tokens += tokens
        if self.total_tokens > self._named_tokens:
            self._name_blocks()

    def _name_blocks(self) -> None:
        """An id for each begun block that has none yet."""
        missing = -((self._named_tokens - self.total_tokens) // self._id_tokens)
        self.token_bytes += pack_tokens([OWN_BLOCK | next(self._own_ids) % OWN_BLOCK for _ in range(missing)])
        self._named_tokens += missing * self._id_tokens

    def report(self, token_id: int | None, finish_reason: FinishReason | None) -> TokenOutput:
        """The output that tells about this sequence as it is now."""
        return TokenOutput(
            request_id=self.request.request_id,
            token_id=token_id,
            finish_reason=finish_reason,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens or 0,
            output_tokens=self.total_tokens - self.prompt_tokens,
        )
