"""Ways to break what the project promises, each with the tests that must turn red.

A mutation is a text that stands in a file just once, and what takes its place. One whose text is not found is an
error, so that the catalogue moves on with the source.
"""

from typing import NamedTuple

HYBRID = ("tests/contracts/test_index_hybrid_contract.py",)
TIERS = ("tests/contracts/test_index_contract.py", "tests/contracts/test_index_tiers_contract.py")
STREAM = ("tests/prefix_index/test_sequence.py", "tests/prefix_index/test_stream.py")
SNAPSHOT = ("tests/prefix_index/test_stream_snapshots.py", "tests/prefix_index/test_sequence.py")
PROMPTS = ("tests/router/prompt/test_incremental_prompts.py", "tests/router/prompt/test_segmented_tokenizer.py")
CONTRACTS = (*TIERS, *HYBRID)
BAD_EVENTS = ("tests/loop/test_bad_events.py",)
NATIVE = ("tests/contracts/test_index_contract.py", "tests/models/test_index_twins.py")


class Mutation(NamedTuple):
    """One way to break one file."""

    name: str
    path: str
    find: str
    put: str
    tests: tuple[str, ...]


RESIDENCY = "prefix_index/residency.py"
COMPONENTS = "prefix_index/components.py"
REUSE = "prefix_index/reuse.py"
SEQUENCE = "prefix_index/sequence.py"

PYTHON = (
    Mutation(
        "a copy too many is removed",
        RESIDENCY,
        "block.copies.get(slot, 1) - 1}",
        "block.copies.get(slot, 1) - 2}",
        TIERS,
    ),
    Mutation("second copies are not counted", RESIDENCY, "slot] = copies.get(slot, 0) + 1\n", "slot] = 1\n", TIERS),
    Mutation(
        "every store is a copy, told again or not",
        RESIDENCY,
        "            if adds_copy or slot not in copies:\n",
        "            if True:\n",
        TIERS,
    ),
    Mutation(
        "a removal takes from the device whatever its tier",
        RESIDENCY,
        "        slot = (event.group_idx, tier)\n        for name",
        "        slot = (event.group_idx, Medium.DEVICE)\n        for name",
        TIERS,
    ),
    Mutation(
        "a store goes to the device whatever its tier",
        RESIDENCY,
        "        slot = (event.group_idx, tier)\n        if tier is",
        "        slot = (event.group_idx, Medium.DEVICE)\n        if tier is",
        TIERS,
    ),
    Mutation(
        "groups share their removals",
        RESIDENCY,
        "        slot = (event.group_idx, tier)\n        for name",
        "        slot = (next(iter(self.groups)), tier)\n        for name",
        TIERS,
    ),
    Mutation(
        "a block of an unknown parent starts a prompt",
        RESIDENCY,
        "        if event.parent_block_hash is None:\n            seed",
        "        if (size, fold_name(event.parent_block_hash or 0)) not in self.blocks:\n            seed",
        TIERS,
    ),
    Mutation(
        "a clear keeps the names of what was there",
        RESIDENCY,
        "        self.blocks: dict[Name, Block] = {}\n",
        "        self.blocks: dict[Name, Block] = getattr(self, 'blocks', {})\n",
        TIERS,
    ),
    Mutation(
        "one doubted block is proved at a time",
        RESIDENCY,
        "            if len(names) != 1:\n",
        "            if True:\n",
        (*CONTRACTS, *STREAM),
    ),
    Mutation(
        "a window is a token short",
        COMPONENTS,
        "end_tokens - self.window_tokens + 1)",
        "end_tokens - self.window_tokens + 2)",
        HYBRID,
    ),
    Mutation(
        "a window is a token long",
        COMPONENTS,
        "end_tokens - self.window_tokens + 1)",
        "end_tokens - self.window_tokens)",
        HYBRID,
    ),
    Mutation(
        "a checkpoint one block before is taken",
        REUSE,
        "hashes[index - 1] in places",
        "hashes[max(0, index - 2)] in places",
        HYBRID,
    ),
    Mutation(
        "a checkpoint one block after is taken",
        REUSE,
        "hashes[index - 1] in places",
        "hashes[min(index, len(hashes) - 1)] in places",
        HYBRID,
    ),
    Mutation(
        "no checkpoint is needed",
        COMPONENTS,
        "return max(0, end_tokens - 1)",
        "return end_tokens",
        HYBRID,
    ),
    Mutation(
        "a single block told again adds no copy",
        RESIDENCY,
        "event.parent_block_hash is not None or len(event.block_hashes) < 2\n",
        "event.parent_block_hash is not None\n",
        BAD_EVENTS,
    ),
    Mutation(
        "the group that decides is not waited for",
        REUSE,
        "return len(numbers) == max(numbers, default=-1) + 1",
        "return True",
        HYBRID,
    ),
    Mutation(
        "the last token is not computed again",
        "prefix_index/base.py",
        "(self.token_count - 1) // self.block_tokens",
        "self.token_count // self.block_tokens",
        CONTRACTS,
    ),
    Mutation(
        "replayed batches are applied again",
        SEQUENCE,
        "        if self._torn or seq < self._next:\n",
        "        if self._torn:\n",
        STREAM,
    ),
    Mutation(
        "live batches are applied again after a replay",
        SEQUENCE,
        "        if self.applied is not None and seq <= self.applied:\n            return step\n        if is_damaged",
        "        if is_damaged",
        STREAM,
    ),
    Mutation(
        "gaps are not seen",
        SEQUENCE,
        "        elif seq == self._next and seq not in",
        "        elif seq >= self._next and seq not in",
        STREAM,
    ),
    Mutation(
        "a number that goes backwards is no restart",
        SEQUENCE,
        "        if is_behind or self._contradicts(seq, mark):\n",
        "        if self._contradicts(seq, mark):\n",
        STREAM,
    ),
    Mutation(
        "the batch of the watermark is applied again",
        SEQUENCE,
        "            self.applied = watermark\n",
        "            self.applied = watermark - 1\n",
        SNAPSHOT,
    ),
    Mutation(
        "the batch after the watermark is lost",
        SEQUENCE,
        "            self.applied = watermark\n",
        "            self.applied = watermark + 1\n",
        SNAPSHOT,
    ),
    Mutation(
        "events of an earlier registration count",
        "prefix_index/naive.py",
        "        if state is None or generation not in (None, state.generation):\n",
        "        if state is None:\n",
        TIERS,
    ),
    Mutation(
        "salts share their blocks",
        "wire/block_hash.py",
        "for text in (model, adapter, cache_salt))",
        "for text in (model, adapter, None))",
        ("tests/wire/test_block_hash.py",),
    ),
    Mutation(
        "images enter without their place in the block",
        "router/prompt/media.py",
        "keys += (item.key, item.offset - start)",
        "keys += (item.key, item.offset)",
        ("tests/router/prompt/test_prompt_identity.py",),
    ),
    Mutation(
        "texts are cut after tokens that swallow blanks",
        "router/prompt/added.py",
        "if content not in widened and content not in swallowed",
        "if content not in swallowed",
        PROMPTS,
    ),
    Mutation(
        "a turn keeps a token too many",
        "router/prompt/turns.py",
        "        kept = turn.kept_tokens + len(settled)\n",
        "        kept = turn.kept_tokens + len(settled) + 1\n",
        PROMPTS,
    ),
)

