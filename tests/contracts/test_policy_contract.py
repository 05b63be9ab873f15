"""What every policy promises, over all of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.config.policy import PolicyName
from router.policy.base import PlacementQuery, RankView
from router.policy.catalogue import build_policy
from wire.ids import RequestId, SessionId, Target, WorkerId

few = settings(max_examples=40, deadline=None)
policies = pytest.mark.parametrize("name", [name.value for name in PolicyName])
counts = st.integers(0, 1_000_000)
seconds = st.floats(0.0, 1e6)


@st.composite
def problems(draw):
    """A query and one to nine different ranks."""
    places = draw(st.sets(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), min_size=1))
    ranks = [
        RankView(
            target=Target(WorkerId(worker), rank),
            overlap_tokens=draw(st.integers(0, 999)),
            predicted_overlap_tokens=draw(st.integers(0, 999)),
            own_wait_s=draw(seconds),
            foreign_wait_s=draw(seconds),
            open_requests=draw(counts),
            decoding_requests=draw(counts),
            remaining_output_tokens=draw(counts),
            context_tokens=draw(counts),
            joint_output_tokens=draw(counts),
            joint_context_tokens=draw(counts),
            capacity_tokens=draw(st.none() | counts),
            resident_tokens=draw(counts),
            open_tokens=draw(counts),
            live_tokens=draw(counts),
            live_sessions=draw(counts),
            paused_sessions=draw(counts),
            paused_tokens=draw(counts),
            cache_age_s=draw(st.none() | seconds),
            eviction_reuse_ratio=draw(st.floats(0.0, 1.0)),
            busy_ratio=draw(st.floats(0.0, 1.0)),
            prefill_ratio=draw(st.floats(0.25, 4.0)),
            decode_ratio=draw(st.floats(0.25, 4.0)),
        )
        for worker, rank in sorted(places)
    ]
    query = PlacementQuery(
        request_id=RequestId(draw(st.text(max_size=5))),
        prompt_tokens=1_000,
        session=draw(st.none() | st.text(min_size=1, max_size=3).map(SessionId)),
        home=draw(st.none() | st.sampled_from([rank.target for rank in ranks])),
        mean_live_sessions=draw(seconds),
        return_rate_per_s=draw(seconds),
        request_work_s=draw(seconds),
    )
    return query, ranks


@policies
@few
@given(problem=problems(), seed=st.integers(-(2**70), 2**70))
def test_a_choice_is_one_of_the_candidates_and_lists_them_all(name, problem, seed):
    query, ranks = problem
    choice = build_policy(name).choose(query, ranks, seed)
    assert [entry.target for entry in choice.candidates] == [rank.target for rank in ranks]
    assert choice.target in {rank.target for rank in ranks}
    assert 1 <= choice.tied_count <= len(ranks)
    for entry, rank in zip(choice.candidates, ranks, strict=True):
        assert entry.overlap_tokens == rank.overlap_tokens
        assert entry.is_home == (rank.target == query.home)


@policies
@few
@given(problem=problems(), seed=st.integers(0, 100))
def test_the_same_question_to_a_new_policy_gets_the_same_answer(name, problem, seed):
    query, ranks = problem
    assert build_policy(name).choose(query, ranks, seed) == build_policy(name).choose(query, ranks, seed)


@pytest.mark.parametrize(
    "name",
    [
        "cache_affinity", "round_robin", "least_load", "session_hash", "prefix_threshold", "overlap_linear",
        "weighted_scores",
    ],
)  # fmt: skip
@few
@given(problem=problems(), seed=st.integers(0, 100))
def test_the_order_of_the_list_decides_nothing(name, problem, seed):
    query, ranks = problem
    forward = build_policy(name).choose(query, ranks, seed).target
    assert build_policy(name).choose(query, ranks[::-1], seed).target == forward
