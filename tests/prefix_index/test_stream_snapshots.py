"""A stream whose source is a mirror: snapshots, lives of the mirror, and what it says of itself."""

import pytest
from rank_words import Rank, stored

from prefix_index import NaivePrefixIndex
from prefix_index.stream import RankStream
from prefix_index.trust import Trust
from wire import frames
from wire.block_hash import namespace_seed
from wire.events import AllBlocksCleared, BlockRemoved
from wire.snapshot import SnapshotHeader
from wire.source_note import SourceNote, write_topic

PROMPT = list(range(100, 133))  # 8 blocks of 4 and one token


def blocks(first, last, parent=None, **fields):
    return stored(range(first, last + 1), parent, PROMPT[4 * (first - 1) : 4 * last], **fields)


class MirroredRank(Rank):
    """A rank behind a mirror, and the mirror's own index for snapshots."""

    def __init__(self, index, **settings):
        super().__init__(index)
        self.stream = RankStream(
            self.target, index, replay_available=True, snapshot_available=True, due_limit_s=10.0, **settings
        )
        self.mirror = NaivePrefixIndex()
        self.mirror.attach(self.target, model="tiny")

    def live(self, seq, *events, life="a", trust="exact", losses=0):
        self.now_s += 1
        topic = write_topic("kv", SourceNote(life, trust, losses))
        return self.stream.on_live(frames.encode_live(topic, seq, self.payload(*events)), self.now_s)

    def replay(self, seq, *events, life="a"):
        topic = write_topic("kv", SourceNote(life, "exact", 0))
        return self.stream.on_replay(frames.encode_replay(seq, self.payload(*events), topic=topic), self.now_s)

    def header(self, watermark, *, life="a", trust="exact", losses=0):
        return SnapshotHeader(
            incarnation=life, watermark=watermark, trust=trust, losses=losses, dp_rank=0, model="tiny",
            seed=namespace_seed("tiny"),
        )  # fmt: skip

    def snapshot(self, ticket, watermark, **fields):
        records = tuple(self.mirror.dump(self.target))
        self.stream.on_snapshot_started(self.header(watermark, **fields), ticket, self.now_s)
        for record in records:
            self.stream.on_snapshot_records((record,), ticket)
        return self.stream.on_snapshot_ended(ticket, self.now_s)


@pytest.fixture
def rank(index):
    return MirroredRank(index)


def test_a_connection_asks_for_a_snapshot_which_makes_the_rank_exact(rank):
    rank.mirror.apply(rank.target, blocks(1, 4))
    ticket = rank.stream.on_connected(0.0).ask_snapshot
    assert rank.stream.trust is Trust.LOST
    rank.snapshot(ticket, 700)
    assert (rank.stream.trust, rank.reuse(PROMPT), rank.stream.last_seq) == (Trust.EXACT, 16, 700)
    rank.live(701, blocks(5, 5, parent=4))
    rank.live(702, BlockRemoved(block_hashes=(5,)))
    assert (rank.reuse(PROMPT), rank.stream.counters.snapshots_loaded) == (16, 1)


def test_A01_a_batch_after_a_snapshot_starts_no_second_recovery(rank):
    rank.mirror.apply(rank.target, blocks(1, 4))
    ticket = rank.live(500, blocks(4, 4, parent=3)).ask_snapshot
    for seq in range(501, 506):
        rank.live(seq)
    report = rank.snapshot(ticket, 505)
    assert (report.applied, report.ask_replay_from, rank.stream.last_seq) == ((), None, 505)
    report = rank.live(506)
    assert (report.ask_replay_from, report.ask_snapshot, rank.stream.trust) == (None, None, Trust.EXACT)
    # Covered batches counted no second copy.
    rank.live(507, BlockRemoved(block_hashes=(4,)))
    assert rank.reuse(PROMPT) == 12


