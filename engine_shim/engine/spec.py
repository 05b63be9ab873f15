"""What one engine rank is made of: cache geometry, limits, model sizes.

Filled by the command line or a test, read by every part of the engine. Values only: opens nothing.
"""

import msgspec


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of the seeded decoder-only model that the torch forward builds."""

    #: Transformer blocks.
    layers: int = 4
    #: Width of the residual stream.
    hidden_dim: int = 128
    #: Query heads; a multiple of `kv_heads`.
    query_heads: int = 4
    #: Key and value heads.
    kv_heads: int = 2
    #: Width of one head; even, for the rotary embedding.
    head_dim: int = 32
    #: Inner width of the gated feed-forward layer.
    feed_forward_dim: int = 256
    #: Base of the rotary embedding's wavelengths.
    rope_base: float = 10_000.0

    def validate(self) -> None:
        """Raise `ValueError` for sizes that do not make a model."""
        for name in ("layers", "hidden_dim", "query_heads", "kv_heads", "head_dim", "feed_forward_dim"):
            _require_positive(name, getattr(self, name))
        if self.query_heads % self.kv_heads:
            raise ValueError(f"query_heads={self.query_heads} must be a multiple of kv_heads={self.kv_heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim={self.head_dim} must be even")


class EngineSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of the engine."""

    #: Tokens in a page; also the block size of the published events.
    page_tokens: int = 16
    #: Pages of the rank's pool; the largest sequence must fit in it.
    pool_pages: int = 4096
    #: Requests that hold pages at the same time, at most.
    max_running_requests: int = 16
    #: Requests that wait for admission, at most; more are refused.
    max_waiting_requests: int = 4096
    #: Prompt tokens computed in one step, at most; decode tokens come on top.
    prefill_chunk_tokens: int = 512
    #: Whether decode tokens count against `prefill_chunk_tokens`, as under vLLM's limit of batched tokens.
    decode_shares_chunk: bool = False
    #: Whether a request is admitted when its known tokens just fit, as vLLM does; else a page is left for the next
    #: tokens of each that runs, so that fewer have to give theirs back.
    admits_tightly: bool = False
    #: Tokens that a prompt's id stands for: 1 for token ids; `page_tokens` where prompts are lists of block ids, as in
    #: traces. The cache then knows pages by those ids, and the ids of generated tokens are not kept.
    id_tokens: int = 1
    #: Prompt plus output of one request, in tokens, at most.
    max_model_len: int = 131_072
    #: Token ids are below this.
    vocabulary_tokens: int = 4096
    #: Tokens that end an output unless the request ignores them.
    eos_token_ids: tuple[int, ...] = ()
    #: Seed of the weights, and of requests that bring no seed.
    seed: int = 0
    #: Sizes of the torch model; unused by the timed forward.
    model: ModelSpec = ModelSpec()

    @property
    def capacity_tokens(self) -> int:
        """Tokens that the pool can hold."""
        return self.page_tokens * self.pool_pages

    @property
    def sequence_limit_tokens(self) -> int:
        """Prompt plus output of one request, capped by the pool, at most."""
        return min(self.max_model_len, self.capacity_tokens)

    @property
    def page_ids(self) -> int:
        """Ids by which the cache knows one page."""
        return self.page_tokens // self.id_tokens

    def validate(self) -> None:
        """Raise `ValueError` that names the field, its value and what would be valid."""
        names = ("page_tokens", "pool_pages", "max_running_requests", "max_waiting_requests", "prefill_chunk_tokens")
        for name in (*names, "vocabulary_tokens"):
            _require_positive(name, getattr(self, name))
        if self.id_tokens not in (1, self.page_tokens):
            raise ValueError(f"id_tokens={self.id_tokens} must be 1 or page_tokens={self.page_tokens}")
        if self.max_model_len < 2:
            raise ValueError(f"max_model_len={self.max_model_len} must be at least 2: one prompt and one output token")
        for token_id in self.eos_token_ids:
            if not 0 <= token_id < self.vocabulary_tokens:
                raise ValueError(f"eos_token_ids: {token_id} is not in 0..{self.vocabulary_tokens - 1}")
        self.model.validate()


def _require_positive(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name}={value} must be at least 1")
