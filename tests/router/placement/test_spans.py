"""What answers teach that come whole or share their rank, and what teaches nothing."""

import math

import pytest

from router.config.policy import Coefficients
from router.placement.stimuli import Outcome
from wire.ids import Target, WorkerId

COSTS = Coefficients(
    prefill_step_s=0.0,
    prefill_s_per_token=1e-3,
    attention_s_per_token_pair=0.0,
    decode_step_s=0.01,
    decode_s_per_request=0.0,
    decode_s_per_full_cache=0.0,
    decode_s_per_context_token=0.0,
)
RANK = Target(WorkerId("a"), 0)
#: Of a request with 1,000 tokens and an answer of 101.
PREFILL_S, STEPS_S = 1.0, 1.0


@pytest.fixture
def world(make_world):
    """One rank whose KV cache has room for everything."""
    made = make_world(costs=COSTS)
    made.fleet([RANK], capacity_tokens=1_000_000)
    return made


def ratios(world):
    return world.placer.prefill_ratio, world.placer.decode_ratio


def answer(world, name, now_s, *, output_tokens=101, **more):
    world.end(name, now_s, output_tokens=output_tokens, whole_at_s=now_s, **more)


def serve_alone(world, count, took_s, *, start_s=0.0, **more):
    for number in range(count):
        now_s = start_s + 100.0 * number
        world.arrive(f"{start_s}-{number}", now_s, **more)
        answer(world, f"{start_s}-{number}", now_s + took_s)


def predicted_s(world, prompt_tokens=1_000, output_tokens=101):
    """Seconds of a request that has the rank to itself, by what the router has learned."""
    prefill_ratio, decode_ratio = ratios(world)
    return prefill_ratio * prompt_tokens * 1e-3 + decode_ratio * (output_tokens - 1) * 0.01


@pytest.mark.parametrize("took_s", [0.1, 0.5, 2.0, 8.0])
def test_a_whole_answer_that_had_the_rank_to_itself_is_a_measurement(world, took_s):
    serve_alone(world, 200, took_s)
    assert predicted_s(world) == pytest.approx(took_s, rel=0.05)


def test_prefill_and_steps_are_told_apart_by_answers_of_different_lengths(world):
    for number in range(400):
        prompt_tokens, output_tokens = ((4_000, 17), (500, 301))[number % 2]
        now_s = 100.0 * number
        world.arrive(f"r{number}", now_s, prompt_tokens=prompt_tokens)
        took_s = 0.25 * prompt_tokens * 1e-3 + 2.0 * (output_tokens - 1) * 0.01
        answer(world, f"r{number}", now_s + took_s, output_tokens=output_tokens)
    assert ratios(world) == (pytest.approx(0.25, rel=0.1), pytest.approx(2.0, rel=0.1))


def test_the_engines_count_of_cached_tokens_comes_before_the_assumed_one(world):
    for number in range(200):
        world.arrive(f"r{number}", 100.0 * number, prompt_tokens=10_000)
        answer(world, f"r{number}", 100.0 * number + 2.0, cached_tokens=9_000)
    assert predicted_s(world) == pytest.approx(2.0, rel=0.05)
    assert ratios(world) == (1.0, 1.0)


def overlap(world, took_s, rounds=200, requests=3):
    """Requests that come at once, and are over one after the other: none has the rank to itself."""
    for number in range(rounds):
        start_s = 100.0 * number
        for each in range(requests):
            world.arrive(f"{number}.{each}", start_s)
        for each in range(requests):
            answer(world, f"{number}.{each}", start_s + took_s)


def test_what_lies_between_the_least_work_and_the_most_teaches_nothing(world):
    # At least three prefills and steps that all have in common, at most one more step for each piece of a prefill.
    for took_s in (3 * PREFILL_S + STEPS_S, 3 * PREFILL_S + STEPS_S + 0.04):
        overlap(world, took_s, rounds=30)
        assert ratios(world) == (pytest.approx(1.0), pytest.approx(1.0))


def test_answers_much_faster_than_their_own_work_teach_though_none_was_alone(world):
    overlap(world, 0.001)
    prefill_ratio, decode_ratio = ratios(world)
    assert prefill_ratio < 1 / 30
    assert decode_ratio < 1 / 30


