"""A prompt of 8 blocks and one token, and events about it in few words."""

from msgspec.structs import replace

from prefix_index import BlockChain, block_hashes
from wire.block_hash import namespace_seed
from wire.events import BlockRemoved, BlockStored
from wire.ids import Target

A, B = Target("a", 0), Target("b", 1)
PROMPT = tuple(range(100, 133))
FULL = {"group_idx": 1, "group_kind": "full_attention"}
WINDOW = {"group_idx": 0, "group_kind": "sliding_window", "window_tokens": 8}
STATE = {"group_idx": 0, "group_kind": "mamba"}


def chain(tokens=PROMPT, *sizes, model="m", **namespace) -> BlockChain:
    """The prompt in blocks of 4, or of the sizes given."""
    seed = namespace_seed(model, **namespace)
    chains = [BlockChain(size, tuple(block_hashes(tokens, size, seed)), len(tokens)) for size in sizes or (4,)]
    return replace(chains[0], others=tuple(chains[1:]))


def blocks(first, last, *, listed=None, tokens=PROMPT, size=4, **fields) -> BlockStored:
    """Blocks first..last of the prompt, named 1, 2, 3, ...; only the last `listed` by name."""
    names = tuple(range(first, last + 1))
    return BlockStored(
        block_hashes=names if listed is None else names[len(names) - listed :],
        parent_block_hash=first - 1 or None,
        token_ids=tokens[size * (first - 1) : size * last],
        block_tokens=size,
        **fields,
    )


def removed(*names, **fields) -> BlockRemoved:
    return BlockRemoved(block_hashes=names, **fields)
