"""Reasons are whole sentences with the figures that decided."""

from router.placement.explain import explain_choice
from router.policy.base import Choice, PlacementQuery, RankView, build_table
from wire.ids import RequestId, Target, WorkerId

A, B, C = (Target(WorkerId(name), 0) for name in "abc")


def candidate(target, overlap=0, *, wait=0.0, reuse=0.0, is_home=False, predicted=0, stall=0.0):
    view = RankView(target=target, overlap_tokens=overlap, predicted_overlap_tokens=predicted)
    return view, wait, reuse, stall, is_home


def explain(target, candidates, *, unused_home=None, prompt_tokens=10_000, names=("wait", "reuse"), count=1, **more):
    views, waits, reuses, stalls, _ = zip(*candidates, strict=True)
    home = next((view.target for view, *_, is_home in candidates if is_home), None)
    query = PlacementQuery(request_id=RequestId("r1"), prompt_tokens=prompt_tokens, home=home)
    terms_s = [cost_s for row in zip(waits, reuses, stalls, strict=True) for cost_s in row[: len(names)]]
    totals_s = [sum(costs_s) for costs_s in zip(waits, reuses, stalls, strict=True)]
    costs = build_table(query, views, totals_s, term_names=names, terms_s=terms_s)
    choice = Choice(target=target, costs=costs, **more)
    return explain_choice(query, choice, unused_home=unused_home, eligible_count=count)


def test_staying_at_home():
    words = explain(A, [candidate(A, 9_000, wait=0.4, reuse=0.05, is_home=True), candidate(B, reuse=2.0)])
    assert words == (
        "kept at home: holds 9,000 of 10,000 prompt tokens; waiting 0.4 s there beats re-prefilling 10k tokens "
        "elsewhere (2.0 s); in all 0.5 s against 2.0 s"
    )


def test_leaving_home():
    words = explain(B, [candidate(A, 9_000, wait=8.0, reuse=0.05, is_home=True), candidate(B, 4_000, reuse=1.0)])
    assert words == (
        "left home a@0: holds 9,000 of 10,000 prompt tokens; waiting 8.0 s there costs more than re-prefilling 6,000 "
        "tokens on b@0 (1.0 s); in all 8.1 s against 1.0 s"
    )


ALL = ("wait", "reuse", "stall")


def test_staying_for_another_reason_than_the_wait_names_it():
    stay = candidate(A, 9_000, wait=1.2, reuse=0.05, stall=0.3, is_home=True)
    assert explain(A, [stay, candidate(B, reuse=0.6, stall=8.0)], names=ALL) == (
        "kept at home: holds 9,000 of 10,000 prompt tokens; waiting 1.2 s there against re-prefilling 10k tokens "
        "elsewhere (0.6 s); in all 1.6 s against 8.6 s, mostly for stall"
    )


def test_leaving_for_another_reason_than_the_wait_names_it():
    stay = candidate(A, 9_000, wait=0.2, reuse=0.05, stall=4.0, is_home=True)
    assert explain(B, [stay, candidate(B, 4_000, reuse=1.0)], names=ALL) == (
        "left home a@0: holds 9,000 of 10,000 prompt tokens; waiting 0.2 s there against re-prefilling 6,000 "
        "tokens on b@0 (1.0 s); in all 4.2 s against 1.0 s, mostly for stall"
    )


def test_the_cheapest_of_several_names_the_term_that_decides():
    words = explain(A, [candidate(A, wait=0.2, stall=0.1), candidate(B, stall=2.0)], names=ALL)
    assert words.endswith("the next best b@0 2.0 s, mostly for stall")


def test_a_home_that_no_other_rank_can_compete_with():
    words = explain(A, [candidate(A, 9_000, is_home=True)], count=1_025)
    assert words == "holds 9,000 of 10,000 prompt tokens; none of the other ranks (1,024) can cost as little"


def test_an_unused_home():
    words = explain(A, [candidate(A)], unused_home=B)
    assert words == "home b@0 cannot be chosen; the only rank that can be chosen; holds none of 10,000 prompt tokens"


def test_the_cheapest_of_several():
    words = explain(A, [candidate(A, 2_000, wait=0.01, reuse=0.08), candidate(B, wait=0.5, reuse=0.1)])
    assert words == (
        "holds 2,000 of 10,000 prompt tokens; costs 90 ms in all, the next best b@0 0.6 s, mostly for wait"
    )


def test_ties_and_hopes():
    words = explain(A, [candidate(A, predicted=800), candidate(B), candidate(C)], tied_count=3)
    assert words == (
        "holds none of 10,000 prompt tokens, 800 expected from requests being prefilled there; costs 0 ms in all, "
        "within 1 ms of the lowest as 2 others; picked among them by the request's hash"
    )


def test_a_tie_says_how_close_the_costs_are_and_not_that_they_are_equal():
    words = explain(A, [candidate(A, wait=2.03), candidate(B, wait=2.0)], tied_count=2)
    assert words == (
        "holds none of 10,000 prompt tokens; costs 2.0 s in all, within 2% (40 ms) of the lowest as 1 other; "
        "picked among them by the request's hash"
    )


def test_a_policy_without_terms():
    bare = [candidate(A), candidate(B, wait=0.2)]
    assert (
        explain(A, bare, names=()) == "holds none of 10,000 prompt tokens; costs 0 ms in all, the next best b@0 0.2 s"
    )


def test_the_policys_own_words_and_its_notes():
    assert explain(A, [candidate(A)], reason="next in turn", notes=("odd",)) == "next in turn; odd"
