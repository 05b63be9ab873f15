"""Plain torch: one indexed read or write a layer, heads split in groups where the layout is unified."""

from torch import Tensor

from kernels.layer_table import Layers


def to_page_first(pool: Layers, page_ids: Tensor, out: Tensor, programs: int | None) -> None:  # noqa: ARG001
    """See `kernels.page_layout.to_page_first`; the arguments are checked there."""
    for layer in range(len(pool)):
        out[:, layer] = pool[layer][page_ids.long()]


def from_page_first(pages: Tensor, page_ids: Tensor, pool: Layers, programs: int | None) -> None:  # noqa: ARG001
    """See `kernels.page_layout.from_page_first`; the arguments are checked there."""
    for layer in range(len(pool)):
        pool[layer][page_ids.long()] = pages[:, layer]


def to_unified(pool: Layers, page_ids: Tensor, out: Tensor, programs: int | None) -> None:  # noqa: ARG001
    """See `kernels.page_layout.to_unified`; the arguments are checked there."""
    for layer in range(len(pool)):
        picked = pool[layer][page_ids.long()]
        grouped = picked.reshape(*picked.shape[:2], out.shape[1], *out.shape[4:])
        out[:, :, layer] = grouped.movedim(2, 1)


def from_unified(pages: Tensor, page_ids: Tensor, pool: Layers, programs: int | None) -> None:  # noqa: ARG001
    """See `kernels.page_layout.from_unified`; the arguments are checked there."""
    for layer in range(len(pool)):
        pool[layer][page_ids.long()] = pages[:, :, layer].movedim(1, 2).flatten(2, 3)
