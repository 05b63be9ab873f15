"""A rank's blocks as records, and back. Only blocks whose place is known: a parked one waits for tokens again.

Records of no copies come first: they say which groups and tiers there are, for an empty one decides hits too.
"""

from collections.abc import Iterator

from prefix_index.blocks import Block, Delta, Name, Slot
from prefix_index.namespace import find_tier
from prefix_index.residency import HolderBlocks
from prefix_index.shelves import POOL_TIERS, Group
from wire.events import Medium
from wire.snapshot import BlockRecord


def dump(blocks: HolderBlocks) -> Iterator[BlockRecord]:
    """Everything that `load` needs to give the same answers: by group, tier and doubt, parents before children."""
    for group_idx, group in blocks.groups.items():
        # A group whose rule is not known has no shelf, and takes all credit.
        unknown = {Medium.DEVICE: 1} if group.component is None else {}
        for tier, block_tokens in (group.block_tokens or unknown).items():
            yield BlockRecord(
                0, None, 0, block_tokens, tier, group_idx, group.kind, group.window_tokens, copies=0, position=0
            )
    placed = [(block.place, name, block) for name, block in blocks.blocks.items() if block.place is not None]
    placed.sort(key=lambda entry: (entry[1][0], blocks.tree[entry[0]][1], entry[1][1]))
    for slot, group in _slots(blocks):
        for is_doubted in (False, True):
            for place, name, block in placed:
                if is_doubted == (slot in block.doubted) and _is_there(blocks, slot, group, place, block):
                    yield _record(blocks, name, block, slot, group)


def load(blocks: HolderBlocks, record: BlockRecord, delta: Delta) -> bool:
    """Put one record back; False where it cannot be: unknown tier or group, or a block that is there already."""
    tier = find_tier(record.medium)
    if tier is None or record.block_tokens < 1:
        return False
    believed = blocks.modelled.groups.get(record.group_idx) if record.group_idx is not None else None
    if believed is not None and (believed.kind, believed.window_tokens) == (record.group_kind, record.window_tokens):
        full = (group for group in blocks.groups.values() if group.is_prefix)
        is_held = any(record.canonical_hash in group.places.get(tier, ()) for group in full)
        if not record.copies or not is_held or not believed.open_shelf(tier, record.block_tokens):
            return False
        believed.places[tier][record.canonical_hash] = 1
        return True
    group = blocks.find_group(record.group_idx, record.group_kind, record.window_tokens)
    if group is None or group.component is None or not blocks.open_shelf(group, tier, record.block_tokens, delta):
        return False
    return record.copies > 0 and _restore(blocks, record, (record.group_idx, tier), delta)


def _slots(blocks: HolderBlocks) -> Iterator[tuple[Slot, Group]]:
    """Reported groups first: what is believed rests on them."""
    for groups in (blocks.groups, blocks.modelled.groups):
        for number, group in groups.items():
            for tier in group.places:
                yield (number, tier), group


def _is_there(blocks: HolderBlocks, slot: Slot, group: Group, place: int, block: Block) -> bool:
    if slot[0] in blocks.modelled.groups:
        return place in group.places[slot[1]] and any(tier is slot[1] for _, tier in block.copies)
    if slot in block.doubted or blocks.pool is None or slot[1] not in POOL_TIERS:
        return slot in block.doubted or slot in block.copies
    # Another rank may have removed the block from the pool since.
    return slot in block.copies and blocks.pool.has(*slot, place)


def _restore(blocks: HolderBlocks, record: BlockRecord, slot: Slot, delta: Delta) -> bool:
    name: Name = (record.block_tokens, record.engine_hash)
    block = blocks.blocks.get(name)
    if block is None:
        block = blocks.blocks[name] = Block()
        blocks.tree.setdefault(record.canonical_hash, (record.canonical_parent, record.position))
        place = record.canonical_hash
    elif block.place != record.canonical_hash or slot in block.copies or slot in block.doubted:
        return False
    else:
        place = block.place
    if record.is_doubted:
        blocks.change(name, place, block.copies, block.doubted | {slot}, delta)
    else:
        blocks.change(name, place, block.copies | {slot: record.copies}, block.doubted, delta)
    blocks.link(name, delta)
    return True


def _record(blocks: HolderBlocks, name: Name, block: Block, slot: Slot, group: Group) -> BlockRecord:
    place = block.place or 0
    parent, position = blocks.tree[place]
    return BlockRecord(
        engine_hash=name[1],
        canonical_parent=parent,
        canonical_hash=place,
        block_tokens=name[0],
        medium=slot[1],
        group_idx=slot[0],
        group_kind=group.kind,
        window_tokens=group.window_tokens,
        copies=block.copies.get(slot, 1),
        position=position,
        is_doubted=slot in block.doubted,
    )
