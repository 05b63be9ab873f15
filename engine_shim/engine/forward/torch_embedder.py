"""Vectors of texts from the torch model: hidden states of the last layer, averaged, of length 1.

Keeps its weights (equal seeds give equal ones) and a pool of its own for the one text at a time, so that nothing of a
rank's cache is touched.
"""

import threading
from collections.abc import Sequence

import msgspec
import torch
from torch.nn.functional import normalize, rms_norm

from engine_shim.engine.forward.decoder import Decoder
from engine_shim.engine.memory.kv_pool import KvPool
from engine_shim.engine.spec import EngineSpec
from kernels.paged_rows import PagedRows


class TorchEmbedder:
    """The model, for one text after the other."""

    def __init__(self, spec: EngineSpec, *, seed: int) -> None:
        self._page_tokens = spec.page_tokens
        self._decoder = Decoder(spec, seed=seed)
        pages = -(-spec.max_model_len // spec.page_tokens)
        self._pool = KvPool(msgspec.structs.replace(spec, pool_pages=pages), dtype=torch.float32)
        self._lock = threading.Lock()

    @torch.inference_mode()
    def embed(self, token_ids: Sequence[int]) -> list[float]:
        """One vector, `hidden_dim` long."""
        count = len(token_ids)
        pages = list(range(-(-count // self._page_tokens)))
        rows = PagedRows.of([pages], [0], [count], page_tokens=self._page_tokens)
        with self._lock:
            hidden = self._decoder.run_layers(torch.tensor(token_ids), rows, torch.arange(count), self._pool)
        states = rms_norm(hidden, hidden.shape[-1:], eps=1e-6)
        vector: list[float] = normalize(states.mean(dim=0), dim=0).tolist()
        return vector
