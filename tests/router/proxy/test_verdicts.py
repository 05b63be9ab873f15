"""Only what a worker did counts against it."""

import pytest

from router.errors import FleetError, RequestError, UpstreamClosedError, UpstreamTimeoutError, UpstreamUnreachableError
from router.fleet.breaker import Verdict
from router.placement.stimuli import Outcome
from router.proxy.upstream import GarbledAnswerError, OutOfSocketsError
from router.proxy.verdicts import judge_error, judge_status, read_retry_after_s


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, Verdict.GOOD),
        (400, Verdict.NEUTRAL),
        (404, Verdict.NEUTRAL),
        (413, Verdict.NEUTRAL),
        (429, Verdict.FULL),
        (500, Verdict.FAILED),
        (501, Verdict.NEUTRAL),
        (502, Verdict.FAILED),
        (503, Verdict.FULL),
        (504, Verdict.FAILED),
    ],
)
def test_an_answer_counts_by_its_status(status, verdict):
    assert judge_status(status) is verdict


def test_an_error_event_in_a_good_stream_is_a_failure():
    assert judge_status(200, Outcome.ERROR) is Verdict.FAILED


@pytest.mark.parametrize(
    "kind", [UpstreamClosedError, UpstreamTimeoutError, UpstreamUnreachableError, GarbledAnswerError]
)
def test_what_the_worker_did_is_a_failure(kind):
    assert judge_error(kind("x")) is Verdict.FAILED


@pytest.mark.parametrize("kind", [RequestError, FleetError, OutOfSocketsError])
def test_what_the_client_or_this_router_did_is_none(kind):
    assert judge_error(kind("x")) is Verdict.NEUTRAL


@pytest.mark.parametrize(
    ("line", "seconds"),
    [(b"3", 3.0), (b"0.5", 0.5), (b"-1", None), (b"inf", None), (b"nan", None), (b"Wed, 21 Oct", None), (None, None)],
)
def test_retry_after_is_read_in_seconds_or_not_at_all(line, seconds):
    headers = [] if line is None else [(b"retry-after", line)]
    assert read_retry_after_s(headers) == seconds
