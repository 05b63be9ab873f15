"""Traces of block ids: each form is read as it says, and what is broken is refused with its line."""

import json
import subprocess
import sys
from array import array
from pathlib import Path

import pytest

from simulator.graph.loop import ClosedLoop
from simulator.graph.reader import read_trace
from simulator.graph.request import BlockRequest, Trigger, Wait
from simulator.graph.weka import WekaSampling
from simulator.traces.lines import TraceError

ROOT = Path(__file__).parents[3]
HEAD = {"schema": "dynamo.agentic_mooncake", "version": 2, "block_size": 4, "hash_id_scope": "local"}


def row(name, ids, *, waits=(), **more):
    return {
        "request_id": name, "play_id": "p", "session_id": "p", "input_length": 4 * len(ids), "output_length": 2,
        "hash_ids": ids, "not_before_ms": 0, "dependencies": list(waits), **more,
    }  # fmt: skip


def write(tmp_path, *rows):
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in rows))
    return path


def test_an_agentic_trace_keeps_blocks_times_and_waits(tmp_path):
    wait = {"request_id": "a", "trigger": "dispatch", "delay_ms": 5, "relation": "spawn"}
    trace = read_trace(
        write(tmp_path, HEAD, row("a", [1, 2], not_before_ms=1_500), row("b", [1, 3], waits=[wait], session_id="p/1"))
    )
    first, second = trace.requests
    assert (trace.block_tokens, first.blocks, first.prompt_tokens, first.not_before_s) == (
        4,
        array("I", [1, 2]),
        8,
        1.5,
    )
    assert second.waits == (Wait(0, Trigger.DISPATCH, 0.005),)
    assert (first.parent, second.session, second.parent) == (None, "p/1", "p")


def test_a_begun_block_at_the_end_of_a_prompt_is_no_block(tmp_path):
    trace = read_trace(write(tmp_path, HEAD, row("a", [1, 2], input_length=7)))
    assert (trace.requests[0].blocks, trace.requests[0].prompt_tokens) == (array("I", [1]), 7)


def test_a_mooncake_trace_is_an_open_loop_of_smaller_blocks(tmp_path):
    line = {"timestamp": 250, "input_length": 1_000, "output_length": 3, "hash_ids": [5, 9]}
    trace = read_trace(write(tmp_path, line), block_tokens=256)
    (request,) = trace.requests
    assert request.blocks == array("I", [10, 11, 18])
    assert (request.not_before_s, request.prompt_tokens, request.session, request.waits) == (0.25, 1_000, None, ())


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([], "the file is empty"),
        (["nothing\n"], "line 1: .*malformed"),
        ([{"what": 1}], "line 1: unknown form"),
        ([{**HEAD, "version": 3}], "line 1: .*version 3.*expected a head line"),
        ([HEAD], "no request"),
        ([HEAD, row("a", [1]), row("a", [1])], "line 3: request_id 'a' was there before"),
        ([HEAD, row("a", [-1])], "line 2: block ids must be from 0"),
        ([HEAD, row("a", [1 << 31])], "line 2: block ids must be from 0"),
        ([HEAD, row("a", [1, 2, 3], input_length=4)], "line 2: 3 hash_ids do not cover 4 tokens"),
        ([HEAD, row("a", [1], output_length=0)], "line 2: output of 0 tokens"),
        ([HEAD, row("a", [1], not_before_ms=-1)], "line 2: a time of -0.001 s"),
        ([HEAD, row("a", [1], waits=[{"request_id": "b", "delay_ms": 0}])], "line 2: waits for 'b'"),
        ([{"timestamp": 0, "input_length": 2_000, "output_length": 1, "hash_ids": [1]}], "do not cover 2000 tokens"),
        ([{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1 << 30]}], "are too large"),
    ],
)
def test_what_is_broken_is_refused_with_its_line(tmp_path, lines, complaint):
    with pytest.raises(TraceError, match=complaint):
        read_trace(write(tmp_path, *lines))


def weka_request(t, ids, *, kind="s", **more):
    return {"t": t, "type": kind, "model": "big", "in": 64 * len(ids), "out": 10, "hash_ids": ids, **more}


def weka_session(name, requests):
    return {"id": name, "block_size": 64, "tool_tokens": 128, "system_tokens": 64, "requests": requests}


def load_weka(tmp_path, *sessions, **sampling):
    return read_trace(write(tmp_path, *sessions), sampling=WekaSampling(min_requests=1, **sampling))


def test_a_weka_turn_waits_for_the_answer_before_it_and_the_recorded_pause(tmp_path):
    session = weka_session("s", [weka_request(0, [1, 2, 3], api_time=2.0), weka_request(7.5, [1, 2, 3, 4])])
    first, second = load_weka(tmp_path, session).requests
    assert second.waits == (Wait(0, Trigger.COMPLETION, 5.5),)
    assert first.not_before_s > 0.0
    assert list(second.blocks[:3]) == list(first.blocks)


def test_an_overlapping_request_waits_for_the_start_of_the_other(tmp_path):
    session = weka_session("s", [weka_request(0, [1, 2, 3], api_time=20.0), weka_request(3, [1, 2, 3, 4])])
    assert load_weka(tmp_path, session).requests[1].waits == (Wait(0, Trigger.DISPATCH, 3.0),)


