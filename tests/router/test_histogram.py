"""What a histogram counts."""

import math

from router.histogram import Histogram


def test_a_histogram_counts_up_to_each_bound_and_passes_over_what_is_no_number():
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0, math.nan, math.inf):
        histogram.observe(value)
    assert (histogram.counts, histogram.sum) == ([2, 1, 1], 12.0)
