"""The arguments of an extend attention, checked, as both of its computations take them."""

from dataclasses import dataclass

from torch import Tensor

from kernels.paged_rows import PagedRows


@dataclass(frozen=True, slots=True)
class ExtendCall:
    """See `kernels.paged_extend_attention.paged_extend_attention_with_lse`."""

    queries: Tensor
    key_pool: Tensor
    value_pool: Tensor
    rows: PagedRows
    mask: Tensor | None
    sinks: Tensor | None
    window_tokens: int | None
    #: Factor on the scores, that on the keys included.
    scale: float
    value_scale: float