def test_a_gap_that_no_replay_fills_ends_in_a_snapshot(rank):
    rank.live(0, blocks(1, 2))
    assert rank.live(50).ask_replay_from == 1
    ticket = rank.replay(45).ask_snapshot
    assert rank.stream.trust is Trust.PARTIAL
    rank.mirror.apply(rank.target, blocks(1, 3))
    rank.snapshot(ticket, 50)
    assert (rank.stream.trust, rank.reuse(PROMPT)) == (Trust.EXACT, 12)


def test_a_rank_has_no_credit_while_a_snapshot_comes_in(rank):
    rank.mirror.apply(rank.target, blocks(1, 4))
    ticket = rank.stream.on_connected(0.0).ask_snapshot
    rank.stream.on_snapshot_started(rank.header(9), ticket, 1.0)
    rank.stream.on_snapshot_records(tuple(rank.mirror.dump(rank.target))[:2], ticket)
    assert (rank.stream.trust, rank.stream.credit_ratio(1.0)) == (Trust.LOST, 0.0)
    rank.stream.on_snapshot_failed(ticket, 2.0)
    assert (rank.index.block_count(rank.target), rank.stream.counters.snapshots_failed) == (0, 1)


def test_a_restart_in_the_middle_of_a_snapshot_ends_it(rank):
    rank.mirror.apply(rank.target, blocks(1, 4))
    ticket = rank.stream.on_connected(0.0).ask_snapshot
    rank.stream.on_snapshot_started(rank.header(9), ticket, 1.0)
    report = rank.live(0, blocks(1, 1), life="b")
    assert report.reset_reason == "new incarnation"
    rank.stream.on_snapshot_records(tuple(rank.mirror.dump(rank.target)), ticket)
    rank.stream.on_snapshot_ended(ticket, 2.0)
    assert rank.reuse(PROMPT) == 4


def test_A03_a_new_incarnation_resets_although_its_numbers_go_on(rank):
    rank.live(0, blocks(1, 4))
    report = rank.live(1, life="b")
    assert (report.reset_reason, rank.reuse(PROMPT)) == ("new incarnation", 0)
    assert report.ask_snapshot is not None
    assert rank.live(2, blocks(5, 5), life="a").reset_reason is None
    assert rank.stream.counters.skipped == {"retired incarnation": 1}


def test_a_snapshot_of_a_new_life_drops_what_was_held_of_the_old_one(rank):
    rank.live(0)
    rank.live(5)
    ticket = rank.replay(4).ask_snapshot
    rank.mirror.apply(rank.target, blocks(1, 2))
    report = rank.snapshot(ticket, 2, life="b")
    assert (report.applied, rank.stream.last_seq, rank.reuse(PROMPT)) == ((), 2, 8)
    rank.live(3, blocks(3, 3, parent=2), life="b")
    assert (rank.stream.trust, rank.reuse(PROMPT)) == (Trust.EXACT, 12)


def test_a_snapshot_older_than_what_was_applied_is_not_taken(rank):
    for seq in range(4):
        rank.live(seq, blocks(seq + 1, seq + 1, parent=seq or None))
    rank.live(9)
    ticket = rank.replay(8).ask_snapshot
    rank.snapshot(ticket, 2)
    assert (rank.stream.counters.snapshots_failed, rank.stream.counters.snapshots_loaded) == (1, 0)
    assert rank.stream.trust is Trust.PARTIAL


def test_a_rank_is_believed_no_more_than_its_mirror_believes_itself(rank):
    rank.live(0, blocks(1, 4))
    rank.live(1, trust="partial")
    assert rank.stream.trust is Trust.PARTIAL
    rank.live(2, trust="lost")
    assert (rank.stream.trust, rank.stream.credit_ratio(5.0)) == (Trust.LOST, 0.0)
    rank.live(3, trust="exact")
    assert rank.stream.trust is Trust.EXACT
    rank.live(4, trust="gibberish")
    assert rank.stream.trust is Trust.LOST


