"""Prompts with images, sounds and the like: which part of them is known, and what their keys do to block hashes.

An engine puts placeholder tokens where its template says; how many depends on its processor, so a chat is known only
up to the first of them. A template that walks over parts is shown the items as engines show them, for it may put them
before the text or change what stands above them; where it takes text, engines put them first in it. Where a body
brings ids together with the places of its items (as the render routes of engines give them), all of it is known, and
each item's key enters the blocks it overlaps: equal placeholders of different images are different blocks.
"""

from collections.abc import Mapping, Sequence
from os.path import commonprefix
from typing import Any

from prefix_index import block_hashes
from router.prompt.request import MediaItem
from wire.block_hash import fold_keys

#: Text that stands for the content of a message with media while the text before it is rendered.
MARKS = ("\u241e0d0a7f\u241e", "\u241ef1e2d3\u241e")
MAX_ITEMS = 1_024
#: Longest key of an item; engines use digests.
MAX_KEY_CHARS = 512
_TEXTS = ("text", "input_text", "output_text")
#: What engines call the items of parts whose type holds the word: `image_url`, `input_audio`, ...
_KINDS = ("image", "video", "audio")


def has_media(content: object) -> bool:
    """Whether a message carries anything but text."""
    if not isinstance(content, list):
        return False
    return any(
        not (isinstance(part, str) or (isinstance(part, Mapping) and part.get("type") in _TEXTS)) for part in content
    )


def mark_media(messages: Sequence[Mapping[str, Any]], mark: str, *, takes_parts: bool) -> list[Mapping[str, Any]]:
    """The messages with a mark for what depends on media in each that carries some.

    Args:
        messages: OpenAI messages.
        mark: What to put there.
        takes_parts: Whether text parts before the first item may stay; else the mark is all of the content.
    """
    return [
        {**message, "content": _mark_parts(message["content"], mark) if takes_parts else mark}
        if has_media(message.get("content"))
        else message
        for message in messages
    ]


def _mark_parts(parts: Sequence[Any], mark: str) -> list[Any]:
    first = next(place for place, part in enumerate(parts) if has_media([part]))
    return [*parts[:first], {"type": "text", "text": mark}]


def shape_media(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages with every item as engines name it to templates that walk over parts: its kind alone."""
    return [
        {**message, "content": [_shape_part(part) for part in message["content"]]}
        if has_media(message.get("content"))
        else message
        for message in messages
    ]


def _shape_part(part: Any) -> Any:
    kind = part.get("type") if isinstance(part, Mapping) else None
    found = next((word for word in _KINDS if isinstance(kind, str) and word in kind), None)
    return part if found is None else {"type": found}


def find_known_text(texts: Sequence[str]) -> str:
    """What renderings of the same conversation have in common before the marks: those with `MARKS` first, in order."""
    marked = [text.partition(mark)[0] for text, mark in zip(texts, MARKS, strict=False)]
    return commonprefix([*marked, *texts[len(MARKS) :]])  # noqa: RUF071  (of texts, character by character)


def read_media(features: object, token_count: int) -> tuple[MediaItem, ...] | None:
    """Items of a body's `features` (`mm_hashes` and `mm_placeholders` by kind); None where it is not of that form."""
    if not isinstance(features, Mapping):
        return None
    hashes, places = features.get("mm_hashes"), features.get("mm_placeholders")
    if not isinstance(hashes, Mapping) or not isinstance(places, Mapping) or hashes.keys() != places.keys():
        return None
    items: list[MediaItem] = []
    for kind, keys in hashes.items():
        spans = places[kind]
        if not isinstance(keys, list) or not isinstance(spans, list) or len(keys) != len(spans):
            return None
        found = [_read_item(key, span, token_count) for key, span in zip(keys, spans, strict=True)]
        if None in found or len(items) + len(found) > MAX_ITEMS:
            return None
        items += [item for item in found if item is not None]
    return tuple(sorted(items, key=lambda item: item.offset))


def _read_item(key: object, span: object, token_count: int) -> MediaItem | None:
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARS or not isinstance(span, Mapping):
        return None
    offset, length = span.get("offset"), span.get("length")
    if type(offset) is not int or type(length) is not int or offset < 0 or length < 1 or offset + length > token_count:
        return None
    return MediaItem(key, offset, length)


def hash_with_media(ids: Sequence[int], block_tokens: int, seed: int, items: Sequence[MediaItem]) -> tuple[int, ...]:
    """Hash of every full block, an item's key folded in before each block it overlaps.

    The keys of a block are pairs of item and its start relative to the block, as vLLM's events carry them.
    """
    hashes: list[int] = []
    parent = seed
    for start in range(0, len(ids) - block_tokens + 1, block_tokens):
        keys = _keys_of_block(items, start, start + block_tokens)
        folded = fold_keys(parent, keys) if keys else parent
        parent = block_hashes(ids[start : start + block_tokens], block_tokens, folded)[0]
        hashes.append(parent)
    return tuple(hashes)


def _keys_of_block(items: Sequence[MediaItem], start: int, end: int) -> tuple[str | int, ...]:
    keys: list[str | int] = []
    for item in items:
        if item.offset < end and item.offset + item.tokens > start:
            keys += (item.key, item.offset - start)
    return tuple(keys)
