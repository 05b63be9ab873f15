"""What a mirror says of itself in a topic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.source_note import SourceNote, read_note, write_topic

NOTES = st.builds(
    SourceNote,
    incarnation=st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True),
    trust=st.sampled_from(["exact", "partial", "stale", "lost"]),
    losses=st.integers(0, 10**12),
)


@given(st.text(max_size=20), NOTES)
def test_a_note_reads_back_behind_any_topic(base, note):
    assert read_note(write_topic(base, note)) == note
    assert write_topic(base, note).startswith(base)


@pytest.mark.parametrize(
    "topic", ["", "kv", "kv@host@model", "kv#", "kv#a/exact", "kv#a/exact/-1", "kv#a b/exact/1", "kv#a/exact/1x", "#//"]
)
def test_topics_of_engines_have_no_note(topic):
    assert read_note(topic) is None
