"""A rank's blocks as records, and back. Only blocks whose place is known: a parked one waits for tokens again.

Records of no copies come first: they say which groups and tiers there are, for an empty one decides hits too.
"""

from collections.abc import Iterator
from itertools import product

from prefix_index.namespace import find_tier
from prefix_index.residency import Block, Place, Rank
from wire.events import Medium
from wire.snapshot import BlockRecord


def dump(rank: Rank) -> Iterator[BlockRecord]:
    """Everything that `load` needs to give the same answers: by group, tier and doubt, parents before children."""
    for number, group in rank.told.groups.items():
        # A group whose rule is not known has no tier, and takes all credit.
        for tier, size in (group.sizes if group.component is not None else {Medium.DEVICE: 1}).items():
            yield BlockRecord(0, None, 0, size, tier, number, group.kind, group.window_tokens, copies=0, position=0)
    placed = [(name, block, block.place) for name, block in rank.blocks.items() if block.place is not None]
    placed.sort(key=lambda entry: (entry[0][0], entry[2].position, entry[0][1]))
    # What is believed rests on what is reported.
    stores = [(store, *each) for store in (rank.told, rank.beliefs) for each in store.groups.items()]
    for store, number, group in stores:
        for tier in group.sizes:
            held = rank.find_store(tier).held if store is rank.told else store.held
            tellers = {(each, tier) for each in ([number] if store is rank.told else rank.told.groups)}
            for is_doubted, (name, block, place) in product((False, True), placed):
                tells = not tellers.isdisjoint(block.doubted if is_doubted else block.copies)
                if tells and ((store is rank.told) if is_doubted else ((number, tier), place.hash) in held):
                    yield BlockRecord(
                        name[1], place.above, place.hash, name[0], tier, number, group.kind, group.window_tokens,
                        block.copies.get((number, tier), 1), place.position, is_doubted,
                    )  # fmt: skip


def load(rank: Rank, record: BlockRecord) -> bool:
    """Put one record back; False where it cannot be: unknown tier or group, or a block that is there already."""
    tier, place = find_tier(record.medium), record.canonical_hash
    if tier is None or record.block_tokens < 1:
        return False
    kind = (record.group_kind, record.window_tokens)
    believed = rank.beliefs.groups.get(record.group_idx)
    if believed is not None and believed.is_like(*kind):
        is_held = any(((number, tier), place) in rank.told.held for number in rank.told.groups)
        if (
            not is_held
            or not record.copies
            or believed.sizes.setdefault(tier, record.block_tokens) != record.block_tokens
        ):
            return False
        rank.beliefs.held[(record.group_idx, tier), place] = 1
        return True
    group, slot = rank.find_group(record.group_idx, *kind), (record.group_idx, tier)
    if group is None or group.component is None or not rank.open_tier(group, tier, record.block_tokens):
        return False
    name = (record.block_tokens, record.engine_hash)
    block = rank.blocks.get(name, Block(Place(place, record.canonical_parent, record.position)))
    is_known = slot in block.copies or slot in block.doubted
    if not record.copies or is_known or block.place is None or block.place.hash != place:
        return False
    copies = {} if record.is_doubted else {slot: record.copies}
    doubted = {slot} if record.is_doubted else set()
    rank.put(name, Block(block.place, {**block.copies, **copies}, block.doubted | doubted))
    rank.link(name)
    return True
