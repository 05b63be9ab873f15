"""The tensors of a rank's paged KV cache.

Sizes come from the spec; forward writes and reads through the kernels. Which page belongs to whom is the
prefix cache's business.
"""

import torch
from torch import Tensor

from engine_shim.engine.spec import EngineSpec


class KvPool:
    """Keys and values of all layers, by page."""

    def __init__(self, spec: EngineSpec, *, dtype: torch.dtype, device: torch.device | str = "cpu") -> None:
        model = spec.model
        shape = (model.layers, spec.pool_pages, spec.page_tokens, model.kv_heads, model.head_dim)
        #: [layers, pages, page_tokens, kv_heads, head_dim]; zeros, so that untouched pages cost no memory.
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        #: Same shape.
        self.values = torch.zeros(shape, dtype=dtype, device=device)

    @property
    def size_bytes(self) -> int:
        """Bytes of both tensors."""
        return self.keys.nbytes + self.values.nbytes

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer, [pages, page_tokens, kv_heads, head_dim] each."""
        return self.keys[index], self.values[index]
