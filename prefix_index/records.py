"""A rank's blocks as records, and back. Only blocks whose place is known: a parked one waits for tokens again.

Records of no copies come first: they say which groups and tiers there are, for an empty one decides hits too.
"""

from collections.abc import Iterator

from prefix_index.delta import Delta
from prefix_index.names import Block, Name, Slot
from prefix_index.namespace import find_tier
from prefix_index.residency import POOL_TIERS, HolderBlocks
from prefix_index.shelves import Group
from wire.events import Medium
from wire.snapshot import BlockRecord


def dump(blocks: HolderBlocks) -> Iterator[BlockRecord]:
    """Everything that `load` needs to give the same answers, parents before their children."""
    yield from _announce(blocks)
    placed = [(block.position, name, block) for name, block in blocks.names.blocks.items() if block.place is not None]
    placed.sort(key=lambda entry: entry[0])
    for _, name, block in placed:
        for group_idx, tier in (*block.copies, *block.doubted):
            if _is_pooled_elsewhere(blocks, group_idx, tier, block):
                continue
            yield _record(name, block, (group_idx, tier), blocks.groups[group_idx])
        for number, group in blocks.modelled.groups.items():
            for tier, places in group.places.items():
                if block.place in places and any(slot[1] is tier for slot in block.copies):
                    yield _record(name, block, (number, tier), group)


def load(blocks: HolderBlocks, record: BlockRecord, delta: Delta) -> bool:
    """Put one record back; False where it cannot be: unknown tier or group, or a block that is there already."""
    tier = find_tier(record.medium)
    if tier is None or record.copies < 0 or record.block_tokens < 1:
        return False
    believed = blocks.modelled.groups.get(record.group_idx) if record.group_idx is not None else None
    if believed is not None and (believed.kind, believed.window_tokens) == (record.group_kind, record.window_tokens):
        if not record.copies or not believed.open_shelf(tier, record.block_tokens):
            return False
        believed.places[tier][record.canonical_hash] = 1
        return True
    group = blocks.find_group(record.group_idx, record.group_kind, record.window_tokens)
    if group is None or group.component is None or not blocks.open_shelf(group, tier, record.block_tokens, delta):
        return False
    return record.copies > 0 and _restore(blocks, record, (record.group_idx, tier), delta)


def _announce(blocks: HolderBlocks) -> Iterator[BlockRecord]:
    """A record for every group and tier, whether it has blocks or not."""
    for group_idx, group in blocks.groups.items():
        # A group whose rule is not known has no shelf, and takes all credit.
        for tier, block_tokens in (group.block_tokens or {Medium.DEVICE: 1}).items():
            yield BlockRecord(
                engine_hash=0,
                parent_hash=None,
                canonical_hash=0,
                block_tokens=block_tokens,
                medium=tier,
                group_idx=group_idx,
                group_kind=group.kind,
                window_tokens=group.window_tokens,
                copies=0,
                position=0,
            )


def _restore(blocks: HolderBlocks, record: BlockRecord, slot: Slot, delta: Delta) -> bool:
    block = blocks.names.touch((record.block_tokens, record.engine_hash))
    if block.is_gone:
        block.place, block.position, block.parent = record.canonical_hash, record.position, record.parent_hash
    if block.place != record.canonical_hash or slot in block.copies or slot in block.doubted:
        return False
    if record.is_doubted:
        block.doubted.add(slot)
    else:
        block.copies[slot] = record.copies
        blocks.gain(block, slot, delta)
    return True


def _is_pooled_elsewhere(blocks: HolderBlocks, group_idx: int | None, tier: Medium, block: Block) -> bool:
    """True where another rank removed the block from the shared pool since this one stored it."""
    if blocks.pool is None or tier not in POOL_TIERS or block.place is None or (group_idx, tier) in block.doubted:
        return False
    return not blocks.pool.has(group_idx, tier, block.place)


def _record(name: Name, block: Block, slot: Slot, group: Group) -> BlockRecord:
    return BlockRecord(
        engine_hash=name[1],
        parent_hash=block.parent,
        canonical_hash=block.place or 0,
        block_tokens=name[0],
        medium=slot[1],
        group_idx=slot[0],
        group_kind=group.kind,
        window_tokens=group.window_tokens,
        copies=block.copies.get(slot, 1),
        position=block.position,
        is_doubted=slot in block.doubted,
    )
