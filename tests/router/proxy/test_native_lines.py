"""Header lines compiled and in Python: the same of everything that a parser can give, and of what it never would."""

from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.proxy import plain_lines
from router.proxy.headers import lines_available

pytestmark = pytest.mark.skipif(not lines_available(), reason="the native module was not built")
native = import_module("router.proxy._header_lines") if lines_available() else plain_lines

NAMES = [
    b"host", b"content-length", b"transfer-encoding", b"expect", b"connection", b"x-override-rid", b"x-a", b"X-A",
    b"Connection", b"x" * 64, b"X" * 70, b"", b"x-override-", b"authorization",
]  # fmt: skip
VALUES = [
    b"1", b"chunked", b" Chunked\t", b"gzip, chunked", b"100-Continue", b"100-continue ", b"close, X-A", b"x-a,,host ",
    b"", b"a\nb", b"a\r", b"\0", b"\xff", b",", b"x-override-rid\v, \x0cx-a",
]  # fmt: skip
names = st.sampled_from(NAMES) | st.binary(max_size=70)
values = st.sampled_from(VALUES) | st.binary(max_size=40)
lines = st.lists(st.tuples(names, values), max_size=12)


@given(lines, names)
def test_a_line_is_found_as_python_finds_it(lines, name):
    assert native.find(lines, name) == plain_lines.find(lines, name)


@given(lines)
def test_framing_is_told_as_python_tells_it(lines):
    assert native.read_framing(lines) == plain_lines.read_framing(lines)


@given(st.binary(max_size=20), lines, st.binary(max_size=20))
def test_a_message_is_joined_as_python_joins_it_or_refused_like_there(start, lines, body):
    def join(module):
        try:
            return module.join(start, lines, body)
        except ValueError as error:
            return str(error)

    assert join(native) == join(plain_lines)


@given(st.lists(names), st.sampled_from([b"", b"x-override-", b"x"]), lines, lines, st.dictionaries(names, values))
def test_the_same_lines_cross(left_out, prefix, added, lines, own):
    rules = [name.lower() for name in left_out], prefix, added
    kept = native.LineFilter(*rules).keep(lines, own)
    assert kept == plain_lines.LineFilter(*rules).keep(lines, own)
    assert {type(part) for line in kept for part in line} <= {bytes}


steps = st.one_of(
    st.tuples(st.just("begin")),
    st.tuples(st.just("take")),
    st.tuples(st.just("count"), st.integers(0, 60)),
    st.tuples(st.just("add"), names, values),
)


@given(st.integers(0, 4), st.integers(0, 100), st.lists(steps, max_size=30))
def test_lines_are_taken_in_within_the_same_limits(max_lines, max_bytes, steps):
    readers = [module.LineReader(max_lines, max_bytes) for module in (native, plain_lines)]
    for step, *arguments in steps:
        taken, expected = (getattr(reader, step)(*arguments) for reader in readers)
        assert taken == expected


def test_bytes_that_the_interpreter_shares_stay_as_they_are():
    reader = native.LineReader(1, 10)
    reader.begin()
    reader.add(b"S", b"1")
    assert reader.take() == [(bytes([ord("s")]), b"1")]
    assert native.LineFilter([], b"", []).keep([(b"T", b"2")], {}) == [(bytes([ord("t")]), b"2")]
    assert [bytes([code])[0] for code in range(256)] == list(range(256))


@pytest.mark.parametrize(("lines", "bytes_each"), [(4, 2), (3, 50)])
def test_a_head_of_more_lines_or_bytes_than_may_be_is_none(lines, bytes_each):
    for module in (native, plain_lines):
        reader = module.LineReader(3, 100)
        reader.begin()
        for _ in range(lines):
            reader.add(b"a" * (bytes_each - 1), b"b")
        assert reader.take() is None


@pytest.mark.parametrize("line", [(b"a",), (b"a", b"b", b"c"), "ab", None, (b"a", "b"), ("a", b"b"), 7])
def test_what_is_no_header_line_is_refused(line):
    module = native.LineFilter([], b"", [])
    for use in (
        lambda: native.find([line], b"b"),
        lambda: native.read_framing([line]),
        lambda: native.join(b"", [line], b""),
        lambda: module.keep([line], {}),
        lambda: native.LineFilter([], b"", [line]),
    ):
        with pytest.raises(TypeError):
            use()


def test_values_of_own_lines_must_be_bytes_where_a_message_is_written():
    kept = native.LineFilter([], b"", []).keep([], {b"a": "b"})
    with pytest.raises(TypeError):
        native.join(b"", kept, b"")
