"""The journal numbers batches without a gap and keeps the last of them."""

import msgspec
import pytest

from engine_shim.engine.publish.journal import Journal
from wire.events import AllBlocksCleared, BlockRemoved, EventBatch

CLEARED = (AllBlocksCleared(),)


def make_journal(window_batches=3):
    return Journal(lambda batch: msgspec.msgpack.encode(batch.ts_s), dp_rank=2, window_batches=window_batches)


def seqs(entries):
    return [entry.seq for entry in entries]


def test_batches_are_numbered_from_0_without_a_gap():
    journal = make_journal()
    assert seqs(journal.append(CLEARED, 0.0) for _ in range(5)) == [0, 1, 2, 3, 4]
    assert journal.next_seq == 5


def test_the_last_batches_can_be_replayed_from_any_number():
    journal = make_journal()
    entries = [journal.append(CLEARED, float(number)) for number in range(5)]
    assert journal.replay_from(0) == tuple(entries[2:])
    assert journal.replay_from(3) == tuple(entries[3:])
    assert journal.replay_from(5) == ()


def test_a_window_of_nothing_keeps_nothing():
    journal = make_journal(0)
    assert journal.append(CLEARED, 0.0).seq == 0
    assert journal.replay_from(0) == ()


def test_a_batch_says_its_rank_its_time_and_its_events():
    seen = []
    journal = Journal(lambda batch: seen.append(batch) or b"x", dp_rank=2, window_batches=1)
    events = (BlockRemoved(block_hashes=(1,)), AllBlocksCleared())
    assert journal.append(events, 4.5).payload == b"x"
    assert seen == [EventBatch(ts_s=4.5, events=events, dp_rank=2)]


def test_a_batch_without_events_takes_no_number():
    journal = make_journal()
    with pytest.raises(ValueError, match="takes no number"):
        journal.append((), 0.0)
    assert journal.next_seq == 0


def test_a_batch_that_cannot_be_encoded_takes_no_number():
    def refuse(batch):
        raise TypeError("no")

    journal = Journal(refuse, dp_rank=0, window_batches=1)
    with pytest.raises(TypeError):
        journal.append(CLEARED, 0.0)
    assert journal.next_seq == 0


def test_a_negative_window_is_refused():
    with pytest.raises(ValueError, match="window_batches=-1"):
        make_journal(-1)
