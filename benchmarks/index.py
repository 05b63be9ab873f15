"""Speed and size of the prefix index: `python -m benchmarks.index [--json] [--out FILE]`.

Every figure stands beside a reference measured in the same run: the plainest index that could work
(hash -> set of holders), the Python hash, and ai-dynamo-runtime's RadixTree where it is installed.
Ratios above 1 are in our favour.
"""

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import time
import tracemalloc
from array import array
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import msgspec

from prefix_index import BlockChain, NaivePrefixIndex, block_hashes
from prefix_index.hashing import native_available
from prefix_index.stream import RankStream
from wire import block_hash, frames
from wire.dialects import decode_batch, vllm
from wire.events import BlockRemoved, BlockStored, EventBatch
from wire.ids import Target, WorkerId

SEED = 7
BLOCK_TOKENS = 16
MATCH_BLOCKS = 8_000
MATCH_HOLDERS = 64
HASH_TOKENS = 131_072
CHAIN_BLOCKS = 1_000


class SetIndex:
    """The reference: a set of holders for every hash, no copies, no tiers, no chains."""

    def __init__(self) -> None:
        self.holders: dict[int, set[int]] = {}

    def take(self, holder: int, payload: bytes) -> None:
        """Apply a payload of stores as they come."""
        for event in msgspec.msgpack.decode(payload)[1]:
            for name in event["block_hashes"]:
                self.holders.setdefault(name, set()).add(holder)

    def find(self, names: Sequence[int]) -> dict[int, int]:
        """Blocks in a row that each holder has."""
        found: dict[int, int] = {}
        alive = self.holders.get(names[0], set())
        for depth, name in enumerate(names):
            still = alive & self.holders.get(name, set())
            found |= dict.fromkeys(alive - still, depth)
            alive = still
            if not alive:
                break
        return found | dict.fromkeys(alive, len(names))


def chain_events(rng: Random, blocks: int) -> tuple[list[int], list[BlockStored]]:
    """A random prompt of `blocks` blocks, and one event for each of them."""
    tokens = [rng.randrange(150_000) for _ in range(blocks * BLOCK_TOKENS)]
    names = [rng.getrandbits(63) for _ in range(blocks)]
    events = [
        BlockStored(
            block_hashes=(names[index],),
            parent_block_hash=names[index - 1] if index else None,
            token_ids=tuple(tokens[index * BLOCK_TOKENS : (index + 1) * BLOCK_TOKENS]),
            block_tokens=BLOCK_TOKENS,
        )
        for index in range(blocks)
    ]
    return tokens, events


def time_each(call: Callable[[], object], repeats: int) -> dict[str, float]:
    """Median and extremes of the CPU seconds a call takes: other work on the machine does not count."""
    taken = []
    for _ in range(repeats):
        start_s = time.process_time()
        call()
        taken.append(time.process_time() - start_s)
    return {"median_s": median(taken), "min_s": min(taken), "max_s": max(taken)}


def holder(number: int) -> Target:
    """Name of a holder."""
    return Target(WorkerId(f"w{number}"), 0)


def new_index(holders: int) -> NaivePrefixIndex:
    """An empty index with holders."""
    index = NaivePrefixIndex()
    for number in range(holders):
        index.attach(holder(number), model="m")
    return index


