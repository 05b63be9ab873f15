"""Every fuzz target holds on its seeds, on damaged ones and on random bytes; atheris goes on from there by hand."""

from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

TARGETS = sorted(
    path.stem
    for path in Path(__file__).parent.glob("*.py")
    if not path.stem.startswith("test_") and path.stem != "guided"
)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_of_a_target_hold(name):
    target = import_module(name)
    assert len(target.SEEDS) > 1
    for seed in target.SEEDS:
        target.check(seed)


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.data())
@settings(max_examples=60)
def test_damaged_seeds_and_random_bytes_hold(name, data):
    target = import_module(name)
    if data.draw(st.booleans()):
        target.check(data.draw(st.binary(max_size=200)))
        return
    seed = bytearray(data.draw(st.sampled_from(target.SEEDS)))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(seed) - 1))
        seed[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        seed = seed or bytearray(b"0")
    target.check(bytes(seed))
