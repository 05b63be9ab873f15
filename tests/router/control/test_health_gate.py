"""One probe says nothing; runs of them do."""

from router.control.health import HealthGate


def play(gate, probes):
    return [(gate.record(ok), gate.healthy) for ok in probes]


def test_D03_a_flapping_worker_stays_in():
    gate = HealthGate(unhealthy_after=3, healthy_after=2)
    gate.record(True)
    assert all(healthy for _, healthy in play(gate, [True, False, True, False, False, True] * 5))


def test_D03_three_failures_take_it_out_and_two_successes_bring_it_back():
    gate = HealthGate(unhealthy_after=3, healthy_after=2)
    gate.record(True)
    assert play(gate, [False, False, False, False]) == [(False, True), (False, True), (True, False), (False, False)]
    assert play(gate, [True, False, True, True]) == [(False, False), (False, False), (False, False), (True, True)]


def test_a_new_worker_is_in_with_its_first_good_probe():
    gate = HealthGate(unhealthy_after=3, healthy_after=5)
    assert not gate.healthy
    assert gate.record(True)


def test_a_refused_connection_takes_it_out_at_once_and_once():
    gate = HealthGate(unhealthy_after=3, healthy_after=1)
    gate.record(True)
    assert gate.fail_now()
    assert not gate.fail_now()
    assert not gate.healthy