def test_a_sub_agent_begins_after_its_parent_and_is_joined(tmp_path):
    marker = {
        "t": 4.0, "type": "subagent", "tool_tokens": 64, "system_tokens": 0, "duration_ms": 3_000,
        "requests": [weka_request(0.5, [50, 51], model="small", api_time=1.0)],
    }  # fmt: skip
    session = weka_session("s", [weka_request(0, [1, 2], api_time=2.0), marker, weka_request(9, [1, 2, 3])])
    parent, agent, after = load_weka(tmp_path, session).requests
    assert (agent.session, agent.parent, agent.waits) == ("s/1", "s", (Wait(0, Trigger.COMPLETION, 2.5),))
    assert after.waits == (Wait(0, Trigger.COMPLETION, 7.0), Wait(1, Trigger.COMPLETION, 3.5))
    assert not set(parent.blocks) & set(agent.blocks)


def test_sessions_share_the_head_of_their_kind_and_nothing_else(tmp_path):
    one, other = (weka_session(name, [weka_request(0, [1, 2, 3, 4])]) for name in ("one", "other"))
    left, right = (list(request.blocks) for request in load_weka(tmp_path, one, other).requests)
    assert left[:3] == right[:3]
    assert left[3] != right[3]


def test_pauses_prompts_and_requests_are_cut_as_asked(tmp_path):
    turns = [weka_request(1_000 * turn, [1, 2, 3, turn + 10], api_time=1.0) for turn in range(5)]
    turns.insert(1, weka_request(10, list(range(9)), api_time=1.0))
    trace = load_weka(tmp_path, weka_session("s", turns), max_requests=3, max_prompt_tokens=8 * 64, max_pause_s=60.0)
    assert [len(request.blocks) for request in trace.requests] == [4, 4, 4]
    assert {wait.pause_s for request in trace.requests for wait in request.waits} == {60.0}


def test_the_closed_loop_starts_a_request_when_all_it_waited_for_has_come():
    def request(name, *waits, start_s=0.0):
        return BlockRequest(
            request_id=name, session=None, blocks=array("I"), prompt_tokens=1, output_tokens=1, not_before_s=start_s,
            waits=waits,
        )  # fmt: skip

    both = (Wait(0, Trigger.COMPLETION, 2.0), Wait(1, Trigger.DISPATCH, 9.0))
    loop = ClosedLoop([request("a", start_s=1.0), request("b"), request("c", *both)])
    assert list(loop.roots()) == [(1.0, 0), (0.0, 1)]
    assert loop.start(0, 1.0) == loop.start(1, 3.0) == []
    assert loop.end(0, 20.0) == [(22.0, 2)]
    assert loop.end(0, 30.0) == []


def test_the_example_has_agents_that_share_a_head_and_sub_agents():
    requests = read_trace(ROOT / "examples/trace.jsonl").requests
    assert len({request.session for request in requests}) == 10
    assert {request.parent for request in requests} == {None, "s0", "s4"}
    assert len({tuple(request.blocks[:8]) for request in requests}) == 1


def test_the_lines_that_the_simulators_page_shows_are_a_trace(tmp_path):
    page = (ROOT / "docs/simulator.md").read_text(encoding="utf-8")
    shown = next(block for block in page.split("```") if '"schema"' in block)
    trace = read_trace(write(tmp_path, shown.lstrip()))
    assert [list(request.blocks) for request in trace.requests] == [[1, 2], [1, 2, 3]]
    assert trace.requests[1].waits == (Wait(0, Trigger.COMPLETION, 0.5),)


@pytest.mark.shared
def test_the_public_fixtures_are_read(shared_dir):
    folder = shared_dir / "traces" / "dynamo_fixtures"
    agentic = read_trace(folder / "agentic-mooncake.jsonl")
    assert [len(request.waits) for request in agentic.requests][:2] == [0, 1]
    assert len(read_trace(folder / "mooncake_tiny.jsonl").requests) > 5


@pytest.mark.shared
def test_the_corpus_becomes_the_same_trace_as_by_the_peers_converter(shared_dir, tmp_path):
    corpus = shared_dir / "traces" / "weka_claude_code.dev.jsonl.xz"
    out = tmp_path / "d.jsonl"
    cuts = ["--max-context", "60000", "--max-requests", "8", "--gap-cap", "60", "--seed", "3", "--sessions", "25"]
    script = shared_dir / "peers" / "weka_to_mooncake.py"
    command = [sys.executable, str(script), str(corpus), "--out", str(out), "--format", "agentic", "--rate", "0.1"]
    subprocess.run([*command, *cuts], check=True, capture_output=True)
    sampling = WekaSampling(
        sessions=25, arrivals_per_s=0.1, max_prompt_tokens=60_000, max_requests=8, max_pause_s=60.0, seed=3
    )
    assert read_trace(corpus, sampling=sampling) == read_trace(out)


def test_of_what_is_due_at_one_moment_a_session_comes_before_its_sub_agents():
    def request(name, session, *waits):
        return BlockRequest(
            request_id=name, session=session, blocks=array("I"), prompt_tokens=1, output_tokens=1, waits=waits
        )

    wait = Wait(0, Trigger.COMPLETION, 60.0)
    loop = ClosedLoop([request("a", "s"), request("b", "s/1", wait), request("c", "s", wait)])
    assert loop.end(0, 1.0) == [(61.0, 2), (61.0, 1)]
