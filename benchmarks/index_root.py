"""Removing and storing again the root of a long chain: what it costs, and what any other call sees of it.

A hole at the root is a change for every descendant; the index tells them by and by, a little with each call.
"""

import time
from collections.abc import Callable, Sequence
from itertools import cycle
from random import Random
from typing import Any

from benchmarks.chains import BLOCK_TOKENS, MODEL, encode, fill_holders, holder, make_chain
from benchmarks.run_facts import SEED
from benchmarks.timing import cpu_s, repeat_s
from prefix_index import BlockChain, block_hashes
from prefix_index.native import NativePrefixIndex
from wire.block_hash import namespace_seed
from wire.events import BlockRemoved

DESCENDANTS = 100_000
#: Other calls after each removal or store, if the index is not settled before.
_CALLS = 2_000


class RootCase:
    """An index with one chain of many descendants on one holder, and small ones on another."""

    def __init__(self, tokens: Sequence[int], descendants: int) -> None:
        rng = Random(SEED)
        self.index = NativePrefixIndex()
        fill_holders(self.index, 2)
        long = tokens[: (descendants + 1) * BLOCK_TOKENS]
        events = make_chain(rng, long, 1)
        self.index.apply_payloads(holder(0), [encode(event) for event in events])
        self.root, self.gone = encode(events[0]), encode(BlockRemoved(block_hashes=events[0].block_hashes))
        self.long_chain = self._make_chain(long)
        short = tokens[-256 * BLOCK_TOKENS :]
        self.short_payloads = cycle([encode(event) for event in make_chain(rng, short, 1)])
        self.short_chain = self._make_chain(short)

    def other_calls(self) -> dict[str, Callable[[], object]]:
        """What others ask meanwhile: an event of another holder, a match of another prompt, a match of this chain."""
        return {
            "event": lambda: self.index.apply_payloads(holder(1), [next(self.short_payloads)]),
            "match": lambda: self.index.find_reuse(self.short_chain),
            "match_of_it": lambda: self.index.find_reuse(self.long_chain),
        }

    def toggle(self, payload: bytes) -> float:
        """CPU seconds that the removal or store of the root itself takes."""
        return cpu_s(lambda: self.index.apply_payloads(holder(0), [payload]))

    def find_worst_s(self, call: Callable[[], object], payload: bytes | None) -> float:
        """The longest that one of many such calls takes after `payload`; thread time, so no other process counts."""
        if payload is not None:
            self.toggle(payload)
        worst_s = 0.0
        for _ in range(_CALLS):
            start_s = time.thread_time()
            call()
            worst_s = max(worst_s, time.thread_time() - start_s)
            if payload is not None and not self.index.count().unsettled_edges:
                break
        return worst_s

    def settle(self) -> int:
        """Make calls until every descendant was told; says how many it took."""
        steps = 0
        while self.index.count().unsettled_edges:
            self.index.find_reuse(self.short_chain)
            steps += 1
        return steps

    @staticmethod
    def _make_chain(tokens: Sequence[int]) -> BlockChain:
        return BlockChain(BLOCK_TOKENS, tuple(block_hashes(tokens, BLOCK_TOKENS, namespace_seed(MODEL))), 1 << 30)


def measure_root(tokens: Sequence[int], repeats: int, descendants: int) -> dict[str, Any]:
    """Microseconds of removing and storing the root, and the worst single call of each kind beside it and alone."""
    case = RootCase(tokens, descendants)
    removals, stores, settling_calls = [], [], 0
    alone: dict[str, list[float]] = {name: [] for name in case.other_calls()}
    beside: dict[str, list[float]] = {name: [] for name in case.other_calls()}
    for _ in range(repeats):
        removals.append(case.toggle(case.gone))
        settling_calls = case.settle()
        stores.append(case.toggle(case.root))
        case.settle()
        for name, call in case.other_calls().items():
            alone[name].append(1e6 * case.find_worst_s(call, None))
            worst_s = 0.0
            for payload in (case.gone, case.root):
                worst_s = max(worst_s, case.find_worst_s(call, payload))
                case.settle()
            beside[name].append(1e6 * worst_s)
    both = repeat_s(lambda: case.index.apply_payloads(holder(0), [case.gone, case.root]), repeats, calls=100)
    return {
        "descendants": descendants,
        "remove_us": [1e6 * taken_s for taken_s in removals],
        "store_us": [1e6 * taken_s for taken_s in stores],
        "remove_and_store_us": [1e6 * taken_s for taken_s in both],
        "calls_until_settled": settling_calls,
        "worst_call_us": beside,
        "worst_call_alone_us": alone,
    }
