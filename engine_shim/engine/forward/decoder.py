"""A decoder-only transformer with seeded weights: RMS norm, rotary positions, grouped queries, gated feed-forward.

Takes flat tokens and their rows, gives logits; keys and values go through the paged pool. Rows are computed
together: projections over all tokens at once, attention by row.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding, rms_norm, silu

from engine_shim.engine.forward.rotary import RotaryTable
from engine_shim.engine.memory.kv_pool import KvPool
from engine_shim.engine.spec import EngineSpec, ModelSpec
from kernels.paged_append import paged_append
from kernels.paged_extend_attention import paged_extend_attention
from kernels.paged_rows import PagedRows

#: What the logit of an end-of-sequence token is lowered by, so that random weights seldom stop.
_EOS_BIAS = -4.0
#: Spread of the logits; decides how peaked sampling at temperature 1 is.
_LOGIT_GAIN = 3.0


class _Layer(NamedTuple):
    """Weights of one block, [in, out]; norms have no gain."""

    queries_keys_values: Tensor
    attention_out: Tensor
    gate_up: Tensor
    down: Tensor


class Decoder:
    """The model; stateless but for its weights."""

    def __init__(self, spec: EngineSpec, *, seed: int, device: torch.device | str = "cpu") -> None:
        model = spec.model
        chance = torch.Generator().manual_seed(seed)
        self._model = model
        self._rotary = RotaryTable(model.head_dim, model.rope_base, device=device)
        self._embedding = torch.randn(spec.vocabulary_tokens, model.hidden_dim, generator=chance).to(device)
        self._layers = [_make_layer(model, chance, device) for _ in range(model.layers)]
        # A head of its own: tied to the embedding, random weights would answer with the token just read.
        self._head = _make_matrix(model.hidden_dim, spec.vocabulary_tokens, chance, device) * _LOGIT_GAIN
        self._bias = torch.zeros(spec.vocabulary_tokens, device=device)
        self._bias[list(spec.eos_token_ids)] = _EOS_BIAS

    def forward(self, token_ids: Tensor, rows: PagedRows, positions: Tensor, pool: KvPool, last: Tensor) -> Tensor:
        """Compute all rows; write their keys and values; return logits of the tokens in `last`.

        Args:
            token_ids: Of all rows, flat, [tokens], int64.
            rows: Where the tokens stand and where their pages lie.
            positions: Position of each token in its sequence, [tokens], int64.
            pool: Written for these tokens, read for their sequences.
            last: Places on the flat axis whose logits are wanted, [wanted], int64.

        Returns:
            [wanted, vocabulary], float32.
        """
        hidden = self.run_layers(token_ids, rows, positions, pool)
        return torch.addmm(self._bias, _norm(hidden[last]), self._head)

    def run_layers(self, token_ids: Tensor, rows: PagedRows, positions: Tensor, pool: KvPool) -> Tensor:
        """Compute all rows; write their keys and values; return what the last layer makes of every token.

        Args:
            token_ids: Of all rows, flat, [tokens], int64.
            rows: Where the tokens stand and where their pages lie.
            positions: Position of each token in its sequence, [tokens], int64.
            pool: Written for these tokens, read for their sequences.

        Returns:
            [tokens, hidden], float32, not normalized.
        """
        turns = self._rotary.turns(positions)
        hidden = embedding(token_ids, self._embedding)
        for index, layer in enumerate(self._layers):
            hidden = hidden + self._attend(layer, _norm(hidden), turns, rows, pool.layer(index))
            gate, up = (_norm(hidden) @ layer.gate_up).chunk(2, dim=-1)
            hidden = hidden + (silu(gate) * up) @ layer.down
        return hidden

    def _attend(
        self, layer: _Layer, hidden: Tensor, turns: tuple[Tensor, Tensor], rows: PagedRows, pools: tuple[Tensor, Tensor]
    ) -> Tensor:
        model = self._model
        heads = (hidden @ layer.queries_keys_values).reshape(len(hidden), -1, model.head_dim)
        sizes = [model.query_heads, model.kv_heads, model.kv_heads]
        queries, keys, values = torch.split_with_sizes(heads, sizes, dim=1)
        queries, keys = self._rotary.rotate(queries, turns), self._rotary.rotate(keys, turns)
        paged_append(keys, values, *pools, rows.slots)
        attended = paged_extend_attention(queries, *pools, rows, scale=model.head_dim**-0.5)
        return attended.flatten(1) @ layer.attention_out


def _norm(hidden: Tensor) -> Tensor:
    return rms_norm(hidden, hidden.shape[-1:], eps=1e-6)


def _make_layer(model: ModelSpec, chance: torch.Generator, device: torch.device | str) -> _Layer:
    heads_dim = (model.query_heads + 2 * model.kv_heads) * model.head_dim
    return _Layer(
        # Twice the usual scale: attention of random weights would else be nearly flat, and the output deaf to it.
        queries_keys_values=_make_matrix(model.hidden_dim, heads_dim, chance, device) * 2.0,
        attention_out=_make_matrix(model.query_heads * model.head_dim, model.hidden_dim, chance, device),
        gate_up=_make_matrix(model.hidden_dim, 2 * model.feed_forward_dim, chance, device),
        down=_make_matrix(model.feed_forward_dim, model.hidden_dim, chance, device),
    )


def _make_matrix(rows: int, columns: int, chance: torch.Generator, device: torch.device | str) -> Tensor:
    matrix = torch.randn(rows, columns, generator=chance) / math.sqrt(rows)
    return matrix.to(device)
