"""What a policy sees of a rank."""

import pytest

from router.config import Coefficients
from router.fleet.load import OwnLoad, ReportedLoad
from router.placement.views import ForeignLoad, Overlap, bound_overlap, charge_s, find_foreign_load

COSTS = Coefficients(prefill_s_per_token=1e-3, attention_s_per_token_pair=0.0, foreign_request_tokens=500)


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
    }
    return ReportedLoad(**{**given, **changes})


def foreign(given, now_s=100.0, ratio=1.0):
    return find_foreign_load(given, now_s=now_s, costs=COSTS, prefill_ratio=ratio)


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


def test_a_measured_pace_scales_the_work_of_others():
    assert foreign(report(waiting_requests=1, waiting_tokens=1_000), ratio=3.0).wait_s == 3.0


def test_a_charge_is_the_prefill_of_what_is_not_cached():
    assert charge_s(1_000, 900, COSTS, 2.0) == pytest.approx(0.2)
