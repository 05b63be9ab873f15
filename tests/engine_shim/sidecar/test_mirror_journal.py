"""What a mirror keeps for replay is bounded in batches and bytes."""

from hypothesis import given
from hypothesis import strategies as st

from engine_shim.sidecar.journal import Journal


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 8), st.integers(1, 100), st.integers(0, 70))
def test_a_journal_keeps_the_last_batches_within_both_bounds(sizes, max_batches, max_bytes, start):
    journal = Journal(max_batches=max_batches, max_bytes=max_bytes)
    for seq, size in enumerate(sizes):
        assert journal.append("kv", b"x" * size).seq == seq
    kept = journal.replay_from(0)
    assert len(kept) <= max_batches
    assert journal.size_bytes == sum(len(entry.payload) for entry in kept)
    assert journal.size_bytes <= max_bytes or len(kept) == 1
    numbers = [entry.seq for entry in kept]
    assert numbers == list(range(len(sizes) - len(kept), len(sizes)))
    assert [entry.seq for entry in journal.replay_from(start)] == [seq for seq in numbers if seq >= start]
