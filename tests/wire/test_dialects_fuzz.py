"""Whatever the bytes, the decoders answer with values."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from wire.dialects import decode_batch, sglang, vllm
from wire.dialects.sglang import Generation
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch, Medium
from wire.malformed import Malformed

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
)
trees = st.recursive(
    scalars | st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "type", "block_hashes", "GPU"]),
    lambda inner: (
        st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=5) | st.just("type"), inner, max_size=5)
    ),
    max_leaves=30,
)
hashes = st.lists(st.integers(-(2**63), 2**64 - 1) | st.binary(min_size=32, max_size=32), max_size=4).map(tuple)
keys = st.none() | st.lists(
    st.none() | st.lists(st.text(max_size=3) | st.integers(0, 9), max_size=2).map(tuple), max_size=3
).map(tuple)
stored = st.builds(
    BlockStored,
    block_hashes=hashes,
    parent_block_hash=st.none() | st.integers(-(2**63), 2**64 - 1),
    token_ids=st.lists(st.integers(0, 2**32 - 1), max_size=8).map(tuple),
    block_tokens=st.integers(1, 64),
    medium=st.sampled_from(Medium),
    lora_id=st.none() | st.integers(0, 9),
    lora_name=st.none() | st.text(max_size=3),
    extra_keys=keys,
    group_idx=st.none() | st.integers(0, 3),
    group_kind=st.none() | st.sampled_from(["full_attention", "mamba"]),
    window_tokens=st.none() | st.integers(1, 512),
    session_id=st.none() | st.text(max_size=3),
)
removed = st.builds(
    BlockRemoved, block_hashes=hashes, medium=st.sampled_from(Medium), group_idx=st.none() | st.integers(0, 3)
)
batches = st.builds(
    EventBatch,
    ts_s=st.floats(0, 2e9),
    events=st.lists(stored | removed | st.just(AllBlocksCleared()), max_size=5).map(tuple),
    dp_rank=st.none() | st.integers(0, 15),
)


@given(st.binary(max_size=300))
@settings(max_examples=400)
def test_random_bytes_never_raise(payload):
    assert isinstance(decode_batch(payload), EventBatch | Malformed)


@given(trees)
@settings(max_examples=300)
def test_random_msgpack_never_raises(tree):
    payload = msgspec.msgpack.encode(tree)
    assert isinstance(decode_batch(payload), EventBatch | Malformed)
    event_payload = b"\x93" + msgspec.msgpack.encode(1.0) + b"\x91" + payload + b"\x00"
    decoded = decode_batch(event_payload)
    assert isinstance(decoded, EventBatch)
    assert len(decoded.events) + len(decoded.skipped) == 1


@given(batches, st.data())
def test_damaged_batches_never_raise(batch, data):
    payload = bytearray(vllm.encode_batch(batch, data.draw(st.sampled_from(["0.16", "0.23", "0.32"]))))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    assert isinstance(decode_batch(bytes(payload)), EventBatch | Malformed)
    assert isinstance(decode_batch(bytes(payload[: data.draw(st.integers(0, len(payload)))])), EventBatch | Malformed)


@given(batches)
def test_the_newest_vllm_form_reads_back_as_written(batch):
    assert decode_batch(vllm.encode_batch(batch, "0.33")) == batch


@given(batches, st.sampled_from(Generation))
def test_sglang_forms_keep_what_decides_residency(batch, generation):
    decoded = decode_batch(sglang.encode_batch(batch, generation))
    assert decoded.skipped == ()
    for event, written in zip(decoded.events, batch.events, strict=True):
        assert type(event) is type(written)
        for name in ("block_hashes", "medium", "token_ids", "parent_block_hash", "block_tokens"):
            assert getattr(event, name, None) == getattr(written, name, None)