def measure_apply(repeats: int, blocks: int) -> dict[str, Any]:
    """Single-block events from wire bytes, chains of 1,000 blocks over 16 holders."""
    rng, workers = Random(SEED), 16
    messages: list[list[list[bytes]]] = [[] for _ in range(workers)]
    for number in range(blocks // CHAIN_BLOCKS):
        live = messages[number % workers]
        for event in chain_events(rng, CHAIN_BLOCKS)[1]:
            payload = vllm.encode_batch(EventBatch(ts_s=1.0, events=(event,), dp_rank=0), "0.32")
            live.append(frames.encode_live("kv", len(live), payload))

    def ours() -> None:
        index = new_index(workers)
        for number, live in enumerate(messages):
            stream = RankStream(holder(number), index, replay_available=False)
            for parts in live:
                stream.on_live(parts, 0.0)

    def reference() -> None:
        plain = SetIndex()
        for number, live in enumerate(messages):
            for parts in live:
                plain.take(number, parts[2])

    count = sum(map(len, messages))
    mine, base = time_each(ours, repeats), time_each(reference, repeats)
    return {
        "events": count,
        "events_per_s": count / mine["median_s"],
        "reference_events_per_s": count / base["median_s"],
        "ratio_to_reference": base["median_s"] / mine["median_s"],
        "spread_s": [mine["min_s"], mine["max_s"]],
    }


def measure_match(repeats: int) -> dict[str, Any]:
    """A prompt of 8,000 blocks at 64 holders: all hold all of it, or each its own length, half of them with a hole."""
    tokens, events = chain_events(Random(SEED), MATCH_BLOCKS)
    hashes = block_hashes(tokens, BLOCK_TOKENS, block_hash.namespace_seed("m"))
    chain = BlockChain(BLOCK_TOKENS, tuple(hashes), len(tokens) + 1)
    results: dict[str, Any] = {}
    for name in ("shared", "holes"):
        rng = Random(SEED)
        index, plain = new_index(MATCH_HOLDERS), SetIndex()
        for number in range(MATCH_HOLDERS):
            held = list(range(MATCH_BLOCKS if name == "shared" else rng.randrange(1, MATCH_BLOCKS)))
            hole = rng.randrange(len(held)) if name == "holes" and number % 2 else None
            for at in held:
                index.apply(holder(number), events[at])
                plain.holders.setdefault(hashes[at], set()).add(number)
            if hole is not None:
                index.apply(holder(number), removal(events[hole]))
                plain.holders[hashes[hole]].discard(number)
        expected = {holder(number): depth * BLOCK_TOKENS for number, depth in plain.find(hashes).items() if depth}
        if index.find_reuse(chain) != expected:
            raise AssertionError(f"the index and the reference disagree on {name}")
        mine = time_each(lambda index=index: index.find_reuse(chain), repeats * 4)
        base = time_each(lambda plain=plain: plain.find(hashes), repeats)
        results[name] = {
            "us": mine["median_s"] * 1e6,
            "reference_us": base["median_s"] * 1e6,
            "ratio_to_reference": base["median_s"] / mine["median_s"],
            "spread_us": [mine["min_s"] * 1e6, mine["max_s"] * 1e6],
        }
    return results


def removal(event: BlockStored) -> BlockRemoved:
    """The removal of what an event stored."""
    return BlockRemoved(block_hashes=event.block_hashes)


def measure_hash(repeats: int) -> dict[str, Any]:
    """Chained hashes of 131,072 tokens in blocks of 16, from an array and from a list."""
    tokens = [Random(SEED).randrange(150_000) for _ in range(HASH_TOKENS)]
    packed = array("I", tokens)
    ours = time_each(lambda: block_hashes(packed, BLOCK_TOKENS, 1), repeats * 4)
    listed = time_each(lambda: block_hashes(tokens, BLOCK_TOKENS, 1), repeats * 4)
    base = time_each(lambda: block_hash.block_hashes(tokens, BLOCK_TOKENS, 1), repeats)
    return {
        "native": native_available(),
        "ms": ours["median_s"] * 1e3,
        "from_list_ms": listed["median_s"] * 1e3,
        "reference_ms": base["median_s"] * 1e3,
        "ratio_to_reference": base["median_s"] / ours["median_s"],
        "spread_ms": [ours["min_s"] * 1e3, ours["max_s"] * 1e3],
    }


def traced_bytes(fill: Callable[[], object]) -> int:
    """Bytes that stay allocated after a call, its result kept."""
    gc.collect()
    tracemalloc.start()
    kept = fill()
    gc.collect()
    size_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del kept
    return size_bytes


def measure_memory(blocks: int) -> dict[str, Any]:
    """Bytes for each (block, holder): every chain on all of 16 holders, or each chain on one."""
    workers, results = 16, {}
    for name, chains in (("shared", blocks // CHAIN_BLOCKS // workers), ("disjoint", blocks // CHAIN_BLOCKS)):
        rng = Random(SEED)
        streams = [chain_events(rng, CHAIN_BLOCKS)[1] for _ in range(max(1, chains))]
        pairs = [
            (number, events)
            for at, events in enumerate(streams)
            for number in (range(workers) if name == "shared" else [at % workers])
        ]
        size_bytes = traced_bytes(lambda pairs=pairs: fill_ours(pairs, workers))
        base_bytes = traced_bytes(lambda pairs=pairs: fill_reference(pairs))
        count = len(pairs) * CHAIN_BLOCKS
        results[name] = {
            "bytes": size_bytes / count,
            "reference_bytes": base_bytes / count,
            "ratio_to_reference": base_bytes / size_bytes,
        }
    return results


def fill_ours(pairs: Iterable[tuple[int, list[BlockStored]]], workers: int) -> NaivePrefixIndex:
    """Our index with every pair of holder and events applied, decoded anew: shared integers would hide their size."""
    index = new_index(workers)
    for number, events in pairs:
        for event in events:
            batch = decode_batch(vllm.encode_batch(EventBatch(ts_s=1.0, events=(event,)), "0.32"))
            if isinstance(batch, EventBatch):
                index.apply(holder(number), batch.events[0])
    return index


def fill_reference(pairs: Iterable[tuple[int, list[BlockStored]]]) -> SetIndex:
    """The reference with every pair of holder and events applied."""
    plain = SetIndex()
    for number, events in pairs:
        for event in events:
            plain.holders.setdefault(event.block_hashes[0] ^ 0, set()).add(number)
    return plain


def measure_peer(repeats: int) -> dict[str, Any]:
    """ai-dynamo-runtime's RadixTree in this process; says so where it is not installed."""
    try:
        tree_type = import_module("dynamo.llm").RadixTree
    except ImportError as error:
        return {"available": False, "reason": str(error)}
    tree, rng = tree_type(), Random(SEED)
    names = [rng.getrandbits(63) for _ in range(MATCH_BLOCKS)]
    blocks = [{"block_hash": name, "tokens_hash": name, "mm_extra_info": None} for name in names]
    event = {"event_id": 0, "dp_rank": 0, "data": {"stored": {"parent_hash": None, "blocks": blocks}}}
    for number in range(MATCH_HOLDERS):
        tree.apply_event(number, json.dumps(event).encode())
    return {"available": True, "match_us": time_each(lambda: tree.find_matches(names), repeats)["median_s"] * 1e6}


def describe_run() -> dict[str, Any]:
    """Where the figures come from."""
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "commit": git.stdout.strip() or None,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "seed": SEED,
    }


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=32_000, help="blocks for the rate and the size")
    options = parser.parse_args()
    result = {
        "run": {**describe_run(), "repeats": options.repeats, "blocks": options.blocks},
        "apply_from_wire_bytes": measure_apply(options.repeats, options.blocks),
        f"match_{MATCH_BLOCKS}_blocks_{MATCH_HOLDERS}_holders": measure_match(options.repeats),
        f"hash_{HASH_TOKENS}_tokens": measure_hash(options.repeats),
        "bytes_per_block_and_holder": measure_memory(options.blocks),
        "peer_ai_dynamo_runtime": measure_peer(options.repeats),
    }
    text = json.dumps(result, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")
    print(text if options.json else render(result))
    return 0


def render(result: dict[str, Any], indent: str = "") -> str:
    """Nested figures as indented lines."""
    lines = []
    for name, value in result.items():
        if isinstance(value, dict):
            lines += [f"{indent}{name}", render(value, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {round(value, 3) if isinstance(value, float) else value}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
