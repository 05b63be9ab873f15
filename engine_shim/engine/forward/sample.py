"""From logits to tokens: greedy, or by temperature and top-p with a chance that the caller brings.

Pure in its chance: the same logits and draws give the same tokens, in any batch.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from engine_shim.engine.forward.base import Draw


def sample_tokens(logits: Tensor, draws: Sequence[Draw]) -> list[int]:
    """Choose one token a row.

    Args:
        logits: [rows, vocabulary].
        draws: One a row. Temperature 0 takes the highest logit, the lowest token id among equals.
    """
    tokens: list[int] = logits.argmax(dim=-1).tolist()
    chosen = [row for row, draw in enumerate(draws) if draw.temperature > 0]
    if chosen:
        sampled = _sample(logits[chosen], [draws[row] for row in chosen])
        for row, token_id in zip(chosen, sampled, strict=True):
            tokens[row] = token_id
    return tokens


def _sample(logits: Tensor, draws: Sequence[Draw]) -> list[int]:
    """Inverse of the cumulative distribution, over the smallest set of tokens that holds `top_p` of it."""
    logits = logits.double()
    temperatures = logits.new_tensor([draw.temperature for draw in draws])[:, None]
    scaled = (logits - logits.max(dim=-1, keepdim=True).values) / temperatures
    probabilities, token_ids = torch.softmax(scaled, dim=-1).sort(dim=-1, descending=True, stable=True)
    sums = probabilities.cumsum(dim=-1)
    top_p = logits.new_tensor([draw.top_p for draw in draws])[:, None]
    kept = sums - probabilities < top_p  # the first token is always kept
    sums = (probabilities * kept).cumsum(dim=-1)
    points = logits.new_tensor([draw.uniform for draw in draws])[:, None] * sums[:, -1:]
    places = torch.searchsorted(sums, points, right=True)
    places = torch.minimum(places, kept.sum(dim=-1, keepdim=True) - 1)
    chosen: list[int] = token_ids.gather(-1, places)[:, 0].tolist()
    return chosen
