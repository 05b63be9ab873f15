"""Draws are a function of seed and place."""

from engine_shim.engine.admission.draws import seed_of_request, uniform_draw


def test_draws_lie_in_0_to_1_and_spread_evenly():
    draws = [uniform_draw(3, index) for index in range(4000)]
    assert all(0 <= draw < 1 for draw in draws)
    tenths = [sum(draw * 10 // 1 == tenth for draw in draws) for tenth in range(10)]
    assert min(tenths) > 320
    assert max(tenths) < 480


def test_a_draw_depends_on_seed_and_place_only():
    assert uniform_draw(1, 2) == uniform_draw(1, 2)
    assert len({uniform_draw(seed, index) for seed in (-1, 0, 2**70) for index in range(9)}) == 27


def test_a_request_without_a_seed_gets_one_of_engine_and_id():
    assert seed_of_request(1, "a") == seed_of_request(1, "a")
    assert len({seed_of_request(seed, name) for seed in (1, 2) for name in ("a", "b", "\ud800")}) == 6
