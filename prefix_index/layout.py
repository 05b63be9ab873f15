"""What a worker declares about its model's cache: the groups, their rules and their sizes. Values only."""

import msgspec

from prefix_index.components import Registry, is_prefix


class GroupLayout(msgspec.Struct, frozen=True, kw_only=True):
    """One cache group of a hybrid model."""

    #: A kind that the registry knows (`full_attention`, `sliding_window`, `mamba`, ...).
    kind: str
    #: Window of a sliding group, in tokens.
    window_tokens: int | None = None
    #: Bytes that one token takes in this group, over all its layers; None where not said.
    bytes_per_token: int | None = None
    #: Bytes of one checkpoint of a recurrent group, whatever its length.
    checkpoint_bytes: int | None = None
    #: Recurrent states are kept only at multiples of this; None where the end of every stored run has one.
    checkpoint_tokens: int | None = None
    #: Other tiers keep this group's blocks too when they keep the full-attention blocks.
    is_offloaded: bool = False


class Layout(msgspec.Struct, frozen=True):
    """The groups in the order in which the engine numbers them."""

    groups: tuple[GroupLayout, ...]


def find_declared(layout: Layout | None, registry: Registry) -> dict[int | None, GroupLayout]:
    """What a worker says of each group; of one without a number, what it says of its first prefix group."""
    groups = layout.groups if layout is not None else ()
    declared: dict[int | None, GroupLayout] = dict(enumerate(groups))
    for number, group in enumerate(groups):
        component = registry.find(group.kind, number, group.window_tokens)
        if component is not None and is_prefix(component):
            declared.setdefault(None, group)
    return declared


def find_size_bytes(group: GroupLayout | None, tokens: int) -> int | None:
    """What so many tokens of a group take; None where the worker does not say."""
    if group is None:
        return None
    if group.checkpoint_bytes is not None:
        return group.checkpoint_bytes
    return None if group.bytes_per_token is None else group.bytes_per_token * tokens
