"""Mooncake traces: timed requests without sessions, block ids of 512 tokens; an open loop."""

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from simulator.graph.checks import check_blocks, check_counts, check_pause
from simulator.graph.request import ID_LIMIT, BlockRequest, BlockTrace
from simulator.traces.lines import Line, TraceError

EXPECTED = "a Mooncake request: timestamp, input_length, output_length, hash_ids"
#: Tokens a block id stands for; the files do not say it.
TRACE_BLOCK_TOKENS = 512


class _Row(Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]
    session_id: str | None = None


def read_mooncake(
    lines: Iterator[Line], path: Path, *, trace_block_tokens: int = TRACE_BLOCK_TOKENS, block_tokens: int = 64
) -> BlockTrace:
    """The whole trace, each id split into blocks of `block_tokens`.

    Raises:
        TraceError: A line is not of this form, or the block sizes do not divide.
    """
    if trace_block_tokens < block_tokens or trace_block_tokens % block_tokens:
        raise TraceError(path, None, f"blocks of {trace_block_tokens} tokens cannot be split into {block_tokens}")
    parts = trace_block_tokens // block_tokens
    requests: list[BlockRequest] = []
    for line in lines:
        row = line.decode(_Row, EXPECTED)
        check_counts(line, row.input_length, row.output_length)
        ids = check_blocks(line, row.hash_ids)
        full = row.input_length // block_tokens
        if len(ids) * parts < full or max(ids, default=0) >= ID_LIMIT // parts:
            complaint = f"{len(ids)} hash_ids do not cover {row.input_length} tokens, or are too large"
            raise TraceError(path, line.number, complaint)
        requests.append(
            BlockRequest(
                request_id=str(len(requests)),
                session=row.session_id,
                blocks=_split(ids, parts, full),
                prompt_tokens=row.input_length,
                output_tokens=row.output_length,
                not_before_s=check_pause(line, row.timestamp / 1000),
            )
        )
    return BlockTrace(block_tokens, tuple(requests))


def _split(ids: Sequence[int], parts: int, full: int) -> "array[int]":
    return array("I", [name * parts + part for name in ids for part in range(parts)][:full])
