"""What a match costs: by length of the prompt, by holders, and by changes of the holders along it; and hashing it."""

from array import array
from collections.abc import Sequence
from random import Random
from typing import Any

from benchmarks.chains import BLOCK_TOKENS, MODEL, encode, fill_holders, holder, make_chain
from benchmarks.run_facts import SEED
from benchmarks.timing import repeat_s
from prefix_index import BlockChain, NaivePrefixIndex, block_hashes
from prefix_index.native import NativePrefixIndex
from router.prompt.conversations import TokenRun
from wire import block_hash
from wire.events import BlockRemoved

MATCH_BLOCKS = (1_000, 8_000)
MATCH_HOLDERS, DEEP_HOLDERS, HOLED_HOLDERS = 64, 8, 16
FLEETS = (64, 512, 2_048, 8_000)
FLEET_BLOCKS = 8_000
#: Blocks that the holder with the most of them has.
FLEET_DEPTH = 1_000
FLEET_CHANGES = 8
CHANGES = (1, 8, 64, 512)
CHANGED_FLEET = 512
HASH_TOKENS = 131_072


def draw_depths(blocks: int) -> list[int]:
    """Blocks each of 64 holders has: 8 all of them, the others less than an eighth."""
    rng = Random(SEED)
    return [blocks if number < DEEP_HOLDERS else rng.randrange(1, blocks // 8) for number in range(MATCH_HOLDERS)]


def make_prompt(tokens: Sequence[int], blocks: int) -> BlockChain:
    """The chain of a prompt of real text."""
    hashes = block_hashes(tokens[: blocks * BLOCK_TOKENS], BLOCK_TOKENS, block_hash.namespace_seed(MODEL))
    return BlockChain(BLOCK_TOKENS, tuple(hashes), blocks * BLOCK_TOKENS + 1)


def fill_for_match(index: NativePrefixIndex | NaivePrefixIndex, tokens: Sequence[int], blocks: int) -> None:
    """64 holders of one prompt, 16 of them with one hole."""
    rng = Random(SEED)
    fill_holders(index, MATCH_HOLDERS)
    events = make_chain(rng, tokens[: blocks * BLOCK_TOKENS], 1)
    for number, depth in enumerate(draw_depths(blocks)):
        for event in events[:depth]:
            index.apply(holder(number), event)
        if number % (MATCH_HOLDERS // HOLED_HOLDERS) == 0:
            index.apply(holder(number), BlockRemoved(block_hashes=events[rng.randrange(depth)].block_hashes))


def measure_match(tokens: Sequence[int], repeats: int, blocks: int) -> dict[str, Any]:
    """A prompt at 64 holders, 8 deep, 16 with one hole; warm."""
    index, plain = NativePrefixIndex(), NaivePrefixIndex()
    chain = make_prompt(tokens, blocks)
    fill_for_match(index, tokens, blocks)
    fill_for_match(plain, tokens, blocks)
    found = index.find_reuse(chain)
    if found != plain.find_reuse(chain):
        raise AssertionError("the two indexes disagree")
    return {
        "blocks": blocks,
        "holders_found": len(found),
        **_time_match(index, chain, 3 * repeats, 200),
        "python_us": [1e6 * taken_s for taken_s in repeat_s(lambda: plain.find_reuse(chain), repeats)],
    }


def measure_fleet(tokens: Sequence[int], repeats: int, holders: int, changes: int) -> dict[str, Any]:
    """A prompt of 8,000 blocks whose holders, in groups of equal length, change so many times along it."""
    index, chain = NativePrefixIndex(), make_prompt(tokens, FLEET_BLOCKS)
    fill_holders(index, holders)
    rng, lengths = Random(SEED), [FLEET_DEPTH * (number + 1) // changes for number in range(changes)]
    stored = [encode(make_chain(rng, tokens[: length * BLOCK_TOKENS], length)[0]) for length in lengths]
    for number in range(holders):
        index.apply_payloads(holder(number), [stored[number % changes]])
    return {
        "holders": holders,
        "changes": changes,
        "holders_found": len(index.find_reuse(chain)),
        **_time_match(index, chain, repeats, 20),
    }


def _time_match(index: NativePrefixIndex, chain: BlockChain, repeats: int, calls: int) -> dict[str, Any]:
    """Microseconds of a match, and of its part that does not hand a dict to Python."""
    whole = repeat_s(lambda: index.find_reuse(chain), repeats, calls=calls)
    core = repeat_s(lambda: index.core.match_count(chain.hashes, len(chain.hashes), calls), repeats)
    return {
        "us": [1e6 * taken_s for taken_s in whole],
        "us_without_result_dict": [1e6 * taken_s / calls for taken_s in core],
    }


def measure_hash(tokens: Sequence[int], repeats: int, count: int = HASH_TOKENS) -> dict[str, Any]:
    """Chained hashes of a prompt in blocks of 16, in each form that the prompt path has ids in, in milliseconds."""
    packed = array("I", tokens[: count + 1])
    listed = list(packed)
    forms = {
        "array": lambda: block_hashes(packed, BLOCK_TOKENS, 1),
        "array_slice": lambda: block_hashes(packed[1:], BLOCK_TOKENS, 1),
        "list": lambda: block_hashes(listed, BLOCK_TOKENS, 1),
        "prompt": lambda: TokenRun(packed).hash_blocks(BLOCK_TOKENS, 1),
    }
    figures = {
        name: [1e3 * taken_s for taken_s in repeat_s(call, 3 * repeats, calls=20)] for name, call in forms.items()
    }
    base = repeat_s(lambda: block_hash.block_hashes(listed, BLOCK_TOKENS, 1), repeats)
    return {"tokens": count, "ms": figures, "python_ms": [1e3 * taken_s for taken_s in base]}
