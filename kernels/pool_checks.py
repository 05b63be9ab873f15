"""What every paged op asks of its K and V tensors, before anything is written."""

from torch import Tensor

from kernels.errors import DtypeMismatch, ShapeMismatch


def check_pools(key_pool: Tensor, value_pool: Tensor, *, page_tokens: int) -> None:
    """Raise unless both pools are [pages, page_tokens, kv_heads, head_dim], alike and contiguous."""
    if key_pool.dim() != 4 or key_pool.shape != value_pool.shape:
        raise ShapeMismatch(f"pools {tuple(key_pool.shape)} and {tuple(value_pool.shape)}")
    if key_pool.shape[1] != page_tokens:
        raise ShapeMismatch(f"the pool has {key_pool.shape[1]} tokens a page, the rows say {page_tokens}")
    if key_pool.dtype != value_pool.dtype:
        raise DtypeMismatch(f"key pool {key_pool.dtype}, value pool {value_pool.dtype}")
    if not (key_pool.is_contiguous() and value_pool.is_contiguous()):
        raise ShapeMismatch("the pools must be contiguous")


def check_heads(name: str, rows: Tensor, pool: Tensor) -> None:
    """Raise unless `rows` is [tokens, heads, head_dim] with the pool's head_dim and dtype."""
    if rows.dim() != 3 or rows.shape[2] != pool.shape[3]:
        raise ShapeMismatch(f"{name} {tuple(rows.shape)}, head_dim of the pool is {pool.shape[3]}")
    if rows.dtype != pool.dtype:
        raise DtypeMismatch(f"{name} is {rows.dtype}, the pool {pool.dtype}")
