"""What the tests of the row-copy family share: pools whose every element is another, and places to copy to."""

from random import Random

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from kernels.layer_table import LayerTable

DTYPES = (torch.int8, torch.float16, torch.bfloat16, torch.float32, torch.int64)
SIZES = {"layers": (1, 3), "pages": (1, 6), "page_tokens": (1, 5), "heads": (1, 4), "head_dim": (1, 9)}

#: The device is asked for once a test, which is right: nothing of it changes between examples.
few = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@st.composite
def shapes(draw):
    """Sizes of a pool, odd ones and such that are whole units of 16 bytes."""
    sizes = {name: draw(st.integers(*span), label=name) for name, span in SIZES.items()}
    if draw(st.booleans(), label="wide"):
        sizes["head_dim"] = draw(st.sampled_from([16, 32, 144]), label="wide head_dim")
    return sizes


@st.composite
def pools(draw, device, dims="layers pages page_tokens heads head_dim"):
    """A pool of one dtype, and whether ops are to get it as a table of layers."""
    sizes = draw(shapes())
    pool = fill([sizes[name] for name in dims.split()], draw(st.sampled_from(DTYPES)), device)
    return pool, draw(st.booleans(), label="as a table")


def fill(shape, dtype, device):
    """Bytes that tell places apart, also where the dtype is a float: some are NaN."""
    size = torch.Size(shape).numel() * dtype.itemsize
    chance = torch.Generator().manual_seed(size)
    return torch.randint(256, (size,), dtype=torch.uint8, generator=chance).view(dtype).view(shape).to(device)


def as_layers(pool, is_table):
    return LayerTable.of([*pool]) if is_table else pool


@st.composite
def picks(draw, limit, device, *, distinct, count=None):
    """Numbers below `limit`."""
    chance = Random(draw(st.integers(0, 2**16), label="seed of the index"))
    if count is None:
        count = draw(st.integers(0, limit if distinct else limit + 2), label="length of the index")
    numbers = chance.sample(range(limit), count) if distinct else chance.choices(range(limit), k=count)
    return torch.tensor(numbers, dtype=draw(st.sampled_from([torch.int32, torch.int64])), device=device)


def same_bytes(got, expected):
    """Whether two tensors are alike bit by bit, NaN or not."""
    return got.dtype == expected.dtype and torch.equal(as_bytes(got), as_bytes(expected))


def as_bytes(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).reshape(*tensor.shape, tensor.element_size()).cpu()
