"""What the index benchmarks feed: chains of blocks of real text as events, and holders to have them."""

from collections.abc import Iterable, Sequence
from random import Random

from benchmarks.real_text import draw_stretches
from benchmarks.run_facts import SEED
from prefix_index import NaivePrefixIndex
from prefix_index.native import NativePrefixIndex
from wire.dialects import vllm
from wire.events import BlockRemoved, BlockStored, EventBatch
from wire.ids import Target, WorkerId

MODEL = "m"
BLOCK_TOKENS = 16
CHAIN_BLOCKS = 1_000


def holder(number: int) -> Target:
    """Name of a holder."""
    return Target(WorkerId(f"w{number}"), 0)


def fill_holders(index: NativePrefixIndex | NaivePrefixIndex, holders: int) -> None:
    """Attach holders 0 up to a number."""
    for number in range(holders):
        index.attach(holder(number), model=MODEL)


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


def encode(event: BlockStored | BlockRemoved, version: str = "0.32") -> bytes:
    """An event alone in its batch, as that vLLM publishes it."""
    return vllm.encode_batch(EventBatch(ts_s=1.0, events=(event,), dp_rank=0), version)


def make_payloads(
    tokens: Sequence[int], per_event: int, pairs: int, holders: int, *, version: str = "0.32"
) -> list[list[bytes]]:
    """Payloads for each holder: chains of 1,000 blocks, each on one holder."""
    rng = Random(SEED)
    lists: list[list[bytes]] = [[] for _ in range(holders)]
    stretches = draw_stretches(tokens, pairs // CHAIN_BLOCKS, CHAIN_BLOCKS * BLOCK_TOKENS, rng)
    for number, stretch in enumerate(stretches):
        lists[number % holders] += (encode(event, version) for event in make_chain(rng, stretch, per_event))
    return lists


def apply_all(lists: Iterable[Sequence[bytes]], holders: int) -> NativePrefixIndex:
    """An index that took every list in one native call."""
    index = NativePrefixIndex()
    fill_holders(index, holders)
    for number, payloads in enumerate(lists):
        if index.apply_payloads(holder(number), payloads).skipped:
            raise AssertionError("a payload was refused")
    return index
