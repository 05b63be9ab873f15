"""Blocks of one rank in runs of columns: what a mirror of an engine's cache hands to one that starts anew.

Taken from an index by `dump` and given to another by `load`; no tokens, so a block whose place in
its chain is not known has no record.

On the wire a snapshot is a run of frames, each a length (4 bytes, big-endian) and a msgpack value: one header,
chunks of runs, one end. Readers take the bytes as they come; nothing here raises on foreign bytes.
"""

from array import array
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from operator import attrgetter
from sys import byteorder
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from wire.events import Medium
from wire.malformed import Malformed

#: Version of the encoding; readers refuse any other.
SNAPSHOT_VERSION = 2
CONTENT_TYPE = "application/vnd.dovecote.snapshot"
#: Records in one run and in one chunk, and in one snapshot (some 16 times what a large engine holds).
CHUNK_RECORDS = 4_096
MAX_RECORDS = 16 << 20
#: Largest frame: a chunk of as many runs as it has records.
MAX_FRAME_BYTES = 2 << 20
_LENGTH_BYTES = 4
_MEDIA = {medium.value: medium for medium in Medium}


class BlockRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One block of one cache group in one tier of a rank: a row of a `BlockRun`."""

    #: The engine's own name of the block, folded to 64 bits (`wire.block_hash.fold_name`).
    engine_hash: int
    #: Canonical hash of the block before it; None at the start of a prompt.
    canonical_parent: int | None
    #: Place of the block: canonical hash in the rank's namespace (`wire.block_hash`).
    canonical_hash: int
    #: Tokens in the block.
    block_tokens: int
    #: Tier that has it; a word that is not known is kept and never counts.
    medium: Medium | str
    #: Cache group; None where the dialect has one.
    group_idx: int | None
    #: Kind of the group as the engine says it; None where it does not.
    group_kind: str | None
    #: Window of a sliding group, in tokens.
    window_tokens: int | None
    #: Physical copies, each with a removal of its own; 0 where the record only says that the group has this tier.
    copies: int
    #: Blocks of this size before it in its chain.
    position: int
    #: Events were lost since it was stored: counts only once a block stored below proves it.
    is_doubted: bool = False


_Wide = Annotated[bytes, Meta(max_length=8 * CHUNK_RECORDS)]
_Narrow = Annotated[bytes, Meta(max_length=4 * CHUNK_RECORDS)]


class BlockRun(msgspec.Struct, frozen=True, array_like=True):
    """Records that share their group, tier and doubt, in columns of little-endian numbers; parents come first."""

    block_tokens: Annotated[int, Meta(ge=1, le=1 << 20)]
    medium: Annotated[str, Meta(max_length=64)]
    group_idx: int | None
    group_kind: Annotated[str, Meta(max_length=64)] | None
    window_tokens: int | None
    is_doubted: bool
    #: 8 bytes a record; of parents 0 at the start of a prompt, where the position is 0.
    engine_hashes: _Wide
    canonical_parents: _Wide
    canonical_hashes: _Wide
    #: 4 bytes a record.
    copies: _Narrow
    positions: _Narrow

    def __len__(self) -> int:
        """Records."""
        return len(self.engine_hashes) // 8

    @property
    def is_whole(self) -> bool:
        """Whether all columns are of one length."""
        wide = (self.engine_hashes, self.canonical_parents, self.canonical_hashes)
        narrow = (self.copies, self.positions)
        return {len(column) for column in wide} == {8 * len(self)} and {len(column) for column in narrow} == {
            4 * len(self)
        }


_Name = Annotated[str, Meta(max_length=512)]
_Count = Annotated[int, Meta(ge=0, lt=1 << 53)]
_U64 = Annotated[int, Meta(ge=0)]


class SnapshotHeader(msgspec.Struct, frozen=True, kw_only=True, tag="header"):
    """What a snapshot is of; its first frame."""

    version: int = SNAPSHOT_VERSION
    #: Life of the numbering that `watermark` belongs to.
    incarnation: _Name
    #: Number of the last batch whose events are in the records; -1 where none was published.
    watermark: Annotated[int, Meta(ge=-1, lt=1 << 62)]
    #: How far the source believes its records, in the words of `prefix_index.trust`.
    trust: _Name
    #: Times that the source lost events for good.
    losses: _Count = 0
    dp_rank: _Count
    #: Namespace of the canonical hashes: the base model's name, and the seed that comes of it.
    model: _Name
    seed: _U64


class SnapshotEnd(msgspec.Struct, frozen=True, tag="end"):
    """The snapshot is complete; its last frame."""

    #: Records in all chunks.
    record_count: _Count


class _Chunk(msgspec.Struct, frozen=True, tag="chunk"):
    runs: Annotated[tuple[BlockRun, ...], Meta(max_length=CHUNK_RECORDS)]


SnapshotPart = SnapshotHeader | tuple[BlockRun, ...] | SnapshotEnd
_read_frame = msgspec.msgpack.Decoder(SnapshotHeader | _Chunk | SnapshotEnd).decode
_shared = attrgetter("block_tokens", "medium", "group_idx", "group_kind", "window_tokens", "is_doubted")


def to_runs(records: Iterable[BlockRecord]) -> Iterator[BlockRun]:
    """Records in columns, in their order."""
    for shared, group in groupby(records, _shared):
        while rows := tuple(islice(group, CHUNK_RECORDS)):
            columns = (
                _pack("Q", (record.engine_hash for record in rows)),
                _pack("Q", (record.canonical_parent or 0 for record in rows)),
                _pack("Q", (record.canonical_hash for record in rows)),
                _pack("I", (record.copies for record in rows)),
                _pack("I", (record.position for record in rows)),
            )
            yield BlockRun(*(*shared, *columns))


def to_records(run: BlockRun) -> Iterator[BlockRecord]:
    """The rows of a run that is whole."""
    medium = _MEDIA.get(run.medium, run.medium)
    wide = (_unpack("Q", each) for each in (run.engine_hashes, run.canonical_parents, run.canonical_hashes))
    narrow = (_unpack("I", each) for each in (run.copies, run.positions))
    for name, parent, place, copies, position in zip(*wide, *narrow, strict=True):
        yield BlockRecord(
            name, parent if position else None, place, run.block_tokens, medium, run.group_idx, run.group_kind,
            run.window_tokens, copies, position, run.is_doubted,
        )  # fmt: skip


def cut_runs(runs: Iterable[BlockRun], start: int, stop: int) -> tuple[BlockRun, ...]:
    """The runs' records from the `start`-th up to the `stop`-th, still in runs."""
    pieces = []
    for run in runs:
        first, last = max(0, start), min(len(run), stop)
        if first < last:
            pieces.append(run if last - first == len(run) else _cut(run, first, last))
        start -= len(run)
        stop -= len(run)
    return tuple(pieces)


