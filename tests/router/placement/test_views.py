"""What a policy sees of a rank."""

import pytest

from router.config.policy import Coefficients
from router.fleet.load import OwnLoad, ReportedLoad
from router.fleet.pace import AS_THE_FLEET, WorkerRatios
from router.fleet.rank import RankFacts
from router.fleet.view import Rank
from router.placement.ledger import RankTotals
from router.placement.live import LiveShare, PausedSessions
from router.placement.views import (
    NO_OVERLAP,
    ForeignLoad,
    Overlap,
    bound_overlap,
    build_view,
    coarse,
    complete,
    find_foreign_load,
)
from wire.ids import Target, WorkerId

COSTS = Coefficients(prefill_s_per_token=1e-3, attention_s_per_token_pair=0.0, foreign_request_tokens=500)
TARGET = Target(WorkerId("a"), 0)


def overlap(confirmed, predicted, prompt=1_000):
    return bound_overlap(confirmed_tokens=confirmed, predicted_tokens=predicted, prompt_tokens=prompt, credit_ratio=0.5)


def report(**changes):
    given = {
        "reported_at_s": 100.0,
        "running_requests": 0,
        "waiting_requests": 0,
        "waiting_tokens": None,
        "used_tokens": None,
        "capacity_tokens": None,
        "own": OwnLoad(),
        "s_per_token": 1e-3,
    }
    return ReportedLoad(**{**given, **changes})


def foreign(given, now_s=100.0):
    return find_foreign_load(given, now_s=now_s, request_tokens=500)


def make_rank(**changes):
    facts = RankFacts(target=TARGET, url="http://a", models=("toy",), **changes)
    return Rank(facts, memory_s=60.0)


def build(rank, *, own=None, others=None, live=None, ratios=AS_THE_FLEET, now_s=100.0):
    return build_view(
        rank,
        own=own or RankTotals(),
        foreign=others or ForeignLoad(),
        live=live or LiveShare(),
        ratios=ratios,
        costs=COSTS,
        now_s=now_s,
    )


@pytest.mark.parametrize(
    ("confirmed", "predicted", "prompt", "expected"),
    [
        (600, 0, 1_000, Overlap(600, 0)),
        (600, 500, 1_000, Overlap(600, 0)),
        (600, 800, 1_000, Overlap(600, 700)),
        (0, 800, 1_000, Overlap(0, 400)),
        (5_000, 0, 1_000, Overlap(999, 0)),
        (-5, -5, 1_000, Overlap(0, 0)),
        (16, 16, 0, Overlap(0, 0)),
    ],
)
def test_an_overlap_stays_within_the_prompt_and_only_the_unconfirmed_is_discounted(
    confirmed, predicted, prompt, expected
):
    assert overlap(confirmed, predicted, prompt) == expected


def test_without_a_report_nobody_else_is_there():
    assert foreign(None) == ForeignLoad()


def test_work_of_others_is_what_the_report_shows_above_the_own():
    own = OwnLoad(open_requests=3, waiting_tokens=2_000)
    seen = report(running_requests=4, waiting_requests=2, waiting_tokens=5_000, own=own)
    assert foreign(seen) == ForeignLoad(3.0, 2, 1)


def test_work_of_others_is_never_negative():
    own = OwnLoad(open_requests=9, waiting_tokens=9_000)
    assert foreign(report(running_requests=4, waiting_tokens=5_000, own=own)) == ForeignLoad()


def test_work_of_others_is_done_as_the_report_ages_and_forgotten_when_it_is_old():
    seen = report(waiting_requests=1, waiting_tokens=5_000)
    assert foreign(seen, 102.0) == ForeignLoad(3.0, 1, 0)
    assert foreign(seen, 106.0) == ForeignLoad(0.0, 1, 0)
    assert foreign(seen, 131.0) == ForeignLoad()


def test_an_engine_that_only_counts_requests_is_reckoned_with_a_usual_prompt():
    assert foreign(report(waiting_requests=4)) == ForeignLoad(2.0, 4, 0)


def test_work_of_others_is_reckoned_at_the_pace_known_when_it_was_told():
    assert foreign(report(waiting_requests=1, waiting_tokens=1_000, s_per_token=3e-3)).wait_s == 3.0


def test_own_and_foreign_requests_stand_together():
    own = RankTotals(
        waiting_requests=1,
        decoding_requests=2,
        context_tokens=700,
        open_tokens=900,
        joint_output_tokens=50,
        joint_context_tokens=20_000,
    )
    view = build(make_rank(), own=own, others=ForeignLoad(0.0, 1, 2))
    assert (view.open_requests, view.decoding_requests) == (6, 4)
    assert view.context_tokens == 700 + 2 * 500
    assert view.open_tokens == 900 + 3 * 500
    assert view.remaining_output_tokens == 2 * 256
    assert view.joint_output_tokens == 50 + 3 * 128
    assert view.joint_context_tokens == 20_000 + 3 * 128 * 500


def test_tokens_pushed_out_have_the_age_in_which_the_rank_fills():
    rank = make_rank(capacity_tokens=60_000)
    assert build(rank).cache_age_s is None
    rank.recent.record(work_s=1.0, new_tokens=60_000, now_s=100.0)
    view = build(rank, now_s=101.0)
    assert view.cache_age_s == 64.0
    assert 0.0 < view.eviction_reuse_ratio <= 0.5
    assert view.resident_tokens == coarse(60_000)


def test_a_workers_pace_and_what_lives_there_are_shown():
    live = LiveShare(40_001, 5, PausedSessions(3, 30_001))
    view = build(make_rank(), live=live, ratios=WorkerRatios(2.0, 0.5, 0.25))
    assert (view.prefill_ratio, view.decode_ratio, view.context_ratio) == (2.0, 0.5, 0.25)
    assert (view.live_tokens, view.live_sessions) == (coarse(40_001), 5)
    assert (view.paused_tokens, view.paused_sessions) == (coarse(30_001), 3)


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 1_000, 123_456_789])
def test_a_coarse_count_is_at_most_the_count_and_within_a_thirty_second_of_it(count):
    assert 0 <= count - coarse(count) <= count / 16
    assert coarse(coarse(count)) == coarse(count)


def test_a_view_without_anything_of_the_prompt_is_the_ranks_own():
    view = build(make_rank())
    assert complete(view, NO_OVERLAP, own_wait_s=0.0, foreign_wait_s=0.0, options=()) is view
    full = complete(view, Overlap(10, 20), own_wait_s=1.0, foreign_wait_s=2.0, options=())
    assert (full.overlap_tokens, full.predicted_overlap_tokens) == (10, 20)
    assert (full.own_wait_s, full.foreign_wait_s, full.usable_overlap_tokens) == (1.0, 2.0, 20)


@pytest.mark.parametrize("idle_s", [30 * 60.0, 11.8 * 3_600.0, 24 * 3_600.0])
def test_a_rank_that_was_given_nothing_for_hours_is_still_seen(idle_s):
    rank = make_rank(capacity_tokens=400_000)
    rank.recent.record(work_s=1.0, new_tokens=60_000, now_s=100.0)
    view = build(rank, now_s=100.0 + idle_s)
    assert view.cache_age_s is None or view.cache_age_s <= 2.0**40
    assert view.eviction_reuse_ratio == 0.0
