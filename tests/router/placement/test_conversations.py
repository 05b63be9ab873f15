"""What a conversation does to its home: growth, cuts, other models, bursts of sub-agents, heads that all share."""

from collections import Counter

from router.config.policy import Coefficients, PolicyWeights
from router.placement.heads import HotHeads
from router.placement.homes import Home, is_broken, mark_chain
from router.placement.stimuli import LoadReported
from wire.ids import Target, WorkerId

A = Target(WorkerId("a"), 0)
CHAIN = tuple(range(100))


def home(chain=CHAIN, prompt_tokens=1_600):
    return Home(target=A, last_used_s=0.0, unsettled_by=None, prompt_tokens=prompt_tokens, mark=mark_chain(chain, 16))


def cut(prompt_tokens, chain, block_tokens=16, known=None):
    return is_broken(known or home(), prompt_tokens=prompt_tokens, chain_hashes=chain, block_tokens=block_tokens)


def test_a_prompt_that_grows_or_loses_its_end_goes_on():
    assert not cut(1_700, (*CHAIN, 200))
    assert not cut(1_700, (*CHAIN[:60], 900, 901))


def test_a_prompt_that_parts_in_the_first_half_was_cut():
    assert cut(1_700, (*CHAIN[:20], *range(900, 990)))
    assert cut(320, CHAIN[:20])


def test_without_chains_a_prompt_of_less_than_half_the_length_was_cut():
    blind = home(chain=())
    assert not cut(900, (), known=blind)
    assert cut(700, (), known=blind)
    assert cut(700, CHAIN, block_tokens=64)


def test_a_conversation_that_was_cut_is_placed_by_load_as_a_new_one(world, ranks):
    more = {"chain_block_tokens": 16, "session": "s"}
    first = world.serve("r0", prompt_tokens=50_000, chain_hashes=tuple(range(3_000)), **more)
    world.report(first, 1.0, waiting=1, waiting_tokens=20_000)
    cut = world.arrive("r1", 1.0, prompt_tokens=8_000, chain_hashes=tuple(range(9_000, 9_500)), **more)
    assert cut.target != first
    assert cut.decision.reason.startswith(f"the conversation was cut, home {first} counts no more than others")
    world.first_token("r1", 2.0)
    assert world.home("s", 2.0) == cut.target


def test_each_model_of_a_session_has_a_home_of_its_own(make_world, ranks):
    world = make_world()
    world.fleet(ranks, models=("toy", "small"))
    big = world.serve("r0", session="s", prompt_tokens=60_000)
    world.report(big, 1.0, waiting=9, waiting_tokens=100_000)
    small = world.serve("r1", 1.0, session="s", model="small", prompt_tokens=20_000)
    assert small != big
    assert world.home("s", 2.0) == big
    assert world.home("s", 2.0, model="small") == small


def test_a_burst_of_sub_agents_shares_the_head_until_waiting_for_it_costs_more_than_computing_it(world, ranks):
    head = tuple(range(500))
    counts = Counter()
    for n in range(40):
        chain = (*head, *range(10_000 * (n + 1), 10_000 * (n + 1) + 1_000))
        placed = world.arrive(
            f"r{n}", 0.01 * n, session=f"agent{n}", prompt_tokens=24_000, chain_hashes=chain, chain_block_tokens=16
        )
        counts[placed.target] += 1
    assert len(counts) == len(ranks)
    assert max(counts.values()) <= 2 * min(counts.values())


def test_hot_heads_are_those_that_many_sessions_began_with_of_late():
    heads = HotHeads(max_heads=100)
    chain = tuple(range(20))
    assert heads.find(chain, 16, 0.0) is None
    for n in range(4):
        heads.record((*chain[:9], *range(100 * (n + 1), 100 * (n + 1) + 11)), 0.0)
    tokens, rate = heads.find(chain, 16, 0.0)
    assert tokens == 8 * 16
    assert rate == 4 / 60
    assert heads.find(chain, 16, 120.0) is None
    assert heads.find((777, 778), 16, 0.0) is None


def test_heads_are_bounded():
    heads = HotHeads(max_heads=10)
    for n in range(50):
        heads.record(tuple(range(n * 100, n * 100 + 8)), float(n))
    assert len(heads) == 10


def spread_over(make_world, ranks, *, max_copies, spread):
    """Sessions that begin with one head while its only holder is always a little busy: ranks that got one."""
    others = dict.fromkeys(PolicyWeights.model_fields, 0.0)
    weights = PolicyWeights(**{**others, "wait": 1.0, "reuse": 1.0, "spread": spread})
    world = make_world(weights=weights, costs=Coefficients(max_copies=max_copies))
    world.fleet(ranks)
    head, holders, seen = tuple(range(512)), {ranks[0]: 8_192}, Counter()
    for n in range(30):
        now_s = n * 1.0
        for rank in holders:
            busy = LoadReported(now_s=now_s, target=rank, running_requests=0, waiting_requests=1, waiting_tokens=6_000)
            world.placer.handle(busy)
        chain = (*head, *range(10_000 * (n + 1), 10_000 * (n + 1) + 16))
        target = world.serve(
            f"r{n}", now_s, session=f"s{n}", prompt_tokens=8_448, chain_hashes=chain, chain_block_tokens=16,
            overlaps=dict(holders),
        )  # fmt: skip
        holders[target] = 8_192
        seen[target] += 1
    return len(seen)


def test_a_hot_head_is_copied_on_purpose_up_to_so_many_ranks(make_world, ranks):
    assert spread_over(make_world, ranks, max_copies=4, spread=0.0) == 1
    assert spread_over(make_world, ranks, max_copies=2, spread=1.0) == 2
    assert spread_over(make_world, ranks, max_copies=4, spread=1.0) > 2
