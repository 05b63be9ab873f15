"""Plain torch: each token's flat slot in the pool, then one indexed copy a pool."""

import torch
from torch import Tensor

from kernels.paged_rows import PagedRows


def paged_append_reference(keys: Tensor, values: Tensor, key_pool: Tensor, value_pool: Tensor, rows: PagedRows) -> None:
    """See `kernels.paged_append.paged_append`; the arguments are checked there."""
    slots = find_slots(rows)
    key_pool.flatten(0, 1).index_copy_(0, slots, keys)
    value_pool.flatten(0, 1).index_copy_(0, slots, values)


def find_slots(rows: PagedRows) -> Tensor:
    """Flat slot (page * page_tokens + offset) of every token of the rows, [tokens]."""
    counts = rows.row_tokens
    row_of_token = torch.repeat_interleave(torch.arange(rows.rows, device=counts.device), counts)
    place_in_row = torch.arange(len(row_of_token), device=counts.device) - rows.row_offsets[row_of_token]
    positions = rows.start_tokens[row_of_token] + place_in_row
    pages = rows.page_table[row_of_token, positions // rows.page_tokens]
    return pages * rows.page_tokens + positions % rows.page_tokens
