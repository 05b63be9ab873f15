"""Requests that run beside each other on a rank are told of each other where they begin alike."""

import pytest

from prefix_index import BlockChain
from prefix_index.trust import Trust
from router.proxy.prediction import MAX_PEERS, Prediction
from router.proxy.running import RunningRequests
from wire.ids import RequestId, Target, WorkerId

A, B = (Target(WorkerId(name), 0) for name in "ab")


def predict(*hashes):
    chain = BlockChain(block_tokens=16, hashes=hashes, token_count=16 * len(hashes) + 3)
    return Prediction(chain=chain, predicted_tokens=0, trust=Trust.EXACT, position=0)


@pytest.fixture
def running():
    added = []

    class Recorded(RunningRequests):
        def add(self, target, request_id, prediction):
            added.append((target, request_id))
            super().add(target, request_id, prediction)

    made = Recorded()
    yield made
    for target, name in added:
        made.check_invariants()
        made.remove(target, name)
    made.check_invariants()
    assert made.count() == {}


def test_requests_that_begin_alike_on_a_rank_know_each_other(running):
    one, other = predict(1, 2), predict(1, 3, 4)
    running.add(A, RequestId("one"), one)
    running.add(A, RequestId("other"), other)
    assert one.peers == [other.chain]
    assert other.peers == [one.chain]


def test_others_do_not(running):
    one = predict(1, 2)
    running.add(A, RequestId("one"), one)
    others = {"away": (B, predict(1, 2)), "unlike": (A, predict(7, 2)), "short": (A, predict())}
    for name, (target, beside) in others.items():
        running.add(target, RequestId(name), beside)
        assert beside.peers == []
    running.add(A, RequestId("guess"), Prediction(chain=None, predicted_tokens=9))
    running.add(A, RequestId("generates"), None)
    assert one.peers == []
    assert running.count() == {A: 5, B: 1}


def test_who_came_after_the_end_is_no_peer(running):
    one, late = predict(1), predict(1)
    running.add(A, RequestId("one"), one)
    running.remove(A, RequestId("one"))
    running.remove(A, RequestId("one"))
    assert running.count() == {}
    running.add(A, RequestId("late"), late)
    assert one.peers == late.peers == []


def test_of_many_siblings_a_bounded_number_is_known(running):
    first = predict(1)
    running.add(A, RequestId("first"), first)
    for number in range(MAX_PEERS + 9):
        running.add(A, RequestId(f"r{number}"), predict(1, number))
    assert len(first.peers) == MAX_PEERS


def test_an_id_is_one_calls_at_a_time(running):
    name = RequestId("mine")
    assert running.claim(name)
    assert not running.claim(name)
    running.disclaim(name)
    assert running.claim(name)
