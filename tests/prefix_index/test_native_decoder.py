"""The native decoder against `wire.dialects`: it reads the same, or leaves the payload to that decoder."""

from importlib import import_module

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_index.hashing import native_available
from wire.dialects import decode_batch, sglang, vllm
from wire.dialects.sglang import Generation
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch, Medium

pytestmark = pytest.mark.skipif(not native_available(), reason="the native module was not built (no C++ compiler)")
core = import_module("prefix_index._core") if native_available() else None

words = st.text(max_size=4) | st.text("abc0", max_size=4)
numbers = st.integers(-(2**63), 2**64 - 1)
names = numbers | st.binary(max_size=66)
keys = st.none() | st.lists(
    st.none() | st.lists(words | numbers | st.binary(max_size=3), max_size=3).map(tuple), max_size=3
).map(tuple)
stored = st.builds(
    BlockStored,
    block_hashes=st.lists(names, max_size=4).map(tuple),
    parent_block_hash=st.none() | names,
    token_ids=st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 70_000), max_size=20).map(tuple),
    block_tokens=st.integers(0, 64) | st.integers(0, 2**21),
    medium=st.sampled_from(Medium) | words,
    lora_id=st.none() | numbers,
    lora_name=st.none() | words,
    cache_salt=st.none() | words,
    extra_keys=keys,
    group_idx=st.none() | st.integers(0, 3) | numbers,
    group_kind=st.none() | st.sampled_from(["full_attention", "mamba"]) | words,
    window_tokens=st.none() | numbers,
    session_id=st.none() | words,
)
removed = st.builds(
    BlockRemoved,
    block_hashes=st.lists(names, max_size=4).map(tuple),
    medium=st.sampled_from(Medium) | words,
    group_idx=st.none() | numbers,
)
batches = st.builds(
    EventBatch,
    ts_s=st.floats(),
    events=st.lists(stored | removed | st.just(AllBlocksCleared()), max_size=4).map(tuple),
    dp_rank=st.none() | numbers,
)
payloads = st.builds(vllm.encode_batch, batches, st.sampled_from(["0.13", "0.16", "0.18", "0.23", "0.32"])) | st.builds(
    sglang.encode_batch, batches, st.sampled_from(Generation)
)


def to_bytes(text: object) -> bytes | None:
    return None if text is None else str(text).encode()


def to_key(key: str | int | bytes) -> tuple[int, bytes]:
    if isinstance(key, bytes):
        return 2, key
    return (1, key.encode()) if isinstance(key, str) else (3, str(key).encode())


def to_group(number: int | None) -> tuple[bool, bool, int]:
    return (False, False, 0) if number is None else (True, number < 0, number % 2**64)


def flatten(event) -> tuple:
    """An event as the native decoder tells it."""
    if isinstance(event, AllBlocksCleared):
        return (2, [], None, [], 0, 0, False, False, 0, None, None, None, None, [], None)
    hashes = [core.to_name(name) for name in event.block_hashes]
    medium, group = core.to_tier(str(event.medium)), to_group(event.group_idx)
    if isinstance(event, BlockRemoved):
        return (1, hashes, None, [], 0, medium, *group, None, None, None, None, [], None)
    blocks = event.extra_keys if event.extra_keys and any(event.extra_keys) else ()
    return (
        0,
        hashes,
        None if event.parent_block_hash is None else core.to_name(event.parent_block_hash),
        list(event.token_ids),
        event.block_tokens,
        medium,
        *group,
        to_bytes(event.group_kind),
        to_bytes(event.lora_name),
        to_bytes(event.lora_id),
        to_bytes(event.cache_salt),
        [[to_key(key) for key in block or ()] for block in blocks],
        event.window_tokens,
    )


def agrees(payload: bytes) -> bool:
    """Whether the native decoder read the payload; what it read must be what `wire.dialects` reads."""
    told = core.decode(payload)
    if told is None:
        return False
    batch = decode_batch(payload)
    assert isinstance(batch, EventBatch)
    assert batch.skipped == ()
    read = [flatten(event) for event in batch.events]
    for ours, theirs in zip(told, read, strict=True):
        if theirs[0] == 0:
            assert ours == theirs
        else:
            relevant = (0, 1, 5, 6, 7, 8) if theirs[0] == 1 else (0,)
            assert [ours[at] for at in relevant] == [theirs[at] for at in relevant]
    return True


