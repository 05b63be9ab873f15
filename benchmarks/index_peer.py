"""The same cases on ai-dynamo-runtime's RadixTree, in an interpreter that has it; prints one line of JSON.

`benchmarks.index` starts it for each case: `python index_peer.py '{"apply": [1, 200000, 16], "repeats": 3}'`. Needs
nothing of ours. Install: `python -m venv ~/.peers/dyn && ~/.peers/dyn/bin/pip install ai-dynamo-runtime==1.6.1`.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from random import Random
from typing import Any

CHAIN_BLOCKS = 1_000
RNG = Random(7)


def cpu_s(call: Callable[[], object]) -> float:
    """CPU seconds of a call, all threads."""
    start_s = time.process_time()
    call()
    return time.process_time() - start_s


def make_event(parent: int | None, names: list[int], tokens: list[int]) -> bytes:
    """A store as the binding takes it: JSON, tokens already hashed."""
    blocks = [
        {"block_hash": name, "tokens_hash": token, "mm_extra_info": None}
        for name, token in zip(names, tokens, strict=True)
    ]
    return json.dumps(
        {"event_id": 0, "dp_rank": 0, "data": {"stored": {"parent_hash": parent, "blocks": blocks}}}
    ).encode()


def make_chain(blocks: int, per_event: int) -> tuple[list[int], list[bytes]]:
    """Token hashes of a chain, and its events."""
    names, tokens = ([RNG.getrandbits(63) for _ in range(blocks)] for _ in range(2))
    return tokens, [
        make_event(names[at - 1] if at else None, names[at : at + per_event], tokens[at : at + per_event])
        for at in range(0, blocks, per_event)
    ]


def measure_apply(peer: Any, case: list[int], repeats: int) -> list[float]:
    """Events a CPU second; a case is blocks an event, (block, holder) pairs, holders."""
    per_event, pairs, holders = case
    batch = [
        (number % holders, event)
        for number in range(pairs // CHAIN_BLOCKS)
        for event in make_chain(CHAIN_BLOCKS, per_event)[1]
    ]

    def run() -> None:
        tree = peer.RadixTree()
        for holder, event in batch:
            tree.apply_event(holder, event)
        tree.find_matches([1])

    return [len(batch) / cpu_s(run) for _ in range(repeats)]


def measure_match(peer: Any, case: tuple[int, list[int]], repeats: int) -> list[float]:
    """Microseconds of a match; a case is blocks, and how many of the first ones each holder has."""
    blocks, depths = case
    tree = peer.RadixTree()
    tokens, events = make_chain(blocks, 1)
    for holder, depth in enumerate(depths):
        for event in events[:depth]:
            tree.apply_event(holder, event)
    if dict(tree.find_matches(tokens).scores) == {}:
        raise AssertionError("the peer found nothing")
    return [1e6 * cpu_s(lambda: [tree.find_matches(tokens) for _ in range(20)]) / 20 for _ in range(3 * repeats)]


def measure_hash(peer: Any, tokens: int, repeats: int) -> list[float]:
    """Milliseconds to hash a prompt in blocks of 16."""
    prompt = [RNG.randrange(150_000) for _ in range(tokens)]
    return [1e3 * cpu_s(lambda: peer.compute_block_hash_for_seq(prompt, 16)) for _ in range(3 * repeats)]


def measure_memory(peer: Any, pairs: int, holders: int, copies: int) -> float:
    """Resident bytes a (block, holder) pair: every chain on `copies` of the holders."""
    before_bytes, tree = resident_bytes(), peer.RadixTree()
    for number in range(pairs // CHAIN_BLOCKS // copies):
        for event in make_chain(CHAIN_BLOCKS, 100)[1]:
            for holder in range(copies) if copies > 1 else [number % holders]:
                tree.apply_event(holder, event)
    tree.find_matches([1])
    return (resident_bytes() - before_bytes) / (pairs // CHAIN_BLOCKS // copies * copies * CHAIN_BLOCKS)


def resident_bytes() -> int:
    """Memory of this process that is in use."""
    with open("/proc/self/statm", encoding="ascii") as told:  # noqa: PTH123  (nothing but the standard library's least)
        return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    """Run the one case that the first argument asks for."""
    os.environ.setdefault("DYN_LOG", "error")
    peer, asked = import_module("dynamo.llm"), json.loads(sys.argv[1])
    repeats = asked.pop("repeats")
    answers: dict[str, Callable[..., Any]] = {
        "apply": lambda case: measure_apply(peer, case, repeats),
        "match": lambda case: measure_match(peer, case, repeats),
        "hash": lambda case: measure_hash(peer, case, repeats),
        "memory": lambda case: measure_memory(peer, *case),
        "version": version,
    }
    print(json.dumps({name: answers[name](case) for name, case in asked.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
