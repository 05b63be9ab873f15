"""What the rule takes and gives: tokens, rows of tokens, and what a prefill leaves."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.checks import check_integers
from kernels.dispatch import can_read, check_devices
from kernels.errors import DtypeMismatch, ShapeMismatch

#: Tokens that a prefill computes at once.
CHUNK_TOKENS = 64


@dataclass(frozen=True, slots=True)
class RecurrentInputs:
    """Tokens, flat. Value head h uses key head h // (value_heads // key_heads)."""

    #: [tokens, key_heads, key_dim], contiguous; float32, bfloat16 or float16.
    queries: Tensor
    #: Same shape and dtype; of length 1 each, else the state may grow.
    keys: Tensor
    #: [tokens, value_heads, value_dim], contiguous, same dtype.
    values: Tensor
    #: Natural logarithm of what is kept of the state, [tokens, value_heads], float32, at most 0;
    #: -inf where nothing is.
    log_decays: Tensor
    #: How much of what a key holds is replaced, [tokens, value_heads], float32, in 0..1.
    betas: Tensor

    @property
    def state_shape(self) -> tuple[int, int, int]:
        """Shape of one sequence's state: value_heads, key_dim, value_dim."""
        return self.values.shape[1], self.keys.shape[2], self.values.shape[2]

    def check(self) -> None:
        """Raise unless the tensors fit each other."""
        if self.queries.dim() != 3 or self.queries.shape != self.keys.shape:
            raise ShapeMismatch(f"queries {tuple(self.queries.shape)}, keys {tuple(self.keys.shape)}")
        if self.values.dim() != 3 or len(self.values) != len(self.keys):
            raise ShapeMismatch(f"values {tuple(self.values.shape)}, keys {tuple(self.keys.shape)}")
        if not self.keys.shape[1] or self.values.shape[1] % self.keys.shape[1]:
            raise ShapeMismatch(f"{self.values.shape[1]} value heads are no multiple of {self.keys.shape[1]} key heads")
        for name in ("log_decays", "betas"):
            gate = getattr(self, name)
            if gate.shape != self.values.shape[:2]:
                raise ShapeMismatch(f"{name} {tuple(gate.shape)}, values {tuple(self.values.shape)}")
            if gate.dtype != torch.float32:
                raise DtypeMismatch(f"{name} are {gate.dtype}, not torch.float32")
        tensors = {name: getattr(self, name) for name in ("queries", "keys", "values", "log_decays", "betas")}
        for name, tensor in tensors.items():
            if not tensor.is_contiguous():
                raise ShapeMismatch(f"{name} must be contiguous")
        dtypes = {self.queries.dtype, self.keys.dtype, self.values.dtype}
        if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.bfloat16, torch.float16}:
            raise DtypeMismatch(f"queries {self.queries.dtype}, keys {self.keys.dtype}, values {self.values.dtype}")
        check_devices(**tensors)


@dataclass(frozen=True, slots=True)
class DeltaRows:
    """Rows of a prefill. Tensors lie on the states' device, int32 or int64, both alike."""

    #: Where each row's tokens begin on the flat axis, and their end, [rows + 1]; from 0, never falling.
    row_offsets: Tensor
    #: Position of each row's first token in its sequence, [rows].
    start_tokens: Tensor

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.start_tokens)

    def check(self, *, tokens: int) -> None:
        """Raise unless the rows cover `tokens` tokens."""
        check_integers("row_offsets", self.row_offsets)
        check_integers("start_tokens", self.start_tokens)
        if self.start_tokens.dim() != 1 or self.row_offsets.shape != (len(self.start_tokens) + 1,):
            starts = tuple(self.start_tokens.shape)
            raise ShapeMismatch(f"row_offsets {tuple(self.row_offsets.shape)}, start_tokens {starts}")
        if self.row_offsets.dtype != self.start_tokens.dtype:
            raise DtypeMismatch(f"row_offsets {self.row_offsets.dtype}, start_tokens {self.start_tokens.dtype}")
        check_devices(row_offsets=self.row_offsets, start_tokens=self.start_tokens)
        if can_read(self.row_offsets):
            offsets = self.row_offsets
            if int(offsets[0]) != 0 or int(offsets[-1]) != tokens or bool((offsets.diff() < 0).any()):
                raise ShapeMismatch(f"row_offsets {offsets.tolist()} do not cut {tokens} tokens")
            if self.rows and int(self.start_tokens.min()) < 0:
                raise ShapeMismatch("a row starts before its sequence")

    def checkpoint_offsets(self, checkpoint_tokens: int) -> Tensor:
        """How many checkpoints lie before those of each row, and in all, [rows + 1]."""
        ends = self.start_tokens + self.row_offsets.diff()
        counts = ends // checkpoint_tokens - self.start_tokens // checkpoint_tokens
        return torch.cat((counts.new_zeros(1), counts.cumsum(0).to(counts.dtype)))

    def most_checkpoints(self, tokens: int, checkpoint_tokens: int) -> int:
        """How many checkpoints there may be, wherever rows begin; each ends as many tokens, but a row's first."""
        return tokens // checkpoint_tokens + min(self.rows, tokens)


@dataclass(frozen=True, slots=True)
class Prefilled:
    """What a prefill leaves."""

    #: [tokens, value_heads, value_dim], contiguous, in the dtype of the values.
    out: Tensor
    #: State after each row's last token, [rows, value_heads, key_dim, value_dim], float32.
    final_states: Tensor
    #: Checkpoints of all rows one after the other, [capacity, value_heads, key_dim, value_dim]; written up to the last
    #: offset. Row s's j-th is the state after position `(start_tokens[s] // n + j + 1) * n`.
    checkpoints: Tensor
    #: Where each row's checkpoints begin, and their end, [rows + 1]; None where none was asked for.
    checkpoint_offsets: Tensor | None