@given(payloads)
@settings(max_examples=500)
def test_what_engines_write_is_read_alike(payload):
    agrees(payload)


@given(payloads, st.data())
@settings(max_examples=1_500)
def test_damaged_payloads_are_read_alike_or_left(payload, data):
    damaged = bytearray(payload)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    agrees(bytes(damaged))
    agrees(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))


@given(st.binary(max_size=400))
@settings(max_examples=500)
def test_random_bytes_are_left_or_read_alike(payload):
    agrees(payload)


fields = {
    "block_hashes": st.lists(names | st.text(max_size=2) | st.none(), max_size=3),
    "parent_block_hash": st.none() | names | st.booleans(),
    "token_ids": st.lists(numbers | st.integers(0, 9) | st.floats(), max_size=4)
    | st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), max_size=3),
    "block_size": st.integers(-1, 5) | st.floats() | st.none(),
    "lora_id": numbers | st.none() | st.text(max_size=2),
    "medium": words | st.none() | numbers,
    "lora_name": words | st.none() | st.dictionaries(st.just("cache_salt") | words, words | numbers, max_size=2),
    "extra_keys": st.none()
    | st.lists(
        st.none() | st.lists(st.lists(words | numbers, max_size=2) | st.booleans() | words, max_size=2), max_size=2
    ),
    "group_idx": numbers | st.none() | st.booleans(),
    "kv_cache_spec_kind": words | st.none(),
    "kv_cache_spec_sliding_window": numbers | st.none() | st.floats(),
}
types = st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "Other"])
maps = st.fixed_dictionaries(
    {"type": types},
    optional=fields | {"cache_salt": words | st.none(), "session_id": words | numbers, "other": st.lists(words)},
)
arrays = st.builds(
    lambda kind, rest: [kind, *rest],
    types,
    st.tuples(*fields.values()).flatmap(lambda rest: st.integers(0, 12).map(lambda count: list(rest)[:count])),
)


@given(st.lists(maps | arrays, max_size=3), st.none() | numbers | st.booleans())
@settings(max_examples=1_500)
def test_fields_of_the_wrong_type_are_left(events, dp_rank):
    agrees(msgspec.msgpack.encode([1.0, events, dp_rank]))


@pytest.mark.parametrize("version", ["0.13", "0.16", "0.20", "0.23", "0.26", "0.32"])
def test_the_usual_events_never_need_the_slow_way(version):
    event = BlockStored(
        block_hashes=(2**64 - 1, 5),
        parent_block_hash=7,
        token_ids=tuple(range(0, 6_400_000, 200_000)),
        block_tokens=16,
        group_idx=0,
        group_kind="full_attention",
        extra_keys=(("salt",), None),
    )
    batch = EventBatch(
        ts_s=1.0, events=(event, BlockRemoved(block_hashes=(1, bytes(32))), AllBlocksCleared()), dp_rank=3
    )
    assert agrees(vllm.encode_batch(batch, version))


@pytest.mark.parametrize("generation", Generation)
def test_salted_events_of_sglang_never_need_the_slow_way(generation):
    event = BlockStored(block_hashes=(-5,), parent_block_hash=None, token_ids=(1, 2), block_tokens=2, cache_salt="s")
    assert agrees(sglang.encode_batch(EventBatch(ts_s=1.0, events=(event,), dp_rank=0), generation))
    assert core.decode(sglang.encode_batch(EventBatch(ts_s=1.0, events=(event,)), generation))[0][-3] == b"s"


def test_pairs_of_tokens_are_flattened_to_the_first():
    event = {"type": "BlockStored", "block_hashes": [1], "token_ids": [[1, 2], [2, 3]], "block_size": 2}
    assert agrees(msgspec.msgpack.encode([1.0, [event]]))


def test_counts_that_the_bytes_cannot_hold_are_left():
    for count in (2, 65_537, 2**32 - 1):
        head = b"\x92\x00\x91\x92\xacBlockRemoved\xdd" + count.to_bytes(4, "big")
        assert not agrees(head + b"\x01")