HOLDER = "prefix_index/core/holder.cpp"
CHANGE = "prefix_index/core/holder_change.cpp"
CORE_RULES = "prefix_index/core/component.hpp"
NATIVE_HYBRID = (*HYBRID, "tests/models/test_index_twins.py")

NATIVE_CODE = (
    Mutation(
        "native: one removal takes all copies",
        CHANGE,
        "copies.set(id, count > 0 ? count - 1 : 0);",
        "copies.set(id, 0);",
        NATIVE,
    ),
    Mutation(
        "native: a removal takes two copies",
        CHANGE,
        "copies.set(id, count > 0 ? count - 1 : 0);",
        "copies.set(id, count > 1 ? count - 2 : 0);",
        NATIVE,
    ),
    Mutation(
        "native: second copies are not counted",
        HOLDER,
        "copies.set(arrival.shelf_id, count + 1);",
        "copies.set(arrival.shelf_id, 1);",
        NATIVE,
    ),
    Mutation(
        "native: a removal takes from the device whatever its tier",
        CHANGE,
        "const ShelfId id = group->tiers[event.tier].shelf;",
        "const ShelfId id = group->tiers[group->tiers[kDevice].is_open() ? kDevice : event.tier].shelf;",
        NATIVE,
    ),
    Mutation(
        "native: a store goes to the device whatever its tier",
        HOLDER,
        "shelf = open_shelf(*group, event.tier, event.block_tokens, delta);",
        "shelf = open_shelf(*group, kDevice, event.block_tokens, delta);",
        NATIVE,
    ),
    Mutation(
        "native: a window is a token short",
        CORE_RULES,
        "? end_tokens - component.window_tokens + 1 : 0;",
        "? end_tokens - component.window_tokens + 2 : 0;",
        NATIVE_HYBRID,
    ),
    Mutation(
        "native: a window is a token long",
        CORE_RULES,
        "? end_tokens - component.window_tokens + 1 : 0;",
        "? end_tokens - component.window_tokens : 0;",
        NATIVE_HYBRID,
    ),
    Mutation(
        "native: no checkpoint is needed",
        CORE_RULES,
        "return end_tokens > 0 ? end_tokens - 1 : 0;",
        "return end_tokens;",
        NATIVE_HYBRID,
    ),
    Mutation(
        "native: a checkpoint one block before is taken",
        "prefix_index/core/reuse.cpp",
        "prompt.tree.find(chain->at(index - 1))",
        "prompt.tree.find(chain->at(index > 1 ? index - 2 : 0))",
        NATIVE_HYBRID,
    ),
    Mutation(
        "native: a checkpoint one block after is taken",
        "prefix_index/core/reuse.cpp",
        "prompt.tree.find(chain->at(index - 1))",
        "prompt.tree.find(chain->at(index < chain->count ? index : index - 1))",
        NATIVE_HYBRID,
    ),
    Mutation(
        "native: a single block told again adds no copy",
        HOLDER,
        "event.name_count < 2",
        "event.name_count < 1",
        BAD_EVENTS,
    ),
    Mutation(
        "native: more hashes than allowed are read",
        "prefix_index/core/decode.cpp",
        "if (count > kMaxHashes || count > in_.left()) return in_.fail();",
        "if (count > in_.left()) return in_.fail();",
        BAD_EVENTS,
    ),
)
