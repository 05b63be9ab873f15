"""The indices of a decode step."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

#: Tokens of a context that an attention reads at once, and by which its work is counted.
TILE_TOKENS = 64


@dataclass(frozen=True, slots=True)
class DecodeIndices:
    """Of the sequences of one step. All tensors lie on the pool's device."""

    OFFSET_DTYPE: ClassVar[torch.dtype] = torch.int32
    SLOT_DTYPE: ClassVar[torch.dtype] = torch.int64

    #: Pages of all sequences one after the other, [capacity], dtype of the page table; written up to the last offset.
    page_ids: Tensor
    #: Where each sequence's pages begin, and their end, [sequences + 1], int32.
    page_offsets: Tensor
    #: Tiles before each sequence, see `build_split_plan`, [sequences + 1], int32.
    tile_offsets: Tensor
    #: Slot of each sequence's last token, [sequences], int64; -1 where the sequence is empty.
    slots: Tensor

    @staticmethod
    def empty(sequences: int, page_table: Tensor) -> "DecodeIndices":
        """Room for the indices of so many sequences, each as long as a line of the table may be."""
        return DecodeIndices(
            page_ids=page_table.new_empty((sequences * page_table.shape[1],)),
            page_offsets=page_table.new_empty((sequences + 1,), dtype=DecodeIndices.OFFSET_DTYPE),
            tile_offsets=page_table.new_empty((sequences + 1,), dtype=DecodeIndices.OFFSET_DTYPE),
            slots=torch.empty(sequences, dtype=DecodeIndices.SLOT_DTYPE, device=page_table.device),
        )
