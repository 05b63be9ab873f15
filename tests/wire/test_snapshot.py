"""Snapshots on the wire: what goes in comes out, whatever the pieces, and foreign bytes are refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.events import Medium
from wire.malformed import Malformed
from wire.snapshot import (
    CHUNK_RECORDS,
    MAX_FRAME_BYTES,
    BlockRecord,
    SnapshotEnd,
    SnapshotHeader,
    SnapshotReader,
    encode_snapshot,
    to_records,
    to_runs,
)

HEADER = SnapshotHeader(incarnation="a1", watermark=7, trust="exact", dp_rank=1, model="m", seed=3)
HASHES = st.integers(0, 2**64 - 1)
ANY_RECORDS = st.builds(
    BlockRecord,
    engine_hash=HASHES,
    canonical_parent=HASHES,
    canonical_hash=HASHES,
    block_tokens=st.integers(1, 2048),
    medium=st.sampled_from([*Medium, "TAPE"]),
    group_idx=st.none() | st.integers(0, 5),
    group_kind=st.none() | st.sampled_from(["full_attention", "sliding_window"]),
    window_tokens=st.none() | st.integers(1, 4096),
    copies=st.integers(0, 9),
    position=st.integers(0, 1 << 20),
    is_doubted=st.booleans(),
)


COLUMNS_OF_ONE = (bytes(8), bytes(8), bytes(4), bytes(4))
#: Only the first block of a prompt has none before it.
RECORDS = ANY_RECORDS.map(lambda each: each if each.position else msgspec.structs.replace(each, canonical_parent=None))


def record(number):
    return BlockRecord(number, number - 1 if number else None, number, 16, Medium.DEVICE, None, None, None, 1, number)


def read(*pieces):
    reader = SnapshotReader()
    return [part for piece in pieces for part in reader.feed(piece)], reader


@given(st.lists(RECORDS, max_size=30), st.lists(st.integers(1, 400), max_size=20))
def test_a_snapshot_reads_back_as_written_in_whatever_pieces_it_comes(records, cuts):
    data = b"".join(encode_snapshot(HEADER, to_runs(records)))
    pieces = []
    for cut in cuts:
        pieces.append(data[:cut])
        data = data[cut:]
    parts, reader = read(*pieces, data)
    assert (parts[0], parts[-1], reader.is_complete) == (HEADER, SnapshotEnd(len(records)), True)
    assert [each for part in parts[1:-1] for run in part for each in to_records(run)] == records


def test_records_come_in_chunks_of_bounded_size():
    frames = list(encode_snapshot(HEADER, to_runs(map(record, range(2 * CHUNK_RECORDS + 1)))))
    assert len(frames) == 5
    assert max(map(len, frames)) < MAX_FRAME_BYTES
    parts, _ = read(*frames)
    assert [sum(map(len, part)) for part in parts[1:-1]] == [CHUNK_RECORDS, CHUNK_RECORDS, 1]


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused_and_nothing_raises(data):
    parts, reader = read(data, b"\0" * 8)
    assert not reader.is_complete
    assert all(isinstance(part, Malformed) for part in parts)


@given(st.integers(0, 400), st.integers(1, 255))
def test_a_flipped_byte_never_raises_and_whole_records_only_come_out(place, flip):
    data = bytearray(b"".join(encode_snapshot(HEADER, to_runs(map(record, range(5))))))
    data[place % len(data)] ^= flip
    parts, _ = read(bytes(data))
    assert all(isinstance(part, Malformed | SnapshotHeader | SnapshotEnd | tuple) for part in parts)


def frames_of(*values):
    out = b""
    for value in values:
        body = msgspec.msgpack.encode(value)
        out += len(body).to_bytes(4, "big") + body
    return out


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (frames_of(SnapshotEnd(0)), "snapshot order of frames"),
        (frames_of(HEADER, HEADER), "snapshot order of frames"),
        (frames_of(HEADER, SnapshotEnd(1)), "snapshot record count"),
        (frames_of(HEADER, SnapshotEnd(0), SnapshotEnd(0)), "snapshot order of frames"),
        (frames_of(msgspec.structs.replace(HEADER, version=1)), "snapshot version"),
        ((MAX_FRAME_BYTES + 1).to_bytes(4, "big"), "snapshot frame size"),
        (frames_of({"type": "chunk", "runs": []}), "snapshot order of frames"),
        (
            frames_of(
                HEADER,
                {"type": "chunk", "runs": [[16, "GPU", None, None, None, False, bytes(16), *COLUMNS_OF_ONE]]},
            ),
            "snapshot columns",
        ),
        (frames_of(HEADER, {"type": "chunk", "runs": [[0, "GPU", None, None, None, False, *[b""] * 5]]}),
         "snapshot frame"),
    ],
)  # fmt: skip
def test_what_is_no_whole_snapshot_of_this_version_is_refused_with_its_reason(data, reason):
    parts, _ = read(data, frames_of(HEADER))
    assert [part.reason for part in parts if isinstance(part, Malformed)] == [reason]
