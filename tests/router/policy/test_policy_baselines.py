"""Baselines do what their names say."""

from collections import Counter

from router.policy.base import PlacementQuery, RankView
from router.policy.catalogue import build_policy
from wire.ids import RequestId, SessionId, Target, WorkerId

TARGETS = [Target(WorkerId(worker), rank) for worker in "ab" for rank in (0, 1)]


def ask(policy, ranks, name="r1", seed=0, session=None):
    query = PlacementQuery(request_id=RequestId(name), prompt_tokens=100, session=session)
    return policy.choose(query, ranks, seed)


def views(targets=TARGETS):
    return [RankView(target=target) for target in targets]


def test_round_robin_visits_every_rank_of_every_worker_in_turn():
    policy = build_policy("round_robin")
    assert [ask(policy, views()).target for _ in range(8)] == TARGETS * 2


def test_round_robin_goes_on_in_turn_when_ranks_come_and_go():
    policy = build_policy("round_robin")
    assert ask(policy, views()).target == TARGETS[0]
    assert ask(policy, views(TARGETS[2:])).target == TARGETS[2]
    assert ask(policy, views(TARGETS[:3])).target == TARGETS[0]
    assert ask(policy, views()).target == TARGETS[1]


def test_random_draws_every_rank_alike_and_repeats_with_its_seed():
    rows = [
        [ask(policy, views(), "same", seed=5).target for _ in range(800)]
        for policy in (build_policy("random"), build_policy("random"))
    ]
    assert rows[0] == rows[1]
    assert min(Counter(rows[0]).values()) > 140


def test_least_load_counts_requests_and_not_caches():
    ranks = [
        RankView(target=TARGETS[0], open_requests=2, overlap_tokens=99),
        RankView(target=TARGETS[1], open_requests=1),
        RankView(target=TARGETS[2], open_requests=3),
    ]
    choice = ask(build_policy("least_load"), ranks)
    assert choice.target == TARGETS[1]
    assert choice.reason == "fewest requests there: 1"
    assert [entry.total_s for entry in choice.candidates] == [2.0, 1.0, 3.0]


def test_a_session_hash_keeps_a_session_and_spreads_sessions():
    policy = build_policy("session_hash")
    homes = {name: ask(policy, views(), session=SessionId(name)).target for name in map(str, range(400))}
    assert all(
        ask(policy, views(), "other", seed=9, session=SessionId(name)).target == home for name, home in homes.items()
    )
    assert min(Counter(homes.values()).values()) > 60


def test_a_session_hash_takes_the_candidate_with_the_lowest_figure():
    choice = ask(build_policy("session_hash"), views(), session=SessionId("s"))
    assert min(choice.candidates, key=lambda entry: entry.total_s).target == choice.target


def test_a_request_without_a_session_goes_to_the_least_loaded():
    ranks = [RankView(target=TARGETS[0], open_requests=5), RankView(target=TARGETS[1])]
    choice = ask(build_policy("session_hash"), ranks)
    assert choice.target == TARGETS[1]
    assert choice.reason == "fewest requests there: 0"
