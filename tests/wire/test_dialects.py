"""Every public encoding of cache events, both directions."""

import math

import msgspec
import pytest

from wire.dialects import decode_batch, sglang, shapes, vllm
from wire.dialects.sglang import Generation
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch, Medium
from wire.malformed import Malformed

pack = msgspec.msgpack.encode
SGLANG_ARRAY = bytes.fromhex(
    "93cb3ff00000000000009397ab426c6f636b53746f72656491d3cf97adeedb59e05bc0940102030404c0a347505593ac426c6f636b52656d6f"
    "7665649105aa4350555f50494e4e454491b0416c6c426c6f636b73436c656172656400"
)
SGLANG_MAP = bytes.fromhex(
    "93cb3ff00000000000009388a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391d3cf97adeedb59e05bb170617265"
    "6e745f626c6f636b5f68617368c0a9746f6b656e5f6964739401020304aa626c6f636b5f73697a6504a76c6f72615f6964c0a66d656469756d"
    "a3475055aa73657373696f6e5f6964a17383a474797065ac426c6f636b52656d6f766564ac626c6f636b5f6861736865739105a66d65646975"
    "6daa4350555f50494e4e454481a474797065b0416c6c426c6f636b73436c656172656400"
)


def stored(**fields) -> BlockStored:
    defaults = {"block_hashes": (11, 12), "parent_block_hash": 10, "token_ids": (1, 2, 3, 4), "block_tokens": 2}
    return BlockStored(**(defaults | fields))


def batch(*events, dp_rank=0) -> EventBatch:
    return EventBatch(ts_s=1.0, events=events, dp_rank=dp_rank)


def sglang_vector(session_id) -> EventBatch:
    first = stored(
        block_hashes=(-3488128144981237669,),
        parent_block_hash=None,
        token_ids=(1, 2, 3, 4),
        block_tokens=4,
        session_id=session_id,
    )
    return batch(first, BlockRemoved(block_hashes=(5,), medium=Medium.HOST), AllBlocksCleared())


def test_sglang_array_vector_both_ways():
    assert decode_batch(SGLANG_ARRAY) == sglang_vector(None)
    assert sglang.encode_batch(sglang_vector(None), Generation.ARRAY) == SGLANG_ARRAY


def test_sglang_map_vector_both_ways():
    assert decode_batch(SGLANG_MAP) == sglang_vector("s")
    assert sglang.encode_batch(sglang_vector("s"), Generation.MAP) == SGLANG_MAP


@pytest.mark.parametrize("generation", Generation)
def test_sglang_carries_the_salt_in_both_generations(generation):
    salted = batch(stored(cache_salt="tenant-a"))
    assert decode_batch(sglang.encode_batch(salted, generation)) == salted


def test_sglang_unsalted_arrays_stay_seven_long():
    _, events, _ = msgspec.msgpack.decode(sglang.encode_batch(batch(stored()), Generation.ARRAY))
    assert len(events[0]) == 7


RICH = stored(
    lora_id=3,
    lora_name="ad1",
    extra_keys=(("ad1", "salt"), None),
    group_idx=1,
    group_kind="sliding_window",
    window_tokens=256,
    session_id="sess",
)
LATER_FIELDS = {
    "0.13": {},
    "0.16": {"lora_name"},
    "0.18": {"lora_name", "extra_keys"},
    "0.20": {"lora_name", "extra_keys", "group_idx"},
    "0.23": {"lora_name", "extra_keys", "group_idx", "group_kind", "window_tokens"},
    "0.26": {"lora_name", "extra_keys", "group_idx", "group_kind", "window_tokens"},
    "0.29": {"lora_name", "extra_keys", "group_idx", "group_kind", "window_tokens"},
    "0.32": {"lora_name", "extra_keys", "group_idx", "group_kind", "window_tokens", "session_id"},
    "0.33": {"lora_name", "extra_keys", "group_idx", "group_kind", "window_tokens", "session_id"},
}


@pytest.mark.parametrize("version", LATER_FIELDS)
def test_a_vllm_version_carries_the_fields_it_has(version):
    decoded = decode_batch(vllm.encode_batch(batch(RICH, BlockRemoved(block_hashes=(11,), group_idx=1)), version))
    expected = {name: getattr(RICH, name) for name in LATER_FIELDS[version]}
    assert decoded.events[0] == stored(lora_id=3, **expected)
    assert decoded.events[1].group_idx == (1 if "group_idx" in LATER_FIELDS[version] else None)
    assert decoded.skipped == ()


