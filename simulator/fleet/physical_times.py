"""An engine's step by what its hardware must do: arithmetic of a prefill, bytes of a decode.

    prefill = (2 * parameters * u) / matmul + (4 * heads * head_dim * layers * u * (L - u / 2)) / attention
    decode  = weights / read + context * kv_bytes / read

A step that prefills reads the weights behind its arithmetic. Everything is divided by the GPUs of the rank.
"""

from collections.abc import Sequence

from msgspec import Struct

from engine_shim.engine.admission.admission import PlannedRow
from simulator.fleet.times import StepTimes


class Hardware(Struct, frozen=True, kw_only=True):
    """One GPU, in units a second.

    The defaults are an H200's as measured (8192^3 bf16 product, paged attention extend, device read), at the share of
    them that good kernels reach.
    """

    matmul_flops: float = 0.7 * 793e12
    attention_flops: float = 430e12
    read_bytes: float = 0.9 * 4_580e9
    #: Seconds of a step that no arithmetic hides: launches, sampling, scheduling.
    step_s: float = 2e-3


class Model(Struct, frozen=True, kw_only=True):
    """Sizes that decide times. The defaults are a dense model of 32e9 parameters in bf16, KV 192 KiB a token."""

    parameters: float = 32e9
    parameter_bytes: float = 2.0
    layers: int = 48
    query_heads: int = 64
    kv_heads: int = 8
    head_dim: int = 128
    kv_value_bytes: float = 2.0

    @property
    def kv_token_bytes(self) -> float:
        """Bytes of keys and values of one token."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.kv_value_bytes


class PhysicalTimes:
    """Times of a rank of `gpus` GPUs, split evenly."""

    def __init__(
        self, model: Model | None = None, hardware: Hardware | None = None, *, gpus: int = 4, speedup_ratio: float = 1.0
    ) -> None:
        self.model, self.hardware = model or Model(), hardware or Hardware()
        self._gpus = gpus
        sizes, chip = self.model, self.hardware
        share = 1.0 / (gpus * speedup_ratio)
        self._step_s = chip.step_s / speedup_ratio
        self._token_s = share * 2 * sizes.parameters / chip.matmul_flops
        pair_flops = 4 * sizes.query_heads * sizes.head_dim * sizes.layers
        self._pair_s = share * pair_flops / chip.attention_flops
        self._weights_s = share * sizes.parameters * sizes.parameter_bytes / chip.read_bytes
        self._context_token_s = share * sizes.kv_token_bytes / chip.read_bytes

    def measure(self, rows: Sequence[PlannedRow]) -> StepTimes:
        """See `EngineTimes`."""
        prefill_s = 0.0
        decoding = context_tokens = 0
        for row in rows:
            sequence = row.sequence
            new_tokens = row.end_token - sequence.computed_tokens
            if sequence.is_decoding:
                decoding += 1
                context_tokens += sequence.total_tokens
            else:
                prefill_s += self.prefill_s(new_tokens, row.end_token)
        weights_s = max(0.0, self._weights_s - prefill_s)
        first_s = self._step_s + prefill_s + weights_s + self._context_token_s * context_tokens
        return StepTimes(first_s, self._context_token_s * decoding)

    def prefill_s(self, new_tokens: int, end_token: int) -> float:
        """Seconds to compute the last `new_tokens` of `end_token`, without what a step costs anyway."""
        pairs = new_tokens * (end_token - new_tokens / 2)
        return self._token_s * new_tokens + self._pair_s * pairs
