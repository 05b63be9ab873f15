"""Decisions can be asked for again, as far back as the ring reaches."""

import json
from array import array

import msgspec

from router.placement.accuracy import Accuracy
from router.placement.decision import CandidateCost, Decision, DecisionLog
from router.policy.base import CostTable
from wire.ids import RequestId, Target, WorkerId

RANK = Target(WorkerId("a"), 1)
COSTS = CostTable((RANK,), RANK, array("q", [64]), array("q", [0]), ("wait",), array("d", [0.5]), array("d", [0.5]))


def decision(name="r1"):
    return Decision(
        request_id=RequestId(name),
        decided_at_s=1.0,
        policy="cache_affinity",
        model="toy",
        session=None,
        prompt_tokens=100,
        target=RANK,
        predicted_cached_tokens=64,
        telling="because",
        costs=COSTS,
    )


def test_a_decision_is_found_by_its_request():
    log = DecisionLog(max_decisions=10)
    log.store(decision())
    assert log.find("r1").decision == decision()
    assert log.find("r2") is None


def test_the_oldest_decision_goes_when_the_ring_is_full():
    log = DecisionLog(max_decisions=2)
    for name in ("r1", "r2", "r3"):
        log.store(decision(name))
    assert len(log) == 2
    assert log.find("r1") is None


def test_the_latest_come_first():
    log = DecisionLog(max_decisions=10)
    for name in ("r1", "r2", "r3"):
        log.store(decision(name))
    assert [record.decision.request_id for record in log.find_latest(2)] == ["r3", "r2"]
    assert [record.decision.request_id for record in log.find_latest(9)] == ["r3", "r2", "r1"]
    assert log.find_latest(0) == []


def test_a_decision_made_again_counts_its_attempts_and_is_the_newest():
    log = DecisionLog(max_decisions=2)
    for name in ("r1", "r2", "r1", "r3"):
        log.store(decision(name))
    assert log.find("r1").attempts == 2
    assert log.find("r2") is None


def test_what_came_of_a_decision_is_kept_with_it():
    log = DecisionLog(max_decisions=2)
    log.store(decision())
    log.record_first_token("r1", 0.25)
    log.record_first_token("r1", 9.0)
    log.record_cached("r1", 80)
    log.record_accuracy("r1", Accuracy.LOWER_BOUND)
    log.record_outcome("r1", "done")
    record = log.find("r1")
    assert (record.ttft_s, record.actual_cached_tokens, record.accuracy, record.outcome) == (
        0.25,
        80,
        Accuracy.LOWER_BOUND,
        "done",
    )


def test_what_comes_for_a_forgotten_decision_is_dropped():
    log = DecisionLog(max_decisions=2)
    log.record_first_token("r1", 0.25)
    log.record_cached("r1", 80)
    log.record_accuracy("r1", Accuracy.EXACT)
    log.record_outcome("r1", "done")
    assert len(log) == 0


def test_a_record_is_plain_json():
    log = DecisionLog(max_decisions=2)
    log.store(decision())
    log.record_accuracy("r1", Accuracy.EXACT)
    plain = json.loads(json.dumps(log.find("r1").to_json()))
    assert (plain["attempts"], plain["ttft_s"], plain["accuracy"]) == (1, None, "exact")
    assert plain["decision"]["target"] == {"worker": "a", "dp_rank": 1}
    assert plain["decision"]["reason"] == "because"
    assert "costs" not in plain["decision"]
    assert plain["decision"]["candidates"][0] == {
        "target": {"worker": "a", "dp_rank": 1},
        "overlap_tokens": 64,
        "terms": {"wait": 0.5},
        "total_s": 0.5,
        "is_home": True,
        "predicted_overlap_tokens": 0,
        "options": [],
        "prefill": None,
    }


def test_a_decision_lists_its_candidates_and_a_refusal_has_none():
    assert decision().candidates == (CandidateCost(RANK, 64, {"wait": 0.5}, 0.5, is_home=True),)
    refused = msgspec.structs.replace(decision(), target=None, costs=None)
    assert refused.candidates == ()
    assert not refused.to_json()["candidates"]
