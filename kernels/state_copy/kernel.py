"""A row copy indexed on both sides, which converts."""

from math import prod

from torch import Tensor

from kernels.layer_table import Layers
from kernels.row_copy.kernel import launch_row_copy
from kernels.row_copy.plan import RowCopy, Side


def state_copy(source: Layers, source_slots: Tensor, target: Layers, target_slots: Tensor) -> None:
    """See `kernels.state_copy.state_save`; the arguments are checked there."""
    state = prod(source.shape[2:])
    sides = [
        Side(layers, layer_stride=layers.shape[1] * state, page_stride=state, row_stride=state, index=slots)
        for layers, slots in ((source, source_slots), (target, target_slots))
    ]
    launch_row_copy(
        RowCopy(
            source=sides[0],
            target=sides[1],
            layers=len(source),
            pages=len(source_slots),
            page_rows=1,
            row_elements=state,
        )
    )
