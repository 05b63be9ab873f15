"""Compressed bodies come out as they were, in no more memory than they may take."""

import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.proxy.inflate import MAX_MEMBERS, InflateProblem, inflate

#: Without the hour in it, or workers that run tests side by side would not collect the same.
PACKED = gzip.compress(b"abc", mtime=0)


@given(st.binary(max_size=2_000), st.sampled_from([gzip.compress, zlib.compress]))
def test_what_was_compressed_comes_out(data, compress):
    assert inflate(compress(data), 2_000) == data
    if data:
        assert inflate(compress(data), len(data) - 1) is InflateProblem.TOO_LONG


def test_members_one_after_the_other_are_one_body():
    assert inflate(gzip.compress(b"ab") + gzip.compress(b"") + gzip.compress(b"cd") + b"\0\0", 4) == b"abcd"


def test_members_are_read_however_long_each_is_and_however_it_is_padded():
    texts = [b"a" * 200_000, bytes(range(256)) * 1_000, b"", b"c" * 65_536]
    body = b"".join(gzip.compress(text, level) + bytes(70_000) for level, text in zip((0, 9, 1, 0), texts, strict=True))
    assert inflate(body, 1 << 20) == b"".join(texts)


def test_no_more_members_are_read_than_bodies_need():
    assert inflate(gzip.compress(b"x") * MAX_MEMBERS, 1 << 20) == b"x" * MAX_MEMBERS
    assert inflate(gzip.compress(b"") * (MAX_MEMBERS + 1), 1 << 20) is InflateProblem.TOO_MANY_MEMBERS


def test_what_stands_behind_a_member_is_not_copied_whole_for_each():
    body = gzip.compress(b"x") + gzip.compress(bytes(64 << 20), 0)
    tracemalloc.start()
    try:
        assert inflate(body, 1) is InflateProblem.TOO_LONG
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", PACKED[:-1], PACKED + b"x", b"\x1f\x8b" + b"\xff" * 20],
    ids=["empty", "plain", "cut_off", "more_after_it", "odd_head"],
)
def test_what_is_cut_off_or_no_such_body_is_corrupt(data):
    assert inflate(data, 1_000) is InflateProblem.CORRUPT


def test_C09_a_bomb_takes_no_more_memory_than_the_limit():
    bomb = gzip.compress(bytes(64 << 20))
    tracemalloc.start()
    try:
        assert inflate(bomb, 1 << 20) is InflateProblem.TOO_LONG
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
