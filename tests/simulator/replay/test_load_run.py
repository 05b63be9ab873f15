"""The closed loop in virtual time: what is sent when, and what ends it."""

import asyncio

import pytest
from replay_traces import after, request, trace_of

from simulator.demo.exchange import Exchange, Failure
from simulator.graph.request import Trigger
from simulator.replay.run import Ending, LoadLimits, LoadRun, find_wait_s


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time jumps to the next thing that is due."""

    _virtual_s = 0.0

    def time(self):
        return self._virtual_s

    def _run_once(self):
        if not self._ready and self._scheduled:
            self._virtual_s = max(self._virtual_s, self._scheduled[0].when())
        super()._run_once()


class FakeTarget:
    """Every answer takes so long; `failures` gives those that fail, by (name, attempt)."""

    def __init__(self, answer_s=1.0, failures=None):
        self.sent = []
        self._answer_s, self._failures = answer_s, failures or {}
        self._attempts = {}

    def write_body(self, request):
        return request.request_id.encode()

    async def send(self, request, body):
        name = body.decode()
        now = asyncio.get_running_loop().time
        attempt = self._attempts[name] = self._attempts.get(name, -1) + 1
        self.sent.append((name, now()))
        start_s = now()
        failure = self._failures.get((name, attempt)) or self._failures.get(name)
        await asyncio.sleep(self._answer_s)
        return Exchange(start_s, now(), failure=failure)


class Play:
    """A finished run and what was seen of it."""

    def __init__(self, trace, *, answer_s=1.0, failures=None, interrupt_s=None, cancel_s=None, **limits):
        self.target = FakeTarget(answer_s, failures)
        self.outcomes = []
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(self._play(trace, LoadLimits(**limits), interrupt_s, cancel_s))

    async def _play(self, trace, limits, interrupt_s, cancel_s):
        loop = asyncio.get_running_loop()
        self.run = LoadRun(self.target, limits, clock=loop.time, sleep=asyncio.sleep, on_outcome=self.outcomes.append)
        work = loop.create_task(self.run.run(trace))
        if interrupt_s is not None:
            loop.call_later(interrupt_s, self.run.interrupt)
        if cancel_s is not None:
            loop.call_later(cancel_s, work.cancel)
        await work

    @property
    def sent(self):
        return dict(self.target.sent)


PARALLEL = trace_of(*(request(name, [1], session=name) for name in "abc"))


def test_a_turn_starts_after_what_it_waited_for_and_its_pause():
    trace = trace_of(
        request("a", [1], not_before_s=2.0),
        request("b", [1, 2], after(0, 5.0)),
        request("c", [3], after(0, 0.5, Trigger.DISPATCH), session="s/1", parent="s"),
        request("d", [1, 2, 3], after(1, 1.0), after(2, 7.0)),
    )
    play = Play(trace, answer_s=3.0)
    assert play.sent == {"a": 2.0, "c": 2.5, "b": 10.0, "d": 14.0}
    assert play.run.ending is Ending.COMPLETE
    assert (play.run.sent, play.run.in_flight) == (4, 0)


def test_no_more_than_the_limit_is_in_flight_and_what_had_to_wait_is_late():
    play = Play(PARALLEL, concurrency=2)
    assert play.sent == {"a": 0.0, "b": 0.0, "c": 1.0}
    assert [outcome.late_s for outcome in play.outcomes] == [0.0, 0.0, 1.0]
    assert play.run.most_in_flight == 2


def test_after_the_duration_nothing_is_sent_and_what_is_in_flight_is_waited_for():
    trace = trace_of(request("a", [1]), request("b", [1, 2], after(0, 1.0)), request("c", [1, 2, 3], after(1)))
    play = Play(trace, answer_s=2.0, duration_s=4.0)
    assert play.sent == {"a": 0.0, "b": 3.0}
    assert (len(play.outcomes), play.run.ending) == (2, Ending.DURATION)


def test_a_request_that_gets_its_place_after_the_duration_is_not_sent():
    play = Play(PARALLEL, answer_s=5.0, duration_s=4.0, concurrency=1)
    assert play.sent == {"a": 0.0}
    assert play.run.ending is Ending.DURATION


def test_an_interrupt_gives_up_what_is_in_flight_and_keeps_what_is_done():
    trace = trace_of(request("a", [1]), request("b", [1, 2], after(0, 1.0)), request("c", [1, 2, 3], after(1)))
    play = Play(trace, interrupt_s=2.5)
    assert play.sent == {"a": 0.0, "b": 2.0}
    assert (len(play.outcomes), play.run.in_flight, play.run.ending) == (1, 1, Ending.INTERRUPTED)


def test_a_cancellation_from_outside_is_not_swallowed():
    with pytest.raises(asyncio.CancelledError):
        Play(PARALLEL, cancel_s=0.5)


def test_a_conversation_goes_on_after_a_failed_request():
    trace = trace_of(request("a", [1]), request("b", [1, 2], after(0, 1.0)))
    play = Play(trace, failures={"a": Failure("http_500", "oops")})
    assert play.sent == {"a": 0.0, "b": 2.0}
    assert play.run.ending is Ending.COMPLETE


BUSY = Failure("http_429", "slow down", "7")


def test_a_busy_target_is_asked_again_after_the_time_it_named():
    play = Play(PARALLEL, failures={("a", 0): BUSY, ("a", 1): BUSY}, retries=2)
    assert [sent_s for name, sent_s in play.target.sent if name == "a"] == [0.0, 8.0, 16.0]
    (outcome,) = [each for each in play.outcomes if each.request.request_id == "a"]
    assert (outcome.retries, outcome.retry_wait_s, outcome.exchange.failure) == (2, 14.0, None)


def test_a_busy_target_is_a_failure_where_no_retry_is_left():
    assert [sent_s for _, sent_s in Play(trace_of(request("a", [1])), failures={"a": BUSY}).target.sent] == [0.0]
    play = Play(trace_of(request("a", [1])), failures={"a": BUSY}, retries=1)
    assert [outcome.exchange.failure for outcome in play.outcomes] == [BUSY]
    assert play.run.sent == 1


def test_a_retry_after_the_duration_is_not_made():
    play = Play(trace_of(request("a", [1])), failures={"a": BUSY}, retries=5, duration_s=5.0)
    assert [outcome.retries for outcome in play.outcomes] == [0]


@pytest.mark.parametrize("kind", ["http_401", "http_403", "http_404"])
def test_a_refusal_of_everything_ends_the_run_unless_something_succeeded_before(kind):
    refused = Failure(kind, "no")
    trace = trace_of(request("a", [1]), request("b", [1, 2], after(0)), request("c", [1, 2, 3], after(1)))
    first = Play(trace, failures={"a": refused})
    assert (list(first.sent), first.run.ending, len(first.outcomes)) == (["a"], Ending.REFUSED, 1)
    later = Play(trace, failures={"b": refused})
    assert (list(later.sent), later.run.ending) == (["a", "b", "c"], Ending.COMPLETE)


NOON, LATER = "Mon, 30 Nov 2026 12:00:00 GMT", "Mon, 30 Nov 2026 12:00:09 GMT"


@pytest.mark.parametrize(
    ("kind", "asked", "wait_s"),
    [
        ("http_429", "3", 3.0),
        ("http_503", "0", 0.0),
        ("http_429", None, 1.0),
        ("http_429", "soon", 1.0),
        ("http_429", "-5", 1.0),
        ("http_429", LATER, 9.0),
        ("http_429", "Mon, 30 Nov 2026 11:00:00 GMT", 0.0),
        ("http_429", "Mon, 30 Nov 2026 12:00:00 -0000", 1.0),
        ("http_429", "9" * 400, None),
        ("http_429", "3600", None),
        ("http_500", "3", None),
    ],
)
def test_retry_after_is_read_in_both_its_forms(kind, asked, wait_s):
    made = Exchange(0.0, headers={"date": NOON}, failure=Failure(kind, "busy", asked))
    assert find_wait_s(made) == wait_s


def test_a_complete_answer_asks_for_no_wait():
    assert find_wait_s(Exchange(0.0)) is None
