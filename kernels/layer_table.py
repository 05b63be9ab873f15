"""Tensors of equal shape, one a layer, that a single launch addresses through a table of pointers.

A pool whose layers are one tensor needs no table. One whose keys and values, or layers, were allocated apart is
given as a table, which is made once and kept: the pointers lie on the device already when an op is called.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.dispatch import check_devices
from kernels.errors import DtypeMismatch, ShapeMismatch


@dataclass(frozen=True, slots=True, eq=False)
class LayerTable:
    """Made by `of`. It keeps its tensors alive, and is only good while they stay where they are."""

    #: One a layer, in the order in which ops copy them.
    tensors: tuple[Tensor, ...]
    #: Their addresses, [layers], int64, on their device.
    pointers: Tensor
    #: First address of each, and the one after its last.
    spans: tuple[tuple[int, int], ...]

    @staticmethod
    def of(tensors: Sequence[Tensor]) -> "LayerTable":
        """Take tensors of one shape.

        Raises:
            ShapeMismatch: There is none, shapes differ, or one is not contiguous.
            DtypeMismatch: Dtypes or devices differ.
        """
        if not tensors:
            raise ShapeMismatch("a table needs a layer at least")
        first = tensors[0]
        for layer, tensor in enumerate(tensors):
            if tensor.shape != first.shape or not tensor.is_contiguous():
                raise ShapeMismatch(f"layer {layer} is {tuple(tensor.shape)}, not a contiguous {tuple(first.shape)}")
            if tensor.dtype != first.dtype:
                raise DtypeMismatch(f"layer {layer} is {tensor.dtype}, the first {first.dtype}")
        check_devices(**{f"layer_{layer}": tensor for layer, tensor in enumerate(tensors)})
        pointers = torch.tensor([tensor.data_ptr() for tensor in tensors], dtype=torch.int64).to(first.device)
        return LayerTable(tensors=tuple(tensors), pointers=pointers, spans=tuple(map(find_span, tensors)))

    @property
    def shape(self) -> torch.Size:
        """Shape that all layers stacked would have, [layers, ...]."""
        return torch.Size((len(self.tensors), *self.tensors[0].shape))

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of all layers."""
        return self.tensors[0].dtype

    @property
    def device(self) -> torch.device:
        """Device of all layers."""
        return self.tensors[0].device

    def __len__(self) -> int:
        """How many layers there are."""
        return len(self.tensors)

    def __getitem__(self, layer: int) -> Tensor:
        """One layer."""
        return self.tensors[layer]


def find_span(tensor: Tensor) -> tuple[int, int]:
    """First address of a tensor, and the one after its last, gaps between its rows counted."""
    if not tensor.numel():
        return tensor.data_ptr(), tensor.data_ptr()
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


#: A pool by layers: one tensor [layers, ...], or a table of tensors [...].
Layers = Tensor | LayerTable


def any_tensor(layers: Layers) -> Tensor:
    """A tensor that tells device and dtype of all layers."""
    return layers if isinstance(layers, Tensor) else layers.tensors[0]


def find_spans(layers: Layers) -> tuple[tuple[int, int], ...]:
    """First address, and the one after the last, of each piece that lies alone."""
    return layers.spans if isinstance(layers, LayerTable) else (find_span(layers),)
