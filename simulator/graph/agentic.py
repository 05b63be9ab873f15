"""Agentic Mooncake traces, version 2: a head line, then requests with the graph of what they wait for."""

from array import array
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from simulator.graph.checks import check_blocks, check_counts, check_pause
from simulator.graph.request import BlockRequest, BlockTrace, Trigger, Wait
from simulator.traces.lines import Line, TraceError

EXPECTED_HEAD = 'a head line {"schema": "dynamo.agentic_mooncake", "version": 2, "block_size": ...}'
EXPECTED = "a request {request_id, session_id, input_length, output_length, hash_ids, not_before_ms, dependencies}"
SCHEMA, VERSION = "dynamo.agentic_mooncake", 2


class _Head(Struct):
    schema: str
    version: int
    block_size: int


class _Dependency(Struct):
    request_id: str
    delay_ms: float
    trigger: Trigger = Trigger.COMPLETION
    relation: str = ""


class _Row(Struct):
    request_id: str
    input_length: int
    output_length: int
    hash_ids: list[int]
    session_id: str | None = None
    play_id: str | None = None
    not_before_ms: float = 0.0
    dependencies: list[_Dependency] = []


def read_agentic(lines: Iterator[Line], path: Path) -> BlockTrace:
    """The whole trace.

    Raises:
        TraceError: A line is not of this form, or a request waits for one that does not stand before it.
    """
    first = next(lines, None)
    if first is None:
        raise TraceError(path, None, f"the file is empty; expected {EXPECTED_HEAD}")
    head = first.decode(_Head, EXPECTED_HEAD)
    if (head.schema, head.version) != (SCHEMA, VERSION) or not 1 <= head.block_size <= 1 << 20:
        complaint = f"schema {head.schema!r}, version {head.version}, block_size {head.block_size}"
        raise TraceError(path, first.number, f"{complaint}; expected {EXPECTED_HEAD}")
    places: dict[str, int] = {}
    requests = []
    for line in lines:
        row = line.decode(_Row, EXPECTED)
        if row.request_id in places:
            raise TraceError(path, line.number, f"request_id {row.request_id!r} was there before")
        requests.append(_to_request(row, line, head.block_size, places))
        places[row.request_id] = len(places)
    return BlockTrace(head.block_size, tuple(requests))


def _to_request(row: _Row, line: Line, block_tokens: int, places: dict[str, int]) -> BlockRequest:
    check_counts(line, row.input_length, row.output_length)
    blocks = check_blocks(line, row.hash_ids)
    full = row.input_length // block_tokens
    if not full <= len(blocks) <= -(-row.input_length // block_tokens):
        raise TraceError(line.path, line.number, f"{len(blocks)} hash_ids do not cover {row.input_length} tokens")
    is_agent = row.play_id is not None and row.session_id is not None and row.session_id != row.play_id
    return BlockRequest(
        request_id=row.request_id,
        session=row.session_id,
        parent=row.play_id if is_agent else None,
        blocks=array("I", blocks[:full]),
        prompt_tokens=row.input_length,
        output_tokens=row.output_length,
        not_before_s=check_pause(line, row.not_before_ms / 1000),
        waits=tuple(_to_wait(dependency, line, places) for dependency in row.dependencies),
    )


def _to_wait(dependency: _Dependency, line: Line, places: dict[str, int]) -> Wait:
    place = places.get(dependency.request_id)
    if place is None:
        raise TraceError(line.path, line.number, f"waits for {dependency.request_id!r}, which is not before it")
    return Wait(place, dependency.trigger, check_pause(line, dependency.delay_ms / 1000))
