"""Rotary positions: pairs of a head's values are turned by an angle that grows with the position."""

import torch
from torch import Tensor


class RotaryTable:
    """Angles for one head size."""

    def __init__(self, head_dim: int, base: float, *, device: torch.device | str = "cpu") -> None:
        exponents = torch.arange(0, head_dim, 2, device=device, dtype=torch.float64) / head_dim
        #: Radians a position, [head_dim / 2]; double, so that far positions stay exact.
        self._frequencies = base**-exponents

    def turns(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines for `positions` [tokens], each [tokens, 1, head_dim / 2], float32."""
        angles = positions[:, None].double() * self._frequencies
        return angles.cos().float()[:, None], angles.sin().float()[:, None]

    @staticmethod
    def rotate(heads: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        """Turn [tokens, heads, head_dim]; the first half of a head is paired with the second."""
        cosines, sines = turns
        first, second = heads.chunk(2, dim=-1)
        return torch.cat((first * cosines - second * sines, first * sines + second * cosines), dim=-1)
