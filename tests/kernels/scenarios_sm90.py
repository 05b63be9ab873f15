import torch

from kernels.page_gather import page_gather


def gather():
    pool = torch.zeros(4, 6, 64, 8, 128, dtype=torch.bfloat16)
    page_gather(pool, torch.arange(3, dtype=torch.int32))
