"""Speed and size of the prefix index: `python -m benchmarks.index [--json] [--out FILE] [--quick]`.

Figures are CPU time. Every one stands beside references measured in the same run: the index in Python, and
ai-dynamo-runtime's RadixTree in an interpreter of its own (`--peer-python`, see `index_peer`) where there is one.
The peer gets JSON with tokens already hashed; ours gets the bytes an engine
publishes. Ratios above 1 are in our favour.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import exp, log
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from prefix_index import BlockChain, NaivePrefixIndex, block_hashes
from prefix_index.hashing import native_available
from prefix_index.native import NativePrefixIndex
from wire import block_hash
from wire.dialects import decode_batch, vllm
from wire.events import BlockRemoved, BlockStored, EventBatch
from wire.ids import Target, WorkerId

SEED = 7
BLOCK_TOKENS = 16
CHAIN_BLOCKS = 1_000
HASH_TOKENS = 131_072
#: Blocks an event, (block, holder) pairs, holders.
APPLY_CASES = [(1, 200_000, 16), (1, 1_000_000, 128), (16, 1_000_000, 128), (100, 1_000_000, 128)]
MATCH_BLOCKS = (1_000, 8_000)
MATCH_HOLDERS, DEEP_HOLDERS, HOLED_HOLDERS = 64, 8, 16
FLEETS = (64, 512, 2_048, 8_000)
DESCENDANTS = 100_000
PEER = Path("~/.peers/dyn/bin/python").expanduser()


def cpu_s(call: Callable[[], object]) -> float:
    """CPU seconds of a call: other work on the machine counts only as far as it takes caches away."""
    start_s = time.process_time()
    call()
    return time.process_time() - start_s


def repeat_s(call: Callable[[], object], repeats: int, *, calls: int = 1) -> dict[str, float]:
    """Median and extremes of the CPU seconds a call takes, measured `calls` at a time."""
    taken = [cpu_s(lambda: [call() for _ in range(calls)]) / calls for _ in range(repeats)]
    return {"median_s": median(taken), "min_s": min(taken), "max_s": max(taken)}


def draw_tokens(rng: Random, count: int) -> list[int]:
    """Token ids as in text: frequent ones are small, about evenly spread over the orders of magnitude."""
    low, high = log(30), log(150_000)
    return [int(exp(rng.uniform(low, high))) for _ in range(count)]


def holder(number: int) -> Target:
    """Name of a holder."""
    return Target(WorkerId(f"w{number}"), 0)


def fill_holders(index: NativePrefixIndex | NaivePrefixIndex, holders: int) -> None:
    """Attach holders 0 up to a number."""
    for number in range(holders):
        index.attach(holder(number), model="m")


def make_chain(rng: Random, tokens: Sequence[int], per_event: int) -> list[BlockStored]:
    """Events of a chain of blocks with random names."""
    blocks = len(tokens) // BLOCK_TOKENS
    names = [rng.getrandbits(64) for _ in range(blocks)]
    return [
        BlockStored(
            block_hashes=tuple(names[at : at + per_event]),
            parent_block_hash=names[at - 1] if at else None,
            token_ids=tuple(tokens[at * BLOCK_TOKENS : (at + per_event) * BLOCK_TOKENS]),
            block_tokens=BLOCK_TOKENS,
        )
        for at in range(0, blocks, per_event)
    ]


def encode(event: BlockStored | BlockRemoved) -> bytes:
    """An event as vLLM publishes it."""
    return vllm.encode_batch(EventBatch(ts_s=1.0, events=(event,), dp_rank=0), "0.32")


def make_payloads(per_event: int, pairs: int, holders: int) -> list[list[bytes]]:
    """Payloads for each holder: chains of 1,000 blocks, each on one holder."""
    rng = Random(SEED)
    pool = draw_tokens(rng, 1 << 16)
    lists: list[list[bytes]] = [[] for _ in range(holders)]
    for number in range(pairs // CHAIN_BLOCKS):
        tokens = rng.choices(pool, k=CHAIN_BLOCKS * BLOCK_TOKENS)
        lists[number % holders] += map(encode, make_chain(rng, tokens, per_event))
    return lists


def apply_all(lists: list[list[bytes]]) -> NativePrefixIndex:
    """Every list in one native call."""
    index = NativePrefixIndex()
    fill_holders(index, len(lists))
    for number, payloads in enumerate(lists):
        if index.apply_payloads(holder(number), payloads).skipped:
            raise AssertionError("a payload was refused")
    return index


def apply_in_python(payloads: list[bytes]) -> None:
    """One list through the decoder and the index in Python."""
    index = NaivePrefixIndex()
    fill_holders(index, 1)
    for payload in payloads:
        batch = decode_batch(payload)
        if isinstance(batch, EventBatch):
            index.apply(holder(0), batch.events[0])


def measure_apply(repeats: int, case: tuple[int, int, int]) -> dict[str, Any]:
    """Events from wire bytes in memory."""
    per_event, pairs, holders = case
    lists = make_payloads(per_event, pairs, holders)
    events = sum(map(len, lists))
    ours = repeat_s(lambda: apply_all(lists), repeats)
    sample = lists[0][: max(1, 4_000 // per_event)]
    plain = repeat_s(lambda: apply_in_python(sample), repeats)
    return {
        "blocks_per_event": per_event,
        "pairs": pairs,
        "holders": holders,
        "events_per_s": events / ours["median_s"],
        "blocks_per_s": pairs / ours["median_s"],
        "spread_s": [ours["min_s"], ours["max_s"]],
        "python_events_per_s": len(sample) / plain["median_s"],
    }


def draw_depths(blocks: int) -> list[int]:
    """Blocks each of 64 holders has: 8 all of them, the others less than an eighth."""
    rng = Random(SEED)
    return [blocks if number < DEEP_HOLDERS else rng.randrange(1, blocks // 8) for number in range(MATCH_HOLDERS)]


def fill_for_match(index: NativePrefixIndex | NaivePrefixIndex, blocks: int) -> BlockChain:
    """64 holders of one prompt, 16 of them with one hole."""
    rng = Random(SEED)
    tokens = draw_tokens(rng, blocks * BLOCK_TOKENS)
    fill_holders(index, MATCH_HOLDERS)
    events = make_chain(rng, tokens, 1)
    for number, depth in enumerate(draw_depths(blocks)):
        for event in events[:depth]:
            index.apply(holder(number), event)
        if number % (MATCH_HOLDERS // HOLED_HOLDERS) == 0:
            index.apply(holder(number), BlockRemoved(block_hashes=events[rng.randrange(depth)].block_hashes))
    hashes = block_hashes(tokens, BLOCK_TOKENS, block_hash.namespace_seed("m"))
    return BlockChain(BLOCK_TOKENS, tuple(hashes), len(tokens) + 1)


def measure_match(repeats: int, blocks: int) -> dict[str, Any]:
    """A prompt at 64 holders, 8 deep, 16 with one hole; warm."""
    index, plain = NativePrefixIndex(), NaivePrefixIndex()
    chain = fill_for_match(index, blocks)
    fill_for_match(plain, blocks)
    if index.find_reuse(chain) != plain.find_reuse(chain):
        raise AssertionError("the two indexes disagree")
    ours = repeat_s(lambda: index.find_reuse(chain), 3 * repeats, calls=200)
    core = repeat_s(lambda: index.core.match_count(chain.hashes, blocks, 200), 3 * repeats)
    slow = repeat_s(lambda: plain.find_reuse(chain), repeats)
    return {
        "blocks": blocks,
        "holders_found": len(index.find_reuse(chain)),
        "us": ours["median_s"] * 1e6,
        "spread_us": [ours["min_s"] * 1e6, ours["max_s"] * 1e6],
        "us_without_result_dict": core["median_s"] * 1e6 / 200,
        "python_us": slow["median_s"] * 1e6,
    }


def measure_fleet(repeats: int, holders: int) -> dict[str, Any]:
    """A prompt of 8,000 blocks at many holders, in 8 groups of equal length: the holder set changes 8 times."""
    index, rng, blocks = NativePrefixIndex(), Random(SEED), 8_000
    fill_holders(index, holders)
    tokens = draw_tokens(rng, blocks * BLOCK_TOKENS)
    seed = block_hash.namespace_seed("m")
    hashes = block_hashes(tokens, BLOCK_TOKENS, seed)
    lengths = list(accumulate([blocks // 64] * 8))
    for number in range(holders):
        index.store_hashes(holder(number), hashes[: lengths[number % 8]], block_tokens=BLOCK_TOKENS)
    chain = BlockChain(BLOCK_TOKENS, tuple(hashes), len(tokens) + 1)
    ours = repeat_s(lambda: index.find_reuse(chain), repeats, calls=20)
    core = repeat_s(lambda: index.core.match_count(chain.hashes, blocks, 20), repeats)
    return {
        "holders": holders,
        "us": ours["median_s"] * 1e6,
        "us_without_result_dict": core["median_s"] * 1e6 / 20,
        "holder_sets": index.count().holder_sets,
    }


def measure_hole() -> dict[str, Any]:
    """Removing and storing again the root of 100,000 descendants, matching in between."""
    index, rng = NativePrefixIndex(), Random(SEED)
    fill_holders(index, 1)
    tokens = draw_tokens(rng, (DESCENDANTS + 1) * BLOCK_TOKENS)
    events = make_chain(rng, tokens, 1)
    index.apply_payloads(holder(0), [encode(event) for event in events])
    chain = BlockChain(BLOCK_TOKENS, tuple(block_hashes(tokens, BLOCK_TOKENS, block_hash.namespace_seed("m"))), 1 << 30)
    root, gone = encode(events[0]), encode(BlockRemoved(block_hashes=events[0].block_hashes))
    remove_s = cpu_s(lambda: index.apply_payloads(holder(0), [gone]))
    match_s = cpu_s(lambda: index.find_reuse(chain))
    store_s = cpu_s(lambda: index.apply_payloads(holder(0), [root]))
    walk_s = cpu_s(lambda: index.find_reuse(chain))
    toggles = repeat_s(lambda: index.apply_payloads(holder(0), [gone, root]), 9, calls=100)
    index.apply_payloads(holder(0), [gone])
    steps = 0
    while index.count().unsettled_edges:
        index.find_reuse(BlockChain(BLOCK_TOKENS, chain.hashes[:1], 1 << 30))
        steps += 1
    return {
        "descendants": DESCENDANTS,
        "remove_root_us": remove_s * 1e6,
        "match_with_hole_us": match_s * 1e6,
        "store_root_us": store_s * 1e6,
        "match_while_unsettled_us": walk_s * 1e6,
        "remove_and_store_us": toggles["median_s"] * 1e6,
        "calls_until_settled": steps,
    }


def measure_hash(repeats: int) -> dict[str, Any]:
    """Chained hashes of 131,072 tokens in blocks of 16, from an array and from a list."""
    tokens = draw_tokens(Random(SEED), HASH_TOKENS)
    packed = array("I", tokens)
    ours = repeat_s(lambda: block_hashes(packed, BLOCK_TOKENS, 1), repeats, calls=20)
    listed = repeat_s(lambda: block_hashes(tokens, BLOCK_TOKENS, 1), repeats, calls=20)
    base = repeat_s(lambda: block_hash.block_hashes(tokens, BLOCK_TOKENS, 1), repeats)
    return {
        "tokens": HASH_TOKENS,
        "ms": ours["median_s"] * 1e3,
        "spread_ms": [ours["min_s"] * 1e3, ours["max_s"] * 1e3],
        "from_list_ms": listed["median_s"] * 1e3,
        "python_ms": base["median_s"] * 1e3,
    }


def resident_bytes() -> int:
    """Memory of this process that is in use."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure_memory(pairs: int) -> dict[str, Any]:
    """Bytes for each (block, holder) pair: every chain on all of 16 holders, or each chain on one of 128."""
    results = {}
    for name, holders, copies in (("shared_by_16", 16, 16), ("disjoint", 128, 1)):
        lists = make_payloads(100, pairs // copies, 1 if copies > 1 else holders)
        before = resident_bytes()
        index = apply_all(lists * copies)
        results[name] = {
            "pairs": index.count().entries,
            "bytes": index.count().size_bytes / index.count().entries,
            "resident_bytes": (resident_bytes() - before) / index.count().entries,
        }
        del index
    return results


def ask_peer(python: Path, cases: list[tuple[int, int, int]], repeats: int) -> dict[str, Any]:
    """The peer's figures; says so where it cannot run."""
    asked = {
        "apply": cases,
        "match": [[blocks, draw_depths(blocks)] for blocks in MATCH_BLOCKS],
        "hash_tokens": HASH_TOKENS,
        "repeats": repeats,
    }
    script = Path(__file__).with_name("index_peer.py")
    try:
        done = subprocess.run([python, script, json.dumps(asked)], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return {"available": False, "reason": f"{type(error).__name__}: see index_peer for its install"}
    return {"available": True, "name": "ai-dynamo-runtime RadixTree", **json.loads(done.stdout)}


def compare(result: dict[str, Any], peer: dict[str, Any]) -> None:
    """Put the peer's figures and ratios beside ours."""
    if not peer["available"]:
        return
    for ours, rate in zip(result["apply"], peer["apply_events_per_s"], strict=True):
        ours |= {"peer_events_per_s": rate, "ratio_to_peer": ours["events_per_s"] / rate}
    for ours, taken in zip(result["match"], peer["match_us"], strict=True):
        ours |= {"peer_us": taken, "ratio_to_peer": taken / ours["us"]}
    result["hash"] |= {"peer_ms": peer["hash_ms"], "ratio_to_peer": peer["hash_ms"] / result["hash"]["ms"]}


def describe_run() -> dict[str, Any]:
    """Where the figures come from."""
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "commit": git.stdout.strip() or None,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "seed": SEED,
    }


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON (as always)")
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the pairs, small fleets")
    parser.add_argument("--peer-python", type=Path, default=PEER, help="interpreter that has ai-dynamo-runtime")
    options = parser.parse_args()
    if not native_available():
        parser.error("the native module was not built")
    scale = 20 if options.quick else 1
    cases = [(per_event, pairs // scale, holders) for per_event, pairs, holders in APPLY_CASES]
    result = {
        "run": {**describe_run(), "repeats": options.repeats},
        # First, while the process has no freed memory to reuse.
        "bytes_per_pair": measure_memory(1_000_000 // scale),
        "apply": [measure_apply(options.repeats, case) for case in cases],
        "match": [measure_match(options.repeats, blocks) for blocks in MATCH_BLOCKS],
        "fleets": [measure_fleet(options.repeats, holders // scale) for holders in FLEETS],
        "hole_above_descendants": measure_hole(),
        "hash": measure_hash(options.repeats),
    }
    result["peer"] = ask_peer(options.peer_python, cases, min(3, options.repeats))
    compare(result, result["peer"])
    text = json.dumps(result, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
