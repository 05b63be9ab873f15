"""How much a matrix product loses while pages go to the host beside it, in few programs, on a stream of their own."""

from statistics import median

import torch

from benchmarks.kernels_copies import HOST_PROGRAMS, make_host_copy
from benchmarks.kernels_meter import Meter
from benchmarks.kernels_sizes import Sizes

#: Matrix products that are timed together.
PRODUCTS = 40
#: What they may lose.
AT_MOST = 0.05


def measure_overlap(meter: Meter, sizes: Sizes) -> dict[str, object]:
    """Seconds of a run of products alone and beside the copy; nothing without a GPU."""
    if not meter.has_gpu:
        return {"skipped": "there is no GPU"}
    copy = make_host_copy(meter, sizes)
    side = torch.randn(sizes.matmul_side, sizes.matmul_side, device=meter.device).to(torch.bfloat16)
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch has no types here

    def products() -> None:
        for _ in range(PRODUCTS):
            side @ side

    def both() -> None:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            copy()
        products()

    alone_s = median(meter.times_s(products))
    beside_s = median(meter.times_s(both))
    lost = beside_s / alone_s - 1
    return {
        "programs": HOST_PROGRAMS,
        "alone_ms": 1e3 * alone_s,
        "beside_ms": 1e3 * beside_s,
        "lost_ratio": lost,
        "at_most": AT_MOST,
        "met": lost <= AT_MOST,
    }
