"""What a trace of block ids may say at most: counts, ids and times, each complaint with its line."""

import math
from array import array
from collections.abc import Sequence

from simulator.graph.request import ID_LIMIT
from simulator.traces.lines import Line, TraceError

#: Longest prompt or output believed, tokens; longest pause or start, seconds.
MAX_TOKENS = 100_000_000
MAX_PAUSE_S = 1e9


def check_counts(line: Line, prompt_tokens: int, output_tokens: int) -> None:
    """Raises TraceError unless both are at least 1 and within the limit."""
    for name, tokens in (("prompt", prompt_tokens), ("output", output_tokens)):
        if not 1 <= tokens <= MAX_TOKENS:
            raise TraceError(line.path, line.number, f"{name} of {tokens} tokens; expected 1 to {MAX_TOKENS:,}")


def check_blocks(line: Line, ids: Sequence[int]) -> "array[int]":
    """The ids, packed; raises TraceError for one that is negative or too large."""
    if ids and not (min(ids) >= 0 and max(ids) < ID_LIMIT):
        raise TraceError(line.path, line.number, f"block ids must be from 0 to {ID_LIMIT - 1:,}")
    return array("I", ids)


def check_pause(line: Line, pause_s: float) -> float:
    """The seconds; raises TraceError for what is negative, not finite or too long."""
    if not (math.isfinite(pause_s) and 0 <= pause_s <= MAX_PAUSE_S):
        raise TraceError(line.path, line.number, f"a time of {pause_s} s; expected 0 to {MAX_PAUSE_S:.0f}")
    return pause_s
