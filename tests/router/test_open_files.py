"""A limit of the system that is too low is told before the router starts."""

import resource

import pytest

from router import open_files
from router.errors import ConfigError
from router.open_files import SPARE_FILES, reserve_files


@pytest.fixture
def limits(monkeypatch):
    """The process's limits, as a test sets them."""
    held = {"limits": (0, 0)}
    monkeypatch.setattr(open_files.resource, "getrlimit", lambda _kind: held["limits"])
    monkeypatch.setattr(open_files.resource, "setrlimit", lambda _kind, limits: held.update(limits=limits))
    return held


def test_the_soft_limit_is_raised_as_far_as_is_needed(limits):
    limits["limits"] = (1_024, 1_048_576)
    reserve_files(8_000)
    assert limits["limits"] == (16_000 + SPARE_FILES, 1_048_576)


@pytest.mark.parametrize("given", [(100_000, 100_000), (resource.RLIM_INFINITY, resource.RLIM_INFINITY)])
def test_limits_that_are_high_enough_stay(limits, given):
    limits["limits"] = given
    reserve_files(8_000)
    assert limits["limits"] == given


def test_a_hard_limit_that_is_too_low_is_named_with_what_would_do(limits):
    limits["limits"] = (1_024, 4_096)
    with pytest.raises(ConfigError) as caught:
        reserve_files(8_000)
    assert "limits.streams: 8000: needs 16512 open files, and RLIMIT_NOFILE allows 4096" in caught.value.message
    assert caught.value.message.endswith("or set at most 1792")
    reserve_files(1_792)
    assert limits["limits"] == (4_096, 4_096)
