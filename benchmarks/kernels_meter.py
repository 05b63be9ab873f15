"""How the kernels' benchmark takes times, and what it keeps of them. Imports torch only.

On a GPU a time is that between two events on its stream. What takes microseconds is recorded into a graph, many times
over, so that the processor's part does not count; that part is timed apart, as the seconds a call takes to return.
Without a GPU (`--dry-run`) the clock of the processor stands in, and figures mean nothing.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch

#: Calls of one graph.
GRAPH_CALLS = 20

Call = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One row: what is called, how much it moves, and what it is to reach."""

    what: str
    call: Call
    #: Bytes read and written, or operations; the figure is their rate. Without either it is the time.
    moved_bytes: int = 0
    operations: float = 0.0
    #: The ceiling of the same run that the rate is divided by: copy, read, matmul or pinned.
    ceiling: str | None = None
    #: What that ratio is to be at least, or the time in microseconds at most.
    at_least: float | None = None
    at_most_us: float | None = None
    #: The same work by others, by name. With `beside_at_most`, ours is to take at most so many times the best of them.
    others: dict[str, Call] = field(default_factory=dict)
    beside_at_most: float | None = None
    #: Whether it takes microseconds.
    is_short: bool = False


class Meter:
    """Takes times on one device."""

    def __init__(self, *, repeats: int, use_gpu: bool) -> None:
        self.has_gpu = use_gpu
        self.device = torch.device("cuda" if self.has_gpu else "cpu")
        self._repeats = repeats
        #: GB/s or TFLOP/s of this run, by name.
        self.ceilings: dict[str, float] = {}

    def times_s(self, call: Call, *, is_short: bool = False) -> list[float]:
        """Seconds of one call, for each repeat."""
        if not self.has_gpu:
            return [_timed_s(call) for _ in range(self._repeats)]
        call()
        torch.cuda.synchronize()
        if is_short:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(GRAPH_CALLS):
                    call()
            return [one / GRAPH_CALLS for one in self._between_events_s(graph.replay)]
        return self._between_events_s(call)

    def return_s(self, call: Call) -> float:
        """Seconds until a call returns, the device being idle or not."""
        taken = []
        for _ in range(max(self._repeats, 3)):
            taken.append(_timed_s(call))
            if self.has_gpu:
                torch.cuda.synchronize()
        return median(taken)

    def _other_s(self, call: Call, *, is_short: bool) -> float:
        """Seconds of another's call; one that cannot be recorded into a graph is timed without."""
        try:
            return median(self.times_s(call, is_short=is_short))
        except RuntimeError:
            return median(self.times_s(call))

    def try_out(self, case: Case) -> dict[str, Any]:
        """The row of a case, or why there is none: a fault of one is not to cost the time of all others."""
        try:
            return self.measure(case)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is kept in the result
            return {"what": case.what, "failed": f"{type(error).__name__}: {error}"[:500]}

    def _between_events_s(self, call: Call) -> list[float]:
        call()
        pairs = [[_make_event() for _ in range(2)] for _ in range(self._repeats)]
        for start, end in pairs:
            start.record()
            call()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) / 1e3 for start, end in pairs]

    def measure(self, case: Case) -> dict[str, Any]:
        """The row of a case."""
        taken_s = self.times_s(case.call, is_short=case.is_short)
        others_s = {name: self._other_s(call, is_short=case.is_short) for name, call in case.others.items()}
        row = _make_row(case, taken_s, self.ceilings)
        row["time_us"] = median(taken_s) * 1e6
        row["returns_after_us"] = self.return_s(case.call) * 1e6
        if others_s:
            best = min(others_s, key=lambda name: others_s[name])
            row["others_us"] = {name: one * 1e6 for name, one in others_s.items()}
            row["beside"] = {"best": best, "our_time_of_its": median(taken_s) / others_s[best]}
            if case.beside_at_most is not None:
                row["beside"]["at_most"] = case.beside_at_most
                row["beside"]["met"] = row["beside"]["our_time_of_its"] <= case.beside_at_most
        return row


def _timed_s(call: Call) -> float:
    start_s = time.perf_counter()
    call()
    return time.perf_counter() - start_s


def _make_row(case: Case, taken_s: list[float], ceilings: dict[str, float]) -> dict[str, Any]:
    amount, unit = (case.moved_bytes / 1e9, "GB/s") if case.moved_bytes else (case.operations / 1e12, "TFLOP/s")
    if not amount or case.at_most_us is not None:
        values, unit = [1e6 * one for one in taken_s], "us"
    else:
        values = [amount / one for one in taken_s]
    row: dict[str, Any] = {"what": case.what, "value": median(values), "unit": unit}
    row["spread"] = [min(values), max(values)]
    if case.ceiling is not None and unit != "us":
        row["reference"] = f"{case.ceiling} of the same run"
        row["reference_value"] = ceilings[case.ceiling]
        row["ratio"] = row["value"] / ceilings[case.ceiling]
        if case.at_least is not None:
            row["aim"] = {"at_least": case.at_least, "of_ratio": True}
            row["met"] = row["ratio"] >= case.at_least
    if case.at_most_us is not None:
        row["aim"] = {"at_most": case.at_most_us}
        row["met"] = row["value"] <= case.at_most_us
    return row


def measure_ceilings(meter: Meter, *, copy_bytes: int, matmul_side: int) -> None:
    """What this device does at best: a copy, a read, a matrix product, a move out of and into pinned memory."""
    source = torch.zeros(copy_bytes // 4, dtype=torch.float32, device=meter.device)
    target = torch.empty_like(source)
    ceilings = meter.ceilings
    ceilings["copy"] = 2 * source.nbytes / 1e9 / median(meter.times_s(lambda: target.copy_(source)))
    ceilings["read"] = source.nbytes / 1e9 / median(meter.times_s(lambda: torch.sum(source)))
    left = torch.randn(matmul_side, matmul_side, device=meter.device).to(torch.bfloat16)
    taken_s = median(meter.times_s(lambda: left @ left))
    ceilings["matmul"] = 2 * matmul_side**3 / 1e12 / taken_s
    pinned = torch.zeros(source.numel() // 2, dtype=torch.float32, pin_memory=meter.has_gpu)
    part = source[: pinned.numel()]
    for name, call in {
        "pinned out": lambda: pinned.copy_(part, non_blocking=True),
        "pinned in": lambda: part.copy_(pinned, non_blocking=True),
    }.items():
        ceilings[name] = pinned.nbytes / 1e9 / median(meter.times_s(call))


def _make_event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch has no types here
