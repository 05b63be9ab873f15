"""Events told at a glance, compiled and in Python: the same of every piece that a worker can send."""

from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.proxy import alike
from router.proxy.alike import MAX_CHUNK_BYTES, glance_available

pytestmark = pytest.mark.skipif(not glance_available(), reason="the native module was not built")
native = import_module("router.proxy._event_text") if glance_available() else alike

BEFORE, BEHIND = b'data: {"content":"', b'"}\n\n'
parts = st.sampled_from(
    [BEFORE, BEHIND, b"a", b'"', b"\\", b"\r\n", b"0", b"1b", b"1B", b";x", b"\n\n", b"1000", b"1001", b"\0", b"\xff"]
)
texts = st.lists(parts, max_size=6).map(b"".join)


def frame(event, size=None):
    return b"%x\r\n%b\r\n" % (len(event) if size is None else size, event)


events = texts.map(lambda text: BEFORE + text + BEHIND)
chunks = st.one_of(events.map(frame), st.builds(frame, events, st.integers(0, 60)), texts)


@given(st.lists(chunks, max_size=4).map(b"".join))
def test_chunks_of_more_of_the_same_are_counted_as_python_counts_them(data):
    assert native.Alike(BEFORE, BEHIND).count_chunks(data) == alike.Alike(BEFORE, BEHIND).count_chunks(data)


@given(st.binary(min_size=1, max_size=4), st.binary(max_size=4), st.binary(max_size=12), st.data())
def test_an_event_fits_as_python_sees_it(before, behind, data, draw):
    start = draw.draw(st.integers(0, len(data)))
    end = draw.draw(st.integers(start, len(data)))
    assert native.Alike(before, behind).fits(data, start, end) == alike.Alike(before, behind).fits(data, start, end)


@pytest.mark.parametrize("size", [MAX_CHUNK_BYTES - 1, MAX_CHUNK_BYTES, MAX_CHUNK_BYTES + 1])
def test_long_chunks_are_left_to_the_parser(size):
    event = BEFORE + b"x" * (size - len(BEFORE) - len(BEHIND)) + BEHIND
    counts = {module.Alike(BEFORE, BEHIND).count_chunks(frame(event)) for module in (native, alike)}
    assert counts == {int(size <= MAX_CHUNK_BYTES)}


def test_places_outside_of_a_piece_fit_nothing():
    form = native.Alike(BEFORE, BEHIND)
    event = BEFORE + b"x" + BEHIND
    assert form.fits(event, 0, len(event))
    assert not form.fits(event, 0, len(event) + 1)
    assert not form.fits(event, len(event), 0)
