"""What an event says about identity: the namespace of its blocks, their content, the tier that has them.

Rules of the public dialects in one place; no state.
"""

from collections.abc import Sequence

from prefix_index.hashing import block_hashes
from wire.block_hash import fold_keys, namespace_seed
from wire.events import BlockStored, Medium

#: Tiers by the words that engines and their offloading connectors use.
_TIERS = {medium.value: medium for medium in Medium} | {"CPU": Medium.HOST}
Keys = tuple[str | int | bytes, ...]


def find_tier(medium: str) -> Medium | None:
    """Tier that a word means; None for one that is not known."""
    return _TIERS.get(medium)


def count_unlisted(event: BlockStored) -> int | None:
    """Blocks that the event gives tokens of, before those it names; None where tokens do not fill blocks.

    A group that keeps only the blocks it needs names the last ones of a step.
    """
    if event.block_tokens < 1:
        return None
    blocks, rest = divmod(len(event.token_ids), event.block_tokens)
    unlisted = blocks - len(event.block_hashes)
    return None if rest or unlisted < 0 else unlisted


def find_seed(event: BlockStored, model: str, *, bigram: bool, secret: int) -> int:
    """Start of the chain for an event whose first block starts a prompt."""
    adapter = event.lora_name if event.lora_name is not None or event.lora_id is None else str(event.lora_id)
    salt, _ = _split_salt(event)
    return namespace_seed(model, adapter=adapter, cache_salt=salt, bigram=bigram, secret=secret)


def content_keys(event: BlockStored) -> tuple[Keys, ...] | None:
    """What each named block holds besides tokens (images); None where none has any. Salt and adapter are left out."""
    if event.extra_keys is None or not any(event.extra_keys):
        return None
    named = [_without_adapter(keys, event) for keys in event.extra_keys]
    keys = (_split_salt(event)[1], *named[1:]) if _names_first(event) else tuple(named)
    return keys if any(keys) else None


def chain_hashes(parent: int, token_ids: Sequence[int], block_tokens: int, keys: tuple[Keys, ...] | None) -> list[int]:
    """Canonical hashes of consecutive blocks after `parent`, images included."""
    if keys is None:
        return block_hashes(token_ids, block_tokens, parent)
    hashes: list[int] = []
    for start in range(0, len(token_ids), block_tokens):
        index = start // block_tokens
        seed = fold_keys(parent, keys[index]) if index < len(keys) and keys[index] else parent
        parent = block_hashes(token_ids[start : start + block_tokens], block_tokens, seed)[0]
        hashes.append(parent)
    return hashes


def _split_salt(event: BlockStored) -> tuple[str | None, Keys]:
    """Salt of a prompt's first block, and its other keys.

    vLLM puts the salt last among the first block's keys and does not mark it. An image's keys come
    in pairs with a number, so text in the last place that is no adapter is the salt.
    """
    if not event.extra_keys or not _names_first(event):
        return event.cache_salt, ()
    keys = _without_adapter(event.extra_keys[0], event)
    if event.cache_salt is None and keys and isinstance(keys[-1], str):
        return keys[-1], keys[:-1]
    return event.cache_salt, tuple(key for key in keys if key != event.cache_salt)


def _names_first(event: BlockStored) -> bool:
    """True when the first named block starts a prompt; keys belong to named blocks."""
    return event.parent_block_hash is None and count_unlisted(event) == 0


def _without_adapter(keys: Keys | None, event: BlockStored) -> Keys:
    if not keys:
        return ()
    return keys[1:] if event.lora_name is not None and keys[0] == event.lora_name else keys
