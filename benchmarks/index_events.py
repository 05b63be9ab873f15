"""How fast events enter the index, and how many bytes a (block, holder) pair takes there."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.chains import apply_all, fill_holders, holder, make_payloads
from benchmarks.timing import repeat_s
from prefix_index import NaivePrefixIndex
from wire.dialects import decode_batch
from wire.events import EventBatch

#: Blocks an event, (block, holder) pairs, holders.
Case = tuple[int, int, int]
CASES: list[Case] = [(1, 200_000, 16), (1, 1_000_000, 128), (16, 1_000_000, 128), (100, 1_000_000, 128)]
MEMORY_PAIRS = 1_000_000
#: Events that the index in Python takes as a sample.
_SAMPLE_BLOCKS = 4_000


def measure_apply(tokens: Sequence[int], repeats: int, case: Case) -> dict[str, Any]:
    """Events a CPU second, from wire bytes in memory, one native call a holder."""
    per_event, pairs, holders = case
    lists = make_payloads(tokens, per_event, pairs, holders)
    events = sum(map(len, lists))
    sample = lists[0][: max(1, _SAMPLE_BLOCKS // per_event)]
    return {
        "blocks_per_event": per_event,
        "pairs": pairs,
        "holders": holders,
        "bytes_per_event": sum(map(len, lists[0])) / len(lists[0]),
        "events_per_s": [events / taken_s for taken_s in repeat_s(lambda: apply_all(lists, holders), repeats)],
        "python_events_per_s": [len(sample) / taken_s for taken_s in repeat_s(lambda: apply_slowly(sample), repeats)],
    }


def apply_slowly(payloads: list[bytes]) -> None:
    """One list through the decoder and the index in Python."""
    index = NaivePrefixIndex()
    fill_holders(index, 1)
    for payload in payloads:
        batch = decode_batch(payload)
        if isinstance(batch, EventBatch):
            index.apply(holder(0), batch.events[0])


def measure_memory(tokens: Sequence[int], pairs: int) -> dict[str, Any]:
    """Bytes a pair: every chain on all of 16 holders, or each chain on one of 128.

    Call first in a process, while it has no freed memory to reuse.
    """
    results = {}
    for name, holders, copies in (("shared_by_16", 16, 16), ("disjoint", 128, 1)):
        lists = make_payloads(tokens, 100, pairs // copies, 1 if copies > 1 else holders)
        before_bytes = resident_bytes()
        index = apply_all(lists * copies, holders)
        count = index.count()
        results[name] = {
            "pairs": count.entries,
            "bytes": count.size_bytes / count.entries,
            "resident_bytes": (resident_bytes() - before_bytes) / count.entries,
        }
        del index
    return results


def resident_bytes() -> int:
    """Memory of this process that is in use."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