def test_a_rank_that_gives_more_than_its_pace_allows_is_faster(world):
    # Each takes long enough for its own work; all of them together do not.
    overlap(world, PREFILL_S + STEPS_S, requests=10)
    assert world.placer.prefill_ratio < 0.3


def test_answers_slower_than_all_that_was_there_teach(world):
    overlap(world, 10 * (3 * PREFILL_S + STEPS_S))
    assert 5.0 < predicted_s(world) / (PREFILL_S + STEPS_S) <= 40.0


def test_waiting_for_room_in_the_cache_is_no_slowness(make_world):
    world = make_world(costs=COSTS)
    world.fleet([RANK], capacity_tokens=1_500)
    # One after the other, as nothing else fits.
    overlap(world, 3 * (PREFILL_S + STEPS_S))
    assert ratios(world) == (1.0, 1.0)


def test_work_of_others_is_no_slowness(world):
    world.report(RANK, 0.0, running=1)
    serve_alone(world, 1, 20.0)
    assert ratios(world) == (1.0, 1.0)
    # However much others do, its own work was done in that time.
    world.report(RANK, 200.0, running=1)
    serve_alone(world, 1, 0.2, start_s=200.0)
    assert max(ratios(world)) < 1.0


@pytest.mark.parametrize(
    "end",
    [
        {"outcome": Outcome.ERROR, "output_tokens": 101, "whole_at_s": 0.01},
        {"outcome": Outcome.CANCELLED, "output_tokens": 101, "whole_at_s": 0.01},
        {"outcome": Outcome.TIMED_OUT, "output_tokens": 101, "whole_at_s": 0.01},
        {"outcome": Outcome.WORKER_LOST, "output_tokens": 101, "whole_at_s": 0.01},
        {"output_tokens": 101, "answers": 2, "whole_at_s": 0.01},
        {"output_tokens": None, "whole_at_s": 0.01},
        {"output_tokens": 101, "whole_at_s": None},
        {},
    ],
)
def test_what_is_no_good_single_whole_answer_teaches_nothing(world, end):
    for number in range(8):
        world.arrive(f"r{number}")
    # None of the times below is that of a stream; as a window of eight this is just about long enough.
    for number in range(8):
        world.end(f"r{number}", 9.5, **end)
    assert ratios(world) == (1.0, 1.0)


def test_a_request_that_was_tried_elsewhere_teaches_nothing(make_world, ranks):
    world = make_world(costs=COSTS)
    world.fleet(ranks)
    for number in range(10):
        target = world.arrive(f"r{number}").target
        world.end(f"r{number}", 0.0, outcome=Outcome.WORKER_LOST)
        world.arrive(f"r{number}", excluded=frozenset([target]))
        answer(world, f"r{number}", 0.001)
    assert ratios(world) == (1.0, 1.0)


def test_several_answers_of_a_stream_are_not_taken_for_one(world):
    world.arrive("r1", prompt_tokens=100)
    world.first_token("r1", 0.1)
    world.end("r1", 1.1, output_tokens=401, answers=4)
    assert world.placer.decode_ratio == 1.0


def test_the_first_token_of_several_prompts_teaches_nothing(world):
    # The first is alone on its rank, the others are not.
    for number in range(4):
        world.arrive(f"r{number}", prompts=2)
    for number in range(4):
        world.first_token(f"r{number}", 0.01)
    assert ratios(world) == (1.0, 1.0)


def test_a_short_answer_to_a_short_prompt_teaches_nothing(world):
    for number in range(10):
        world.arrive(f"r{number}", 10.0 * number, prompt_tokens=200)
        answer(world, f"r{number}", 10.0 * number + 0.001, output_tokens=4)
    assert ratios(world) == (1.0, 1.0)


def test_a_client_that_takes_its_time_does_not_make_its_engine_slow(world):
    for number in range(50):
        world.arrive(f"r{number}", 100.0 * number)
        world.end(f"r{number}", 100.0 * number + 60.0, output_tokens=101, whole_at_s=100.0 * number + 2.0)
    assert predicted_s(world) == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize(("held_s", "ratio"), [(0.0, 10.0), (0.5, 10.0), (90.0, 1.0)])
