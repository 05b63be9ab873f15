"""A trace is made smaller without breaking its graph."""

import pytest
from replay_traces import after, request, trace_of

from simulator.graph.request import Wait
from simulator.replay.cut import Cut, cut_trace

TRACE = trace_of(
    request("a", [1, 2], session="a", output=100, not_before_s=4.0),
    request("b", [9, 10], session="b", not_before_s=6.0),
    request("a2", [1, 2, 3, 4], after(0, 10.0), session="a"),
    request("a/1", [50], after(0, 1.0), session="a/1", parent="a"),
    request("a3", [1, 2, 3, 4, 5], after(2, 500.0), after(3, 2.0), session="a"),
)


def kept(**cut):
    return cut_trace(TRACE, Cut(**cut)).requests


def names(requests):
    return [each.request_id for each in requests]


def test_without_limits_a_trace_stays_as_it_is():
    assert cut_trace(TRACE, Cut()) == TRACE


def test_sessions_are_the_first_ones_with_their_sub_agents_and_waits_are_renumbered():
    requests = kept(sessions=1)
    assert names(requests) == ["a", "a2", "a/1", "a3"]
    assert [wait.place for wait in requests[-1].waits] == [1, 2]


def test_requests_are_the_first_ones():
    assert names(kept(requests=3)) == ["a", "b", "a2"]


def test_what_waits_for_a_prompt_that_is_too_long_is_left_out_with_it():
    assert names(kept(max_prompt_tokens=24)) == ["a", "b", "a/1"]


def test_pauses_and_arrivals_are_scaled_and_then_pauses_are_cut():
    requests = kept(time_ratio=0.5, max_pause_s=3.0)
    assert [each.not_before_s for each in requests[:2]] == [2.0, 3.0]
    assert requests[2].waits == (Wait(0, after(0).trigger, 3.0),)
    assert [wait.pause_s for wait in requests[4].waits] == [3.0, 1.0]


@pytest.mark.parametrize(("cut", "tokens"), [({"prompt_ratio": 0.5}, 50), ({"max_output_tokens": 7}, 7)])
def test_answers_are_scaled_and_cut(cut, tokens):
    assert kept(**cut)[0].output_tokens == tokens


def test_a_request_without_a_conversation_counts_as_one():
    trace = trace_of(*(request(name, [1], session=None) for name in "abc"))
    assert names(cut_trace(trace, Cut(sessions=2)).requests) == ["a", "b"]