@pytest.mark.parametrize("version", ["0.12", "1", "0.x", ""])
def test_a_vllm_version_outside_the_known_ones_is_refused(version):
    with pytest.raises(ValueError, match="vLLM"):
        vllm.encode_batch(batch(), version)


def test_replays_carry_the_topic_from_vllm_0_26_on():
    assert [vllm.replays_with_topic(version) for version in ("0.13", "0.23", "0.26", "0.33")] == [
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("hashes", [(0, 2**64 - 1), (-(2**63), 2**63), (b"\x01" * 32, b"\xff" * 32)])
def test_hashes_are_signed_unsigned_or_bytes(hashes):
    event = batch(stored(block_hashes=hashes, parent_block_hash=hashes[0]), BlockRemoved(block_hashes=hashes))
    for payload in (sglang.encode_batch(event, Generation.MAP), vllm.encode_batch(event, "0.16")):
        assert decode_batch(payload) == event


def test_A09_group_medium_adapter_and_salt_survive_decoding():
    fields = ["BlockStored", [1], None, [1, 2], 2, 7, "CPU_PINNED", "ad1", [["ad1", "salt"]], 1, "sliding_window", 128]
    event = decode_batch(pack([1.0, [fields], 3])).events[0]
    assert (event.medium, event.lora_id, event.lora_name) == (Medium.HOST, 7, "ad1")
    assert (event.group_idx, event.group_kind, event.window_tokens) == (1, "sliding_window", 128)
    assert event.extra_keys == (("ad1", "salt"),)


def test_A10_maps_and_arrays_decode_to_identical_events():
    event = batch(stored(lora_id=None, group_idx=0, group_kind="full_attention", lora_name=None))
    assert decode_batch(vllm.encode_batch(event, "0.23")) == decode_batch(vllm.encode_batch(event, "0.32")) == event


@pytest.mark.parametrize(
    "unknown",
    [["BlockMoved", [1], 2], {"type": "BlockMoved", "to": [1]}, ["BlockMoved"]],
    ids=["array", "map", "bare tag"],
)
def test_A10_an_unknown_event_between_two_known_ones_is_skipped_and_counted(unknown):
    known = ["BlockRemoved", [1], "GPU"], {"type": "BlockRemoved", "block_hashes": [2]}
    decoded = decode_batch(pack([1.0, [known[0], unknown, known[1]], 0]))
    assert [event.block_hashes for event in decoded.events] == [(1,), (2,)]
    assert decoded.skipped == ("unknown_type",)


@pytest.mark.parametrize(
    "broken",
    [
        None,
        7,
        [],
        {},
        ["BlockRemoved"],
        ["BlockRemoved", "hashes"],
        ["BlockRemoved", [1.5]],
        ["BlockStored", [1], None, [1, -2], 2, None],
        ["BlockStored", [1], None, [1, 2**32], 2, None],
        ["BlockStored", [1], None, [1, 2], 0, None],
        ["BlockStored", [1], None, "ab", 2, None],
        ["BlockStored", [1], None, [1, 2]],
        {"type": "BlockStored", "block_hashes": [1]},
        {"type": "BlockRemoved", "block_hashes": None},
        {"block_hashes": [1]},
    ],
)
def test_a_malformed_event_is_counted_and_its_neighbours_stay(broken):
    decoded = decode_batch(pack([1.0, [["AllBlocksCleared"], broken, ["AllBlocksCleared"]], 0]))
    assert decoded.events == (AllBlocksCleared(), AllBlocksCleared())
    assert decoded.skipped == ("malformed",)


@pytest.mark.parametrize("payload", [b"", b"\xc1", pack({}), pack([]), pack(["x", [], 0]), pack([1.0, {}, 0]), b"\x93"])
def test_a_malformed_batch_is_a_value(payload):
    assert isinstance(decode_batch(payload), Malformed)


def test_nesting_without_end_is_a_value():
    assert isinstance(decode_batch(b"\x91" * 100_000), Malformed)
    nested = b"\x93" + pack(1.0) + b"\x91" + b"\x91" * 100_000 + b"\xc0" + b"\xc0"
    assert isinstance(decode_batch(nested), Malformed | EventBatch)


def test_unknown_keys_and_longer_arrays_are_ignored():
    keyed = {"type": "BlockRemoved", "block_hashes": [1], "locality": "local", "metadata": {"cache_salt": "x"}}
    longer = ["BlockStored", [1], None, [1, 2], 2, None, "GPU", None, None, 0, "full_attention", None, "new", {"x": 1}]
    decoded = decode_batch(pack([1.0, [keyed, longer], 0, "more"]))
    assert decoded.skipped == ()
    assert decoded.events[1].group_kind == "full_attention"


def test_missing_trailing_fields_are_accepted():
    decoded = decode_batch(pack([1, [["BlockStored", [1], None, [1, 2], 2], ["BlockRemoved", [1]]]]))
    assert decoded == EventBatch(
        ts_s=1.0,
        events=(
            BlockStored(block_hashes=(1,), parent_block_hash=None, token_ids=(1, 2), block_tokens=2),
            BlockRemoved(block_hashes=(1,)),
        ),
    )


def test_bigram_tokens_are_flattened_to_the_first_of_each_pair():
    pairs = [[1, 2], [2, 3], [3, 4], [4, 5]]
    decoded = decode_batch(pack([1.0, [["BlockStored", [1], None, pairs, 4, None, "GPU"]], 0]))
    assert decoded.events[0].token_ids == (1, 2, 3, 4)


def test_an_unknown_medium_is_kept_as_text_and_none_means_device():
    decoded = decode_batch(pack([1.0, [["BlockRemoved", [1], "TAPE"], ["BlockRemoved", [1], None]], 0]))
    assert [event.medium for event in decoded.events] == ["TAPE", Medium.DEVICE]


def test_nested_content_keys_are_laid_flat():
    keyed = {
        "type": "BlockStored",
        "block_hashes": [1],
        "token_ids": [1],
        "block_size": 1,
        "extra_keys": [[["img", 3], True]],
    }
    assert decode_batch(pack([1.0, [keyed], 0])).events[0].extra_keys == (("img", 3, "True"),)


def test_events_over_their_limits_are_left_out():
    many_hashes = ["BlockRemoved", list(range(shapes.MAX_HASHES + 1)), "GPU"]
    most_hashes = ["BlockRemoved", list(range(shapes.MAX_HASHES)), "GPU"]
    many_tokens = ["BlockStored", [1], None, [0] * (shapes.MAX_TOKENS + 1), shapes.MAX_TOKENS, None, "GPU"]
    most_tokens = ["BlockStored", [1], None, [0] * shapes.MAX_TOKENS, shapes.MAX_TOKENS, None, "GPU"]
    decoded = decode_batch(pack([1.0, [many_hashes, most_hashes, many_tokens, most_tokens], 0]))
    assert decoded.skipped == ("malformed", "malformed")
    assert [type(event) for event in decoded.events] == [BlockRemoved, BlockStored]


def test_a_payload_over_the_limit_is_refused_unread(monkeypatch):
    monkeypatch.setattr("wire.dialects.decode.MAX_PAYLOAD_BYTES", 4)
    assert decode_batch(pack([math.pi, [], 0])) == Malformed("payload size")


@pytest.mark.parametrize("tail", [b"\xc0", pack(["AllBlocksCleared"])])
def test_G01_a_batch_of_more_events_than_engines_publish_is_refused_before_it_is_built(tail):
    count = shapes.MAX_EVENTS + 1
    payload = b"\x93\x00\xdd" + count.to_bytes(4, "big") + tail * count + b"\xc0"
    assert decode_batch(payload) == Malformed("batch")


def test_a_hash_longer_than_engines_use_is_malformed():
    event = ["BlockRemoved", [b"x" * (shapes.MAX_HASH_BYTES + 1)], "GPU"]
    assert decode_batch(pack([1.0, [event], 0])).skipped == ("malformed",)


@pytest.mark.parametrize("event", [5, None, "BlockStored", [], {}, [7], {"type": 7}, [["BlockMoved"]]])
def test_an_event_without_a_tag_is_malformed(event):
    assert decode_batch(pack([1.0, [event], 0])).skipped == ("malformed",)
