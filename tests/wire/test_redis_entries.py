"""Entries of Redis streams stand for live messages; anything else is refused, not raised."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.frames import LiveFrame, parse_live
from wire.malformed import Malformed
from wire.redis_entries import name_entry, name_stream, read_entry, read_life, write_entry


@given(st.integers(1, 1 << 50), st.integers(0, 1 << 50), st.binary(max_size=99))
def test_an_entry_is_read_as_the_live_message_it_was_written_from(life, seq, payload):
    entry_id = name_entry(life, seq).encode()
    frames = read_entry(entry_id, write_entry("kv#a/exact/0", payload))
    assert parse_live(frames) == LiveFrame("kv#a/exact/0", seq, payload)
    assert read_life(entry_id) == life


@pytest.mark.parametrize(
    ("entry_id", "fields"),
    [
        (b"1-0", write_entry("kv", b"")),
        (b"1", write_entry("kv", b"")),
        (b"x-1", write_entry("kv", b"")),
        ("1-1", write_entry("kv", b"")),
        (b"9" * 30 + b"-1", write_entry("kv", b"")),
        (b"1-1", {}),
        (b"1-1", {b"t": b"kv"}),
        (b"1-1", {b"t": "kv", b"p": b""}),
        (b"1-1", {b"t": b"k" * 2_000, b"p": b""}),
        (b"1-1", None),
    ],
)
def test_what_is_no_batch_is_malformed(entry_id, fields):
    assert isinstance(read_entry(entry_id, fields), Malformed)


@given(st.binary(max_size=60), st.dictionaries(st.binary(max_size=2), st.binary(max_size=9)))
def test_nothing_raises(entry_id, fields):
    assert isinstance(read_entry(entry_id, fields), list | Malformed)
    assert read_life(entry_id) is None or read_life(entry_id) >= 0


def test_streams_of_ranks_differ():
    assert name_stream("dovecote:events:h:1", 3) == "dovecote:events:h:1:3"
