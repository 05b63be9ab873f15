"""How times are taken: CPU seconds, so that other work on the machine counts only as far as it takes caches away."""

import time
from collections.abc import Callable, Sequence
from statistics import median, quantiles


def cpu_s(call: Callable[[], object]) -> float:
    """CPU seconds of a call, all threads of this process."""
    start_s = time.process_time()
    call()
    return time.process_time() - start_s


def repeat_s(call: Callable[[], object], repeats: int, *, calls: int = 1) -> list[float]:
    """CPU seconds of one call, measured `calls` at a time, for each repeat."""
    return [cpu_s(lambda: [call() for _ in range(calls)]) / calls for _ in range(repeats)]


def find_p99(values: Sequence[float]) -> float:
    """99th percentile; the largest of few."""
    return quantiles(values, n=100)[98] if len(values) >= 100 else max(values)


def describe_times(taken_s: Sequence[float]) -> dict[str, float]:
    """Median and 99th percentile in milliseconds."""
    return {"p50_ms": 1e3 * median(taken_s), "p99_ms": 1e3 * find_p99(taken_s)}
