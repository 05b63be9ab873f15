"""Open a trace of block ids and tell its form from its first line."""

from itertools import chain
from pathlib import Path
from typing import Any

from simulator.graph.agentic import read_agentic
from simulator.graph.mooncake import read_mooncake
from simulator.graph.request import BlockTrace
from simulator.graph.weka import WekaSampling, read_weka_graph
from simulator.traces.lines import TraceError, read_lines

EXPECTED = "Weka sessions, agentic Mooncake version 2, or Mooncake"


def read_trace(path: Path, *, sampling: WekaSampling | None = None, block_tokens: int = 64) -> BlockTrace:
    """The requests of a .jsonl or .jsonl.xz file.

    Args:
        path: The file.
        sampling: What to take of a corpus of sessions; other forms are taken whole.
        block_tokens: Size of the blocks that a Mooncake trace's are split into.

    Raises:
        TraceError: The file cannot be read, is of no known form, or holds no request.
    """
    lines = read_lines(path)
    first = next(lines, None)
    if first is None:
        raise TraceError(path, None, f"the file is empty; expected {EXPECTED}")
    keys = first.decode(dict[str, Any], f"a JSON object: {EXPECTED}").keys()
    every = chain([first], lines)
    if "schema" in keys:
        trace = read_agentic(every, path)
    elif {"requests", "block_size"} <= keys:
        trace = read_weka_graph(every, path, sampling or WekaSampling())
    elif {"timestamp", "hash_ids"} <= keys:
        trace = read_mooncake(every, path, block_tokens=block_tokens)
    else:
        raise TraceError(path, first.number, f"unknown form; expected {EXPECTED}")
    if not trace.requests:
        raise TraceError(path, None, "the trace holds no request")
    return trace
