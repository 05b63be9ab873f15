"""Fixtures every test may use: the clock, the chance and where the shared material lies."""

import os
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

# No test depends on how fast the machine is: neither on the time of an example nor on that of making one.
# Checks of a change try the same examples each time; runs at home go on searching.
settings.register_profile(
    "dovecote",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=os.environ.get("CI") == "true",
)
settings.load_profile("dovecote")
#: How many times the usual number of examples to search: `make search` looks longer than a check of a change may.
EXAMPLES_TIMES = int(os.environ.get("DOVECOTE_EXAMPLES_TIMES", "1"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raise the examples of every property and machine, whatever its file asks for."""
    if EXAMPLES_TIMES == 1:
        return
    machines = {item.cls for item in items if isinstance(getattr(item.cls, "settings", None), settings)}
    for machine in machines:
        machine.settings = _raise_examples(machine.settings)
    for prop in {item.obj for item in items if is_hypothesis_test(item.obj) and item.cls not in machines}:
        prop._hypothesis_internal_use_settings = _raise_examples(prop._hypothesis_internal_use_settings)


def _raise_examples(usual: settings) -> settings:
    return settings(usual, max_examples=usual.max_examples * EXAMPLES_TIMES)


# `make test` unpacks Debian's prometheus and promtool there.
os.environ["PATH"] += os.pathsep + str(Path(sys.prefix) / "prometheus/usr/bin")


class FakeClock:
    """A clock that moves only when told to."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s

    def advance(self, by_s: float) -> float:
        self.now_s += by_s
        return self.now_s


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def rng() -> Random:
    return Random(0)


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Folder of real traces and recordings; tests that need it skip, saying so, where it is absent."""
    path = Path(os.environ.get("DOVECOTE_SHARED", Path(__file__).parents[2] / "shared"))
    if not (path / "traces").is_dir():
        pytest.skip(f"needs the shared traces and recordings: {path} is not there (set DOVECOTE_SHARED)")
    return path