def test_what_its_mirror_lost_is_doubted_here_too(rank):
    rank.live(0, blocks(1, 4))
    assert rank.live(1, trust="partial", losses=1).doubted
    assert rank.reuse(PROMPT) == 0
    rank.live(2, blocks(4, 4, parent=3), trust="partial", losses=1)
    assert (rank.reuse(PROMPT), rank.stream.trust) == (16, Trust.PARTIAL)
    rank.live(3, AllBlocksCleared(), losses=1)
    assert rank.stream.trust is Trust.EXACT


def test_doubted_blocks_come_through_a_snapshot_as_doubted(rank):
    rank.mirror.apply(rank.target, blocks(1, 4))
    rank.mirror.doubt(rank.target)
    ticket = rank.stream.on_connected(0.0).ask_snapshot
    rank.snapshot(ticket, 9, trust="partial", losses=1)
    assert (rank.reuse(PROMPT), rank.stream.trust) == (0, Trust.PARTIAL)
    rank.live(10, blocks(5, 5, parent=4), trust="partial", losses=1)
    assert rank.reuse(PROMPT) == 20


def test_A05_blocks_held_back_for_a_snapshot_link_to_it(rank):
    rank.mirror.apply(rank.target, blocks(1, 2))
    ticket = rank.live(8, blocks(3, 3, parent=2)).ask_snapshot
    rank.live(9, blocks(4, 4, parent=3))
    rank.snapshot(ticket, 7)
    assert (rank.reuse(PROMPT), rank.stream.counters.orphans) == (16, 0)


def test_blocks_that_were_due_and_did_not_come_make_the_rank_stale_and_credit_decays(rank):
    rank.live(0, blocks(1, 4))
    rank.stream.on_due_blocks(2, 10.0)
    rank.stream.on_tick(30.0)
    assert rank.stream.trust is Trust.EXACT
    rank.stream.on_due_blocks(1, 31.0)
    rank.stream.on_tick(32.0)
    assert (rank.stream.trust, rank.stream.counters.overdue) == (Trust.STALE, 1)
    ratios = [rank.stream.credit_ratio(now_s) for now_s in (20.0, 50.0, 80.0, 1_000.0)]
    assert ratios[:3] == [1.0, 0.5, 0.25]
    assert ratios[3] < 0.001
    rank.live(1, blocks(5, 5, parent=4))
    assert (rank.stream.trust, rank.stream.credit_ratio(2_000.0)) == (Trust.EXACT, 1.0)


def test_blocks_that_came_in_time_are_due_no_more(rank):
    rank.live(0)
    rank.stream.on_due_blocks(5, 10.0)
    rank.live(1, blocks(1, 2))
    rank.stream.on_tick(1_000.0)
    assert rank.stream.trust is Trust.EXACT


def test_a_removal_is_no_sign_of_blocks_that_are_due(rank):
    rank.live(0, blocks(1, 4))
    rank.stream.on_due_blocks(5, 10.0)
    rank.live(1, BlockRemoved(block_hashes=(4,)))
    rank.stream.on_tick(20.0)
    assert rank.stream.trust is Trust.STALE


def test_a_life_that_a_late_batch_had_ended_begins_again_with_its_snapshot(rank):
    rank.mirror.apply(rank.target, blocks(1, 4))
    ticket = rank.stream.on_connected(0.0).ask_snapshot
    rank.stream.on_snapshot_started(rank.header(9), ticket, 1.0)
    rank.live(0, blocks(5, 5), life="before")
    ticket = rank.stream.on_connected(2.0).ask_snapshot
    rank.stream.on_snapshot_started(rank.header(9), ticket, 3.0)
    rank.stream.on_snapshot_records(tuple(rank.mirror.dump(rank.target)), ticket)
    rank.stream.on_snapshot_ended(ticket, 4.0)
    assert (rank.stream.trust, rank.reuse(PROMPT)) == (Trust.EXACT, 16)
    rank.live(10, blocks(6, 6))
    assert rank.stream.last_seq == 10
