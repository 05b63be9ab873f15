"""Bytes of a snapshot in pieces of any size: its reader, and a stream and an index that take what it gives."""

from guided import fuzz, instrumented

with instrumented():
    from prefix_index import NaivePrefixIndex
    from prefix_index.stream import RankStream
    from wire.block_hash import namespace_seed
    from wire.events import Medium
    from wire.ids import Target, WorkerId
    from wire.malformed import Malformed
    from wire.snapshot import BlockRecord, SnapshotEnd, SnapshotHeader, SnapshotReader, encode_snapshot, to_runs

TARGET = Target(WorkerId("w"), 0)
HEADER = SnapshotHeader(incarnation="a", watermark=7, trust="exact", dp_rank=0, model="m", seed=namespace_seed("m"))
RECORDS = [BlockRecord(n, n - 1 if n else None, n, 4, Medium.DEVICE, None, None, None, 1, n) for n in range(9)]
ODD = [
    BlockRecord(2**64 - 1, None, 2**64 - 1, 4, "TAPE", 1, "sliding_window", 8, 0, 0, is_doubted=True),
    BlockRecord(5, 5, 5, 16, Medium.HOST, 0, "full_attention", None, 3, 0),
]
WHOLE = b"".join(encode_snapshot(HEADER, to_runs(RECORDS)))
SEEDS = [
    b"\x00" + WHOLE,
    b"\x05" + WHOLE + WHOLE,
    b"\x20" + b"".join(encode_snapshot(HEADER, to_runs([*ODD, *RECORDS]))),
]


def check(data: bytes) -> None:
    """Parts come in order or one refusal comes last, however the bytes are cut; an index takes them all."""
    size, rest = 1 + data[0] if data else 1, data[1:]
    whole = list(SnapshotReader().feed(rest))
    reader, pieces = SnapshotReader(), []
    for start in range(0, len(rest), size):
        pieces += reader.feed(rest[start : start + size])
    assert pieces == whole
    assert all(isinstance(part, Malformed) is (part is whole[-1]) for part in whole if isinstance(part, Malformed))
    index = NaivePrefixIndex()
    index.attach(TARGET, model="m")
    stream = RankStream(TARGET, index, replay_available=False, snapshot_available=True)
    ticket = stream.on_connected(0.0).ask_snapshot
    assert ticket is not None
    for part in whole:
        if isinstance(part, SnapshotHeader):
            stream.on_snapshot_started(part, ticket, 0.0)
        elif isinstance(part, SnapshotEnd):
            stream.on_snapshot_ended(ticket, 0.0)
        elif isinstance(part, Malformed):
            stream.on_snapshot_failed(ticket, 0.0)
        else:
            stream.on_snapshot_records(part, ticket)
        index.check_invariants()
    tuple(index.dump(TARGET))


if __name__ == "__main__":
    fuzz(check, SEEDS)