def encode_snapshot(header: SnapshotHeader, runs: Iterable[BlockRun]) -> Iterator[bytes]:
    """Frames of a snapshot, in order; takes the runs as it goes. 32 bytes a record."""
    yield _frame(header)
    count, chunk_count = 0, 0
    chunk: list[BlockRun] = []
    for run in runs:
        if chunk_count + len(run) > CHUNK_RECORDS and chunk:
            yield _frame(_Chunk(tuple(chunk)))
            chunk, chunk_count = [], 0
        chunk.append(run)
        chunk_count += len(run)
        count += len(run)
    if chunk:
        yield _frame(_Chunk(tuple(chunk)))
    yield _frame(SnapshotEnd(count))


class SnapshotReader:
    """Bytes of one snapshot in, its parts out: header, runs of records in chunks, end."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._records = 0
        self._has_header = False
        #: The end was read: more bytes are malformed.
        self.is_complete = False
        self._refused: Malformed | None = None

    def feed(self, data: bytes) -> Iterator[SnapshotPart | Malformed]:
        """Parts that are complete with `data`; after a `Malformed` nothing follows."""
        self._buffer += data
        start = 0
        while self._refused is None and len(self._buffer) - start >= _LENGTH_BYTES:
            length = int.from_bytes(self._buffer[start : start + _LENGTH_BYTES], "big")
            if length > MAX_FRAME_BYTES:
                yield self._refuse("frame size")
                break
            end = start + _LENGTH_BYTES + length
            if len(self._buffer) < end:
                break
            yield self._read(bytes(self._buffer[start + _LENGTH_BYTES : end]))
            start = end
        del self._buffer[:start]

    def _read(self, frame: bytes) -> SnapshotPart | Malformed:
        try:
            value = _read_frame(frame)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return self._refuse("frame")
        if self.is_complete or self._has_header == isinstance(value, SnapshotHeader):
            return self._refuse("order of frames")
        if isinstance(value, SnapshotHeader):
            self._has_header = True
            return value if value.version == SNAPSHOT_VERSION else self._refuse("version")
        if isinstance(value, SnapshotEnd):
            self.is_complete = True
            return value if value.record_count == self._records else self._refuse("record count")
        return self._take(value)

    def _take(self, chunk: _Chunk) -> tuple[BlockRun, ...] | Malformed:
        if not all(run.is_whole for run in chunk.runs):
            return self._refuse("columns")
        self._records += sum(map(len, chunk.runs))
        return chunk.runs if self._records <= MAX_RECORDS else self._refuse("record count")

    def _refuse(self, reason: str) -> Malformed:
        self._refused = Malformed(f"snapshot {reason}")
        return self._refused


def _frame(value: Any) -> bytes:
    body = msgspec.msgpack.encode(value)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def _cut(run: BlockRun, first: int, last: int) -> BlockRun:
    return msgspec.structs.replace(
        run,
        engine_hashes=run.engine_hashes[8 * first : 8 * last],
        canonical_parents=run.canonical_parents[8 * first : 8 * last],
        canonical_hashes=run.canonical_hashes[8 * first : 8 * last],
        copies=run.copies[4 * first : 4 * last],
        positions=run.positions[4 * first : 4 * last],
    )


def _pack(typecode: str, numbers: Iterable[int]) -> bytes:
    column = array(typecode, numbers)
    if byteorder == "big":
        column.byteswap()
    return column.tobytes()


def _unpack(typecode: str, data: bytes) -> "array[int]":
    column = array(typecode)
    column.frombytes(data)
    if byteorder == "big":
        column.byteswap()
    return column
