"""A second policy is asked and counted, and nothing that it does reaches a request."""

import math

import pytest

from router.config.policy import Coefficients, PolicyWeights
from router.placement.shadow import MAX_SHARE
from router.policy.base import Choice, build_table
from router.policy.baselines import LeastLoad
from router.policy.cache_affinity import CacheAffinity
from router.policy.catalogue import build_policy
from wire.ids import Target, WorkerId

MANY = tuple(Target(WorkerId(f"w{worker:02}"), rank) for worker in range(8) for rank in range(4))


class Raises:
    name = "raises"
    coefficients = Coefficients()

    def choose(self, query, ranks, seed):
        raise MemoryError("no room")


class ChoosesOthers(Raises):
    name = "chooses_others"

    def choose(self, query, ranks, seed):
        return Choice(target=Target(WorkerId("elsewhere"), 0), costs=build_table(query, ranks, [0.0] * len(ranks)))


class TakesRanksAway(Raises):
    name = "takes_ranks_away"

    def choose(self, query, ranks, seed):
        ranks.clear()


class NoNumbers(Raises):
    name = "no_numbers"

    def choose(self, query, ranks, seed):
        return Choice(target=ranks[-1].target, costs=build_table(query, ranks, [math.nan] * len(ranks)))


def no_number_anywhere():
    names = ("prefill_s_per_token", "decode_step_s", "reuse_probability", "working_set_factor")
    return CacheAffinity(PolicyWeights(), Coefficients().model_copy(update=dict.fromkeys(names, math.nan)))


def live(world, count=24):
    """What requests see of a stretch of traffic, and what is left of it."""
    world.fleet(MANY)
    seen = []
    for n in range(count):
        session, at_s = f"s{n % 5}", n * 0.25
        head = {MANY[n % 5]: 9_000} if n >= 5 else {}
        placed = world.arrive(f"r{n}", at_s, session=session, prompt_tokens=10_000 + n, overlaps=head)
        decision = placed.decision
        seen.append((placed.target, decision.reason, decision.predicted_ttft_s, decision.candidates))
        if n % 3 == 0:
            world.first_token(f"r{n}", at_s + 0.1, cached_tokens=64)
            world.end(f"r{n}", at_s + 0.2)
        world.report(MANY[n % len(MANY)], at_s + 0.2, running=n % 4, waiting=n % 2)
    left = [world.totals(target, 9.0) for target in MANY]
    return seen, left, [world.home(f"s{n}", 9.0) for n in range(5)]


@pytest.mark.parametrize(
    "make_shadow",
    [Raises, ChoosesOthers, TakesRanksAway, NoNumbers, no_number_anywhere,
     *(lambda name=name: build_policy(name) for name in ("cache_affinity", "round_robin", "random", "overlap_linear"))],
)  # fmt: skip
@pytest.mark.parametrize("acting", ["cache_affinity", "overlap_linear", "round_robin"])
def test_requests_go_where_they_would_have_gone_without_it(make_world, acting, make_shadow):
    alone, watched = make_world(acting), make_world(acting)
    watched.placer.change_policy(build_policy(acting), shadow=make_shadow())
    assert live(watched) == live(alone)
    shadow = watched.placer.decisions.audit.shadow
    assert shadow.agreed + shadow.differed + shadow.failed == 24
    assert watched.placer.ignored == alone.placer.ignored


@pytest.mark.parametrize("make_shadow", [Raises, ChoosesOthers, TakesRanksAway])
def test_a_second_policy_that_fails_neither_agrees_nor_differs(make_world, make_shadow):
    world = make_world()
    world.placer.change_policy(build_policy("cache_affinity"), shadow=make_shadow())
    live(world)
    shadow = world.placer.decisions.audit.shadow
    assert (shadow.agreed, shadow.differed, shadow.failed) == (0, 0, 24)
    assert world.placer.ignored.failed_choices == 0


class Slow(LeastLoad):
    """Takes a second, by the clock that it is timed by."""

    name = "slow"
    spent_s = 0.0

    def choose(self, query, ranks, seed):
        self.spent_s += 1.0
        return super().choose(query, ranks, seed)


def test_a_slow_one_is_left_alone_for_most_of_the_time(make_world):
    shadow = Slow(Coefficients())
    world = make_world(shadow_timer=lambda: shadow.spent_s)
    world.placer.change_policy(build_policy("cache_affinity"), shadow=shadow)
    world.fleet(MANY)
    opinions = [world.arrive(f"r{n}", n * 0.25).decision.shadow for n in range(240)]
    asked = sum(opinion is not None for opinion in opinions)
    counts = world.placer.decisions.audit.shadow
    assert asked == counts.agreed + counts.differed == shadow.spent_s
    assert counts.skipped == 240 - asked
    # A minute of traffic: what it took is its share of the time, the last answer included.
    assert 0 < shadow.spent_s <= 60.0 * MAX_SHARE + 1.0


def test_a_quick_one_judges_every_request(make_world):
    world = make_world(shadow_timer=lambda: 0.0)
    world.placer.change_policy(build_policy("cache_affinity"), shadow=build_policy("round_robin"))
    world.fleet(MANY)
    assert all(world.arrive(f"r{n}", n * 0.001).decision.shadow is not None for n in range(50))
    assert world.placer.decisions.audit.shadow.skipped == 0


def test_its_choice_over_the_few_ranks_that_could_win_is_its_choice_over_all(make_world):
    few, every = make_world(), make_world(is_exhaustive=True)
    weights = PolicyWeights(wait=3.0, reuse=0.5)
    for world in (few, every):
        world.placer.change_policy(build_policy("cache_affinity"), build_policy("cache_affinity", weights))
    opinions = []
    for world in (few, every):
        live(world, 40)
        records = world.placer.decisions.find_latest(100)
        opinions.append([record.decision.shadow.target for record in records])
    assert opinions[0] == opinions[1]
    counts = few.placer.decisions.audit.shadow
    assert counts.differed > 0


class HasNoCosts(Raises):
    @property
    def coefficients(self):
        raise AttributeError("none")


def test_a_policy_that_cannot_be_taken_leaves_the_old_one_whole(make_world):
    world, before = make_world(), make_world()
    for acting, shadow in ((build_policy("round_robin"), HasNoCosts()), (HasNoCosts(), None)):
        with pytest.raises(AttributeError):
            world.placer.change_policy(acting, shadow)
    assert live(world) == live(before)