def test_a_client_that_holds_its_stream_up_does_not_make_its_engine_slow(world, held_s, ratio):
    for number in range(200):
        now_s = 1_000.0 * number
        world.arrive(f"r{number}", now_s)
        world.first_token(f"r{number}", now_s + 1.0)
        world.end(f"r{number}", now_s + 11.0 + held_s, output_tokens=101, held_s=held_s)
    assert world.placer.decode_ratio == pytest.approx(ratio, rel=0.15)


@pytest.mark.parametrize("outlier_s", [1e-9, 1e9])
def test_one_outlier_moves_little_once_many_were_seen(world, outlier_s):
    serve_alone(world, 100, 2.0)
    before = ratios(world)
    serve_alone(world, 1, outlier_s, start_s=50_000.0)
    for was, now in zip(before, ratios(world), strict=True):
        assert abs(math.log(now / was)) < 0.06


@pytest.mark.parametrize("later_s", [0.4, 10.0])
def test_an_engine_that_changes_is_followed(world, later_s):
    serve_alone(world, 200, 2.0)
    serve_alone(world, 400, later_s, start_s=50_000.0)
    assert predicted_s(world) == pytest.approx(later_s, rel=0.1)


def test_an_engine_that_slows_down_is_followed_though_no_request_is_ever_alone(world):
    overlap(world, 3.0)
    for number in range(400):
        for each in range(3):
            world.arrive(f"late {number}.{each}", 1e5 + 100.0 * number)
        for each in range(3):
            answer(world, f"late {number}.{each}", 1e5 + 100.0 * number + 30.0)
    assert predicted_s(world) > 6.0


def test_the_first_token_of_a_stream_bounds_its_prefill_though_others_are_there(world):
    world.arrive("open all the time", prompt_tokens=1)
    for number in range(100):
        for each in range(3):
            world.arrive(f"{number}.{each}", 100.0 * number)
        for each in range(3):
            world.first_token(f"{number}.{each}", 100.0 * number + 0.1)
        # So long after that nothing else tells of the prefill.
        for each in range(3):
            world.end(f"{number}.{each}", 100.0 * number + 90.0, outcome=Outcome.CANCELLED)
    assert world.placer.prefill_ratio < 0.15


def test_a_rank_that_comes_back_begins_with_nothing(world):
    world.arrive("lost")
    world.fleet([])
    world.fleet([RANK], 1.0, capacity_tokens=1_000_000)
    world.arrive("r1", 10.0)
    answer(world, "r1", 14.0)
    assert predicted_s(world) == pytest.approx(math.sqrt(2.0 * 4.0))


def test_nothing_is_learned_where_that_is_switched_off(make_world):
    world = make_world(costs=COSTS, learn_pace=False)
    world.fleet([RANK])
    serve_alone(world, 10, 0.01)
    assert ratios(world) == (1.0, 1.0)


def test_what_agrees_with_what_is_known_counts_too(world):
    # Between the bounds, again and again; then one that is far out.
    overlap(world, 3 * PREFILL_S + STEPS_S, rounds=20)
    serve_alone(world, 1, 1e9, start_s=50_000.0)
    assert predicted_s(world) < 1.5 * (PREFILL_S + STEPS_S)


def serve_short(world, name, count, now_s):
    """Prefills of a second, one after the other; when the last is over."""
    for number in range(count):
        world.arrive(f"{name}{number}", now_s)
        now_s += PREFILL_S + 0.01
        answer(world, f"{name}{number}", now_s, output_tokens=1)
    return now_s


def test_requests_that_only_end_in_a_window_are_not_of_it(world):
    world.arrive("open all the time", prompt_tokens=1)
    world.arrive("long", prompt_tokens=100_000)
    # A window ends when eight times as many came and went as are there; the long one's work was done before.
    now_s = serve_short(world, "early", 16, 100.0)
    answer(world, "long", now_s + 0.01, output_tokens=1)
    serve_short(world, "late", 24, now_s + 0.01)
    world.end("open all the time", 200.0, outcome=Outcome.CANCELLED)
    assert world.placer.prefill_ratio == pytest.approx(1.0, rel=0.02)
