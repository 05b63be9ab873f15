"""Two rankings of the same policies: in the same order, too close to tell, or the other way round."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.demo.agreement import Agreement, Figure, Noise, Pair, Standing, Verdict, compare, rank
from simulator.demo.show import agreement_words, order_words


def standings(*ttfts_ms, cached=0.5):
    return [Standing(name, ttft_ms, 1_000.0, cached, 1.5) for name, ttft_ms in zip("abc", ttfts_ms, strict=False)]


def still(spread_ms=0.0):
    return Noise([Standing(name, spread_ms, 0.0, 0.0, 0.0) for name in "abc"])


def verdicts(agreement, figure=Figure.TTFT):
    return {(pair.better, pair.worse): pair.verdict for pair in agreement.pairs if pair.figure is figure}


def test_policies_in_the_same_order_agree_however_far_apart_their_figures_are():
    agreement = compare(standings(100, 200, 900), standings(10, 11, 12), still())
    assert set(verdicts(agreement).values()) == {Verdict.SAME}
    assert agreement.holds


def test_two_policies_the_other_way_round_are_named_and_break_the_agreement():
    agreement = compare(standings(100, 200, 50), standings(100, 200, 300), still())
    assert verdicts(agreement) == {
        ("a", "b"): Verdict.SAME, ("a", "c"): Verdict.OPPOSED, ("b", "c"): Verdict.OPPOSED,
    }  # fmt: skip
    assert not agreement.holds
    assert "mean TTFT, ms: a is better than c simulated, and worse measured" in agreement_words(agreement)


@pytest.mark.parametrize(("live", "simulated"), [((100, 102), (200, 100)), ((200, 100), (100, 102))])
def test_what_is_closer_than_the_noise_on_either_side_is_no_disagreement(live, simulated):
    assert verdicts(compare(standings(*live), standings(*simulated), still())) == {
        tuple(sorted("ab", key=dict(zip("ab", simulated, strict=True)).get)): Verdict.TIED
    }


def test_the_spread_between_runs_counts_as_noise():
    live, simulated = standings(100, 140), standings(140, 100)
    assert verdicts(compare(live, simulated, still(39)))["b", "a"] is Verdict.OPPOSED
    assert verdicts(compare(live, simulated, still(40)))["b", "a"] is Verdict.TIED


@pytest.mark.parametrize("figure", Figure)
def test_more_noise_can_be_asked_for_than_the_simulation_has(figure):
    close, far = ([Standing(name, *[value] * 4) for name, value in zip("ab", pair, strict=True)]
                  for pair in ((0.8, 0.7), (0.8, 0.5)))  # fmt: skip
    noise = Noise([Standing(name, 0, 0, 0, 0) for name in "ab"], ratio=0.25)
    assert set(verdicts(compare(close, close[::-1], noise), figure).values()) == {Verdict.TIED}
    assert set(verdicts(compare(far, far, noise), figure).values()) == {Verdict.SAME}


def test_a_comparison_in_which_nothing_can_be_told_apart_does_not_hold():
    agreement = compare(standings(100, 100), standings(100, 100), still())
    assert not agreement.holds
    assert agreement_words(agreement).startswith("No two policies can be told apart")


def test_the_best_has_most_cached_and_least_of_all_else():
    one, other = Standing("a", 10, 10, 0.2, 1.0), Standing("b", 20, 20, 0.9, 2.0)
    assert [rank([other, one], figure)[0].policy for figure in Figure] == ["a", "a", "b", "a"]


def test_an_order_in_words_joins_neighbours_that_are_tied():
    assert order_words(standings(100, 101, 300), Figure.TTFT, still()) == "a = b > c"


@given(st.permutations([100.0, 200.0, 300.0]), st.permutations([100.0, 200.0, 300.0]))
def test_two_orders_agree_just_where_every_pair_stands_the_same_way(live, simulated):
    same = all((live[x] < live[y]) == (simulated[x] < simulated[y]) for x, y in ((0, 1), (0, 2), (1, 2)))
    assert compare(standings(*live), standings(*simulated), still()).holds == same


def test_an_agreement_tells_its_pairs_by_verdict():
    pair = Pair(Figure.TTFT, "a", "b", Verdict.SAME)
    assert Agreement((pair,)).select(Verdict.SAME) == [pair]
    assert Agreement((pair,)).select(Verdict.TIED) == []
