"""Seconds ahead of a rank, against the plainest account of them: one prompt at a time, in order."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from router.placement.prefill_queue import OVERDUE_RATIO, PrefillQueue
from router.placement.reservation import Reservation
from wire.ids import RequestId, Target, WorkerId

seconds = st.sampled_from((0.0, 1e-9, 0.1)) | st.floats(1e-6, 100.0)
steps = st.lists(st.tuples(st.sampled_from(("enqueue", "dequeue", "wait")), seconds, st.floats(0.0, 3.0)), max_size=60)


def entry(number, prefill_s):
    return Reservation(
        request_id=RequestId(f"r{number}"),
        target=Target(WorkerId("a"), 0),
        origin="local",
        reserved_at_s=0.0,
        prompt_tokens=1,
        uncached_tokens=1,
        prefill_s=prefill_s,
        remaining_prefill_s=prefill_s,
        expected_output_tokens=1,
    )


class PlainQueue:
    """Estimates and what is left of them."""

    def __init__(self):
        self.left = []

    def work(self, elapsed_s):
        for each in self.left:
            done_s = min(elapsed_s, max(0.0, each[1] - each[0] * OVERDUE_RATIO))
            each[1] -= done_s
            elapsed_s -= done_s

    def waiting_s(self, elapsed_s):
        left_s = math.fsum(left for _, left in self.left) - elapsed_s
        return max(math.fsum(estimate for estimate, _ in self.left) * OVERDUE_RATIO, left_s)


@settings(deadline=None)
@given(happened=steps)
def test_sums_are_those_of_the_requests_to_the_last_bit_whatever_came_and_went(happened):
    queue, plain, entries = PrefillQueue(), PlainQueue(), []
    now_s, settled_s = 0.0, 0.0
    for number, (what, prefill_s, later_s) in enumerate(happened):
        now_s += later_s
        assert queue.waiting_s(now_s) == plain.waiting_s(now_s - settled_s)
        if what == "wait" or (what == "dequeue" and not entries):
            continue
        queue.settle(now_s)
        plain.work(now_s - settled_s)
        settled_s = now_s
        if what == "enqueue":
            entries.append(entry(number, prefill_s))
            plain.left.append([prefill_s, prefill_s])
            queue.enqueue(entries[-1])
        else:
            place = number % len(entries)
            del plain.left[place]
            queue.dequeue(entries.pop(place))
        assert [each.remaining_prefill_s for each in entries] == [left for _, left in plain.left]
        assert queue.remaining_s == math.fsum(left for _, left in plain.left)
        assert queue.estimated_s == math.fsum(estimate for estimate, _ in plain.left)
    while entries:
        queue.dequeue(entries.pop())
    assert (queue.remaining_s, queue.estimated_s) == (0.0, 0.0)


def test_one_that_comes_back_overdue_is_not_worked_on_again():
    queue, late = PrefillQueue(), entry(0, 10.0)
    late.remaining_prefill_s = 0.5
    queue.settle(0.0)
    queue.enqueue(late)
    queue.settle(5.0)
    assert late.remaining_prefill_s == 0.5
    assert queue.waiting_s(5.0) == 1.0
