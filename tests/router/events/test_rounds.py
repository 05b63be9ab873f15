"""How the thread of the sockets shares its time with requests."""

import pytest

from router.events.sockets import find_pause_s


@pytest.mark.parametrize(
    ("took_s", "pause_s"), [(0.0, 0.002), (0.0001, 0.002), (0.001, 0.004), (0.005, 0.01), (0.02, 0.02), (3.0, 3.0)]
)
def test_at_most_half_of_the_time_goes_to_events_and_short_rounds_wait_for_more(took_s, pause_s):
    assert find_pause_s(took_s) == pytest.approx(pause_s)
