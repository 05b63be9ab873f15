"""The torch forward: a step's rows through the seeded decoder and the paged pool, then sampling.

Imported by `toy.build_torch_forward` when one is asked for, so that the timed engine runs without torch.
"""

from collections.abc import Sequence

import torch

from engine_shim.engine.cache.token_bytes import TOKEN_BYTES, unpack_tokens
from engine_shim.engine.forward.base import ForwardRow
from engine_shim.engine.forward.decoder import Decoder
from engine_shim.engine.forward.sample import sample_tokens
from engine_shim.engine.memory.kv_pool import KvPool
from engine_shim.engine.spec import EngineSpec
from kernels.paged_rows import PagedRows


class TorchForward:
    """Owns the weights and the pool of one rank."""

    def __init__(self, spec: EngineSpec, *, seed: int, device: torch.device | str = "cpu") -> None:
        self._page_tokens = spec.page_tokens
        self._device = device
        self._decoder = Decoder(spec, seed=seed, device=device)
        self.pool = KvPool(spec, dtype=torch.float32, device=device)

    @torch.inference_mode()
    def run(self, rows: Sequence[ForwardRow]) -> list[int | None]:
        """Compute all rows in one pass; one token for each row with a draw."""
        counts = [len(row.token_bytes) // TOKEN_BYTES for row in rows]
        paged = PagedRows.of(
            [row.pages for row in rows],
            [row.start_token for row in rows],
            counts,
            page_tokens=self._page_tokens,
            device=self._device,
        )
        flat = [torch.arange(row.start_token, row.start_token + n) for row, n in zip(rows, counts, strict=True)]
        positions = torch.cat(flat).to(self._device)
        token_ids = torch.tensor(unpack_tokens(b"".join(row.token_bytes for row in rows)), device=self._device)
        drawn = [index for index, row in enumerate(rows) if row.draw is not None]
        last = paged.row_offsets[1:][drawn] - 1
        logits = self._decoder.forward(token_ids, paged, positions, self.pool, last)
        tokens = iter(sample_tokens(logits, [row.draw for row in rows if row.draw is not None]))
        return [None if row.draw is None else next(tokens) for row in rows]
