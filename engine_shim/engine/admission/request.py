"""A request as the engine takes it, and why it may be refused.

Made by the server from HTTP, read by admission. Values only.
"""

import math
from collections.abc import Sequence
from enum import StrEnum

import msgspec


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How the next token is chosen and when the output ends."""

    #: Output tokens, at most; at least 1.
    max_new_tokens: int
    #: 0 is greedy; otherwise logits are divided by it.
    temperature: float = 0.0
    #: Smallest probability mass to sample from, in (0, 1].
    top_p: float = 1.0
    #: Fixes the draws of this request; None takes one made of the engine's seed and the request id.
    seed: int | None = None
    #: Tokens that end the output, besides the engine's own.
    stop_token_ids: tuple[int, ...] = ()
    #: Do not end at the engine's own end-of-sequence tokens.
    ignore_eos: bool = False

    def find_fault(self) -> str | None:
        """What is wrong with these values, in words; None when nothing is."""
        if self.max_new_tokens < 1:
            return f"max_new_tokens={self.max_new_tokens} must be at least 1"
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            return f"temperature={self.temperature} must be a finite number, 0 or more"
        if not 0 < self.top_p <= 1:
            return f"top_p={self.top_p} must be above 0 and at most 1"
        return None


class EngineRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt to continue."""

    #: Unique among the requests that have not ended.
    request_id: str
    #: Token ids, or ids of the prompt's full blocks where the spec says so (`EngineSpec.id_tokens`).
    prompt_ids: Sequence[int]
    sampling: SamplingParams
    #: Length of the prompt where it is not that of its ids: the last block is not full. None: the ids say it.
    prompt_tokens: int | None = None
    #: Prefixes are shared only inside one salt; None is a salt of its own.
    cache_salt: str | None = None
    #: Conversation, for logs and labels; does not change what is computed.
    session_id: str | None = None
    #: When the server took it, seconds on the engine's clock.
    arrival_s: float = 0.0

    def count_prompt_tokens(self, id_tokens: int) -> int:
        """Length of the prompt, where an id stands for `id_tokens` tokens."""
        return len(self.prompt_ids) * id_tokens if self.prompt_tokens is None else self.prompt_tokens


class RefusalReason(StrEnum):
    """Why a request was not taken."""

    EMPTY_PROMPT = "empty_prompt"
    PROMPT_TOO_LONG = "prompt_too_long"
    LARGER_THAN_POOL = "larger_than_pool"
    OUT_OF_VOCABULARY = "out_of_vocabulary"
    LENGTH_MISMATCH = "length_mismatch"
    SALTED_IDS = "salted_ids"
    BAD_SAMPLING = "bad_sampling"
    DUPLICATE_REQUEST = "duplicate_request"
    QUEUE_FULL = "queue_full"


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A request was not taken; nothing of it is kept."""

    reason: RefusalReason
    #: For the client: field, value and what would be valid.
    message: str
