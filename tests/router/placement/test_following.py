"""Policies that keep count of active blocks hear of every request, whether they act or only score."""

from router.placement.stimuli import FirstToken, Outcome, RequestArrived, RequestEnded
from router.policy.catalogue import build_policy


def arrive(name, **more):
    return RequestArrived(
        now_s=0.0, request_id=name, model=None, prompt_tokens=64, chain_hashes=(1, 2, 3, 4), chain_block_tokens=16,
        **more,
    )  # fmt: skip


def test_a_count_follows_a_request_from_its_placement_to_its_end(make_world, ranks):
    world = make_world("overlap_linear")
    world.fleet(ranks)
    active = world.placer.policy.active
    (place,) = world.placer.handle(arrive("r", overlaps={ranks[0]: 32}))
    assert place.target == ranks[0]
    assert (active.find(ranks[0], "r").waiting, active.find(ranks[0], "r").open) == (32, 64)
    world.placer.handle(FirstToken(now_s=1.0, request_id="r"))
    assert (active.find(ranks[0], "r").waiting, active.find(ranks[0], "r").open) == (0, 64)
    world.placer.handle(RequestEnded(now_s=2.0, request_id="r", outcome=Outcome.DONE))
    assert not len(active)


def test_a_dry_run_counts_nothing(make_world, ranks):
    world = make_world("overlap_linear")
    world.fleet(ranks)
    assert world.placer.explain(arrive("r")).target in ranks
    assert not len(world.placer.policy.active)


def test_a_policy_that_only_scores_is_told_too(make_world, ranks):
    world, shadow = make_world("round_robin"), build_policy("overlap_linear")
    world.fleet(ranks)
    world.placer.change_policy(build_policy("round_robin"), shadow)
    world.placer.handle(arrive("r"))
    assert len(shadow.active) == 1


def test_a_lost_rank_leaves_nothing_counted(make_world, ranks):
    world = make_world("overlap_linear")
    world.fleet(ranks)
    world.placer.handle(arrive("r"))
    world.fleet([])
    assert not len(world.placer.policy.active)
