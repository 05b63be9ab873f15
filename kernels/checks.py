"""What ops ask of their tensors before anything is written.

Shapes, dtypes and devices cost nothing to look at. Values are looked at where that is free (`dispatch.can_read`).
"""

import torch
from torch import Tensor

from kernels.dispatch import can_read
from kernels.errors import DtypeMismatch, OverlappingRanges, PageOutOfRange, ShapeMismatch
from kernels.layer_table import Layers, find_spans

#: Dimensions of layers whose pages are one thing each; with more the third counts tokens.
_WITHOUT_TOKENS = 3


def check_pools(key_pool: Tensor, value_pool: Tensor, *, page_tokens: int | None = None) -> None:
    """Raise unless both pools are [pages, page_tokens, kv_heads, head_dim], alike and contiguous."""
    if key_pool.dim() != 4 or key_pool.shape != value_pool.shape:
        raise ShapeMismatch(f"pools {tuple(key_pool.shape)} and {tuple(value_pool.shape)}")
    if not key_pool.shape[1]:
        raise ShapeMismatch(f"the pool is {tuple(key_pool.shape)}: its pages hold no token")
    if page_tokens is not None and key_pool.shape[1] != page_tokens:
        raise ShapeMismatch(f"the pool has {key_pool.shape[1]} tokens a page, the rows say {page_tokens}")
    if key_pool.dtype != value_pool.dtype:
        raise DtypeMismatch(f"key pool {key_pool.dtype}, value pool {value_pool.dtype}")
    if not (key_pool.is_contiguous() and value_pool.is_contiguous()):
        raise ShapeMismatch("the pools must be contiguous")


def check_groups(queries: Tensor, pool: Tensor) -> None:
    """Raise unless query heads share the pool's key heads evenly."""
    if pool.shape[2] == 0 or queries.shape[1] % pool.shape[2]:
        raise ShapeMismatch(f"{queries.shape[1]} query heads are no multiple of {pool.shape[2]} key heads")


def check_layers(name: str, layers: Layers, *, dims: int) -> None:
    """Raise unless `layers` has at least `dims` dimensions, layers counted, and is contiguous."""
    if len(layers.shape) < dims:
        raise ShapeMismatch(f"{name} is {tuple(layers.shape)}, with fewer than {dims} dimensions")
    if dims > _WITHOUT_TOKENS and not layers.shape[2]:
        raise ShapeMismatch(f"{name} is {tuple(layers.shape)}: its pages hold no token")
    if isinstance(layers, Tensor) and not layers.is_contiguous():
        raise ShapeMismatch(f"{name} must be contiguous")


def check_like(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raise unless `tensor` is contiguous, of this shape and dtype."""
    if tuple(tensor.shape) != tuple(shape):
        raise ShapeMismatch(f"{name} is {tuple(tensor.shape)}, not {tuple(shape)}")
    if not tensor.is_contiguous():
        raise ShapeMismatch(f"{name} must be contiguous")
    if tensor.dtype != dtype:
        raise DtypeMismatch(f"{name} is {tensor.dtype}, not {dtype}")


def check_index(name: str, index: Tensor, *, limit: int, lowest: int = 0) -> None:
    """Raise unless `index` is a list of int32 or int64 and, where that can be seen, each in `[lowest, limit)`."""
    check_integers(name, index)
    if index.dim() != 1:
        raise ShapeMismatch(f"{name} is {tuple(index.shape)}, not a list")
    check_range(name, index, limit=limit, lowest=lowest)


def check_integers(name: str, index: Tensor) -> None:
    """Raise unless `index` is int32 or int64, without gaps between its items."""
    if index.dtype not in (torch.int32, torch.int64):
        raise DtypeMismatch(f"{name} is {index.dtype}, neither torch.int32 nor torch.int64")
    if not index.is_contiguous():
        raise ShapeMismatch(f"{name} must be contiguous")


def check_range(name: str, index: Tensor, *, limit: int, lowest: int = 0) -> None:
    """Raise when it can be seen that one of `index` is not in `[lowest, limit)`."""
    if index.numel() and can_read(index):
        least, most = (int(one) for one in index.aminmax())
        if least < lowest or most >= limit:
            raise PageOutOfRange(f"{name} has {least}..{most}, of {limit}")


def check_distinct(name: str, index: Tensor) -> None:
    """Raise when it can be seen that something would be written twice."""
    if index.numel() > 1 and can_read(index):
        ordered = index.sort().values
        if bool((ordered[1:] == ordered[:-1]).any()):
            raise OverlappingRanges(f"{name} names one place twice; it would be written twice")


def check_apart(written: tuple[str, ...], **places: Layers) -> None:
    """Raise when memory of one of `written` overlaps that of another of these, or two layers of its own table."""
    spans = sorted((*span, name) for name, layers in places.items() for span in find_spans(layers) if span[0] < span[1])
    before: list[tuple[int, str]] = []
    for start, end, name in spans:
        before = [(other_end, other) for other_end, other in before if start < other_end]
        for _, other in before:
            if name in written or other in written:
                raise OverlappingRanges(f"{other} and {name} overlap in memory")
        before.append((end, name))
