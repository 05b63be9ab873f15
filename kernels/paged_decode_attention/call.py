"""The arguments of a decode attention, checked, as both of its computations take them."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class DecodeCall:
    """See `kernels.paged_decode_attention.paged_decode_attention_with_lse`."""

    queries: Tensor
    key_pool: Tensor
    value_pool: Tensor
    page_ids: Tensor
    page_offsets: Tensor | None
    seq_lens: Tensor
    tile_offsets: Tensor
    sinks: Tensor | None
    window_tokens: int | None
    #: Factor on the scores, that on the keys included.
    scale: float
    value_scale: float
