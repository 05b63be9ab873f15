"""Prefill and decode ranks are chosen together: no order of choosing one after the other gives the same."""

from collections import Counter
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from router.config.policy import Coefficients, PolicyWeights
from router.policy.base import PlacementQuery, RankView
from router.policy.pairs import PairPolicy
from router.policy.transfer import Link
from wire.ids import RequestId, SessionId, Target, WorkerId

COSTS = Coefficients(kv_bytes_per_token=100_000, link_bytes_per_s=1e10)
P1, P2, D1, D2 = (Target(WorkerId(name), 0) for name in ("p1", "p2", "d1", "d2"))


def choose(prefills, decodes, *, seed=0, weights=None, find_link=None, **changes):
    query = PlacementQuery(request_id=RequestId("r1"), **{"prompt_tokens": 50_000, **changes})
    more = {} if find_link is None else {"find_link": find_link}
    return PairPolicy(weights or PolicyWeights(), COSTS).choose(query, prefills, decodes, seed, **more)


def test_a_decode_rank_that_holds_the_prompt_saves_the_transfer():
    choice = choose([RankView(target=P1)], [RankView(target=D1), RankView(target=D2, overlap_tokens=49_000)])
    assert choice.decode == D2
    by_decode = {pair.decode: pair.terms["transfer"] for pair in choice.pairs}
    assert by_decode[D1] == 0.5
    assert by_decode[D2] == 0.01


def test_both_legs_weigh_in_what_neither_would_choose_alone():
    # p1 is the better prefill rank and d1 the better decode rank, but the way between them is long.
    prefills = [RankView(target=P1), RankView(target=P2, own_wait_s=0.3)]
    decodes = [RankView(target=D1), RankView(target=D2, decoding_requests=4, context_tokens=10_000)]

    def find_link(prefill, decode):
        return Link(topology_factor=1.0 if (prefill, decode) in {(P2, D1), (P1, D2)} else 8.0)

    choice = choose(prefills, decodes, find_link=find_link)
    assert (choice.prefill, choice.decode) == (P1, D2)
    near = choose(prefills, decodes)
    assert (near.prefill, near.decode) == (P1, D1)


def test_one_rank_for_both_legs_transfers_nothing():
    both = [RankView(target=P1), RankView(target=P2)]
    choice = choose(both, both)
    assert choice.prefill == choice.decode
    assert len(choice.pairs) == 4


def test_load_of_each_leg_keeps_its_own_kind():
    busy_prefill = choose([RankView(target=P1, own_wait_s=5.0), RankView(target=P2)], [RankView(target=D1)])
    assert busy_prefill.prefill == P2
    # Prefill queued on a decode rank says nothing of its decode leg.
    queued = choose(
        [RankView(target=P1)], [RankView(target=D1, own_wait_s=9.0), RankView(target=D2, decoding_requests=50)]
    )
    assert queued.decode == D1


def test_a_home_wins_a_tie_and_ties_spread_over_all_pairs():
    prefills, decodes = [RankView(target=P1), RankView(target=P2)], [RankView(target=D1), RankView(target=D2)]
    counts = Counter()
    for n in range(400):
        query = PlacementQuery(request_id=RequestId(f"r{n}"), prompt_tokens=1_000, session=SessionId("s"))
        choice = PairPolicy(PolicyWeights(), COSTS).choose(query, prefills, decodes, 3)
        assert choice.tied_count == 4
        counts[choice.prefill, choice.decode] += 1
        home = PlacementQuery(request_id=RequestId(f"r{n}"), prompt_tokens=1_000, session=SessionId("s"), home=D2)
        assert PairPolicy(PolicyWeights(), COSTS).choose(home, prefills, decodes, 3).decode == D2
    assert min(counts[pair] for pair in product((P1, P2), (D1, D2))) > 60


@settings(deadline=None)
@given(
    waits=st.lists(st.floats(0.0, 5.0), min_size=2, max_size=4),
    held=st.lists(st.tuples(st.integers(0, 50_000), st.integers(0, 50)), min_size=2, max_size=4),
    factors=st.lists(st.floats(0.5, 20.0), min_size=16, max_size=16),
)
def test_no_pair_is_cheaper_than_the_one_chosen_but_for_a_tie(waits, held, factors):
    prefills = [RankView(target=Target(WorkerId("p"), n), own_wait_s=wait_s) for n, wait_s in enumerate(waits)]
    decodes = [
        RankView(
            target=Target(WorkerId("d"), n),
            overlap_tokens=overlap,
            decoding_requests=running,
            context_tokens=running * 20_000,
            remaining_output_tokens=running * 100,
        )
        for n, (overlap, running) in enumerate(held)
    ]

    def find_link(prefill, decode):
        return Link(topology_factor=factors[prefill.dp_rank * 4 + decode.dp_rank])

    choice = choose(prefills, decodes, find_link=find_link)
    totals = {(pair.prefill, pair.decode): pair.total_s for pair in choice.pairs}
    lowest_s = min(totals.values())
    assert totals[choice.prefill, choice.decode] <= lowest_s + max(1e-3, 0.02 * lowest_s)
    assert len(totals) == len(prefills) * len(decodes)
    reverse = choose(prefills[::-1], decodes[::-1], find_link=find_link)
    assert (reverse.prefill, reverse.decode) == (choice.prefill, choice.decode)
