"""How many multiprocessors a device has: what kernels go by that share work evenly."""

from functools import cache

import torch


@cache
def count_processors(device: torch.device) -> int:
    """Multiprocessors of a GPU; 1 elsewhere."""
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
