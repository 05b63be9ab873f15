"""One rank's stream from frames to index: public faults of event streams."""

import msgspec
import pytest
from rank_words import Rank, chain, stored

from prefix_index.trust import Trust
from wire import frames
from wire.events import AllBlocksCleared, BlockRemoved, Medium

PROMPT = list(range(100, 133))  # 8 blocks of 4 and one token


def blocks(first, last, parent=None, **fields):
    """Blocks first..last of PROMPT, named 1, 2, 3, ..."""
    return stored(range(first, last + 1), parent, PROMPT[4 * (first - 1) : 4 * last], **fields)


def test_trust_is_lost_until_the_first_batch_and_then_exact(rank):
    assert rank.stream.trust is Trust.LOST
    rank.live(0, blocks(1, 3))
    assert rank.stream.trust is Trust.EXACT
    assert rank.reuse(PROMPT) == 12
    assert rank.stream.last_batch_s == 1.0


def test_A02_a_late_subscriber_asks_from_zero_before_it_applies(rank):
    report = rank.live(37, blocks(2, 3, parent=1))
    assert report.ask_replay_from == 0
    assert rank.reuse(PROMPT) == 0
    for seq in range(37):
        rank.replay(seq, *([blocks(1, 1)] if seq == 4 else []))
    rank.replay(37, blocks(2, 3, parent=1))
    rank.replay_end()
    assert rank.reuse(PROMPT) == 12
    assert rank.stream.trust is Trust.EXACT
    assert rank.stream.last_seq == 37


def test_A02_without_replay_a_late_subscriber_is_partial(index):
    rank = Rank(index, replay=False)
    rank.live(37, blocks(1, 3))
    assert rank.stream.trust is Trust.PARTIAL
    assert rank.reuse(PROMPT) == 12


def test_a_clear_makes_a_partial_rank_exact_again(index):
    rank = Rank(index, replay=False)
    rank.live(37, blocks(1, 3))
    rank.live(38, AllBlocksCleared())
    assert rank.stream.trust is Trust.EXACT


def test_A03_a_restarted_publisher_loses_its_old_blocks_before_the_new_ones_come(index):
    rank, other = Rank(index, "w"), Rank(index, "x")
    other.live(0, blocks(1, 8))
    rank.live(0, blocks(1, 4))
    rank.live(1, blocks(1, 1))
    report = rank.live(0, blocks(1, 2))
    assert report.reset_reason == "sequence went backwards"
    assert rank.reuse(PROMPT) == 8
    assert other.reuse(PROMPT) == 32
    # A replay shows whether more was published before the restart was seen.
    assert (report.ask_replay_from, rank.stream.trust) == (1, Trust.PARTIAL)
    rank.replay_end()
    rank.live(1, BlockRemoved(block_hashes=(1,), group_idx=None))
    assert (rank.reuse(PROMPT), rank.stream.trust) == (0, Trust.EXACT)


def test_A03_replay_over_live_overlap_is_applied_exactly_once(rank):
    rank.live(0, blocks(1, 2))
    rank.live(2, blocks(3, 3, parent=2))
    for seq, event in ((1, blocks(4, 4, parent=3)), (2, blocks(3, 3, parent=2)), (3, blocks(5, 5, parent=4))):
        rank.replay(seq, event)
    rank.replay_end()
    rank.live(3, blocks(5, 5, parent=4))
    rank.live(4, BlockRemoved(block_hashes=(5,)))
    assert rank.reuse(PROMPT) == 16


def test_A03_a_replay_that_begins_before_what_was_asked_for_is_applied_exactly_once(rank):
    rank.live(0, blocks(1, 2))
    rank.live(1, blocks(3, 3, parent=2))
    assert rank.live(3, blocks(4, 4, parent=3)).ask_replay_from == 2
    told = (blocks(1, 2), blocks(3, 3, parent=2), BlockRemoved(block_hashes=(9,)), blocks(4, 4, parent=3))
    for seq, event in enumerate(told):
        rank.replay(seq, event)
    rank.replay_end()
    assert (rank.stream.last_seq, rank.reuse(PROMPT)) == (3, 16)
    rank.live(4, BlockRemoved(block_hashes=(3,)))
    assert rank.reuse(PROMPT) == 8


def test_A04_a_replay_without_topic_frames_belongs_to_the_connection(index):
    rank = Rank(index, version="0.16")
    rank.live(1, blocks(2, 2, parent=1))
    rank.replay(0, blocks(1, 1))
    rank.replay(1, blocks(2, 2, parent=1))
    rank.replay_end()
    assert rank.reuse(PROMPT) == 8


def test_A04_malformed_frames_are_counted_and_not_fatal(rank):
    rank.live(0, blocks(1, 1))
    rank.stream.on_live([b"kv", b"short", b""], 1.0)
    rank.stream.on_replay([b""], 1.0)
    assert rank.stream.counters.skipped == {"frame sequence number": 1, "frame frame count": 1}
    rank.live(1, blocks(2, 2, parent=1))
    assert rank.reuse(PROMPT) == 8


def test_A05_children_of_unknown_parents_match_once_the_parents_are_replayed(index):
    rank = Rank(index)
    rank.live(2, blocks(3, 3, parent=2), blocks(4, 4, parent=3))
    rank.stream.on_replay_failed(1.0)
    assert rank.reuse(PROMPT) == 0
    assert rank.stream.counters.orphans == 2
    assert rank.stream.trust is Trust.PARTIAL
    report = rank.live(3, blocks(1, 2))
    assert rank.reuse(PROMPT) == 16
    assert len(report.changes[0].stored) == 4


def test_A12_a_clear_takes_all_credit(rank):
    rank.live(0, blocks(1, 8))
    report = rank.live(1, AllBlocksCleared())
    assert report.changes[0].cleared
    assert rank.reuse(PROMPT) == 0


def test_A12_a_reset_seen_without_an_event_takes_all_credit_too(rank):
    rank.live(0, blocks(1, 8))
    report = rank.stream.on_lost(5.0)
    assert report.reset_reason == "worker lost"
    assert (rank.stream.trust, rank.reuse(PROMPT)) == (Trust.LOST, 0)


def test_a_rank_that_comes_back_after_it_was_lost_starts_anew(rank):
    rank.live(0, blocks(1, 8))
    rank.live(1)
    rank.stream.on_lost(5.0)
    assert rank.live(2, blocks(3, 3, parent=2)).ask_replay_from == 0


def test_A26_streams_of_ranks_behind_one_worker_are_apart(index):
    ranks = [Rank(index, dp_rank=number) for number in range(4)]
    ranks[3].live(0, blocks(1, 2))
    assert index.find_reuse(chain(PROMPT)) == {ranks[3].target: 8}


def test_after_an_unrepaired_gap_only_what_later_events_prove_counts(index):
    rank = Rank(index, replay=False)
    rank.live(0, blocks(1, 4), stored([21, 22], None, range(8)))
    report = rank.live(2)
    assert report.doubted
    assert (rank.stream.trust, rank.stream.counters.gaps, rank.stream.counters.losses) == (Trust.PARTIAL, 1, 1)
    assert (rank.reuse(PROMPT), rank.reuse(range(9))) == (0, 0)
    rank.live(3, blocks(4, 4, parent=3))
    assert (rank.reuse(PROMPT), rank.reuse(range(9))) == (16, 0)


def test_a_rank_is_not_exact_while_it_catches_up(rank):
    rank.live(0, blocks(1, 1))
    rank.live(2)
    assert (rank.stream.trust, rank.stream.is_replaying) == (Trust.PARTIAL, True)
    rank.replay(1)
    rank.replay(2)
    rank.replay_end()
    assert rank.stream.trust is Trust.EXACT


def test_A10_a_batch_that_makes_no_sense_is_asked_for_again(rank):
    rank.live(0, blocks(1, 1))
    report = rank.stream.on_live(frames.encode_live("kv", 1, b"\xc1garbage"), 1.0)
    assert report.ask_replay_from == 1
    rank.live(2, blocks(3, 3, parent=2))
    rank.replay(1, blocks(2, 2, parent=1))
    rank.replay_end()
    assert (rank.stream.trust, rank.stream.counters.skipped, rank.reuse(PROMPT)) == (Trust.EXACT, {}, 12)


def test_A10_a_batch_that_makes_no_sense_twice_costs_the_credit_until_a_conversation_goes_on(rank):
    rank.live(0, blocks(1, 2))
    rank.stream.on_live(frames.encode_live("kv", 1, b"\xc1garbage"), 1.0)
    assert rank.stream.on_replay(frames.encode_replay(1, b"\xc1garbage"), 1.0).doubted
    rank.replay_end()
    assert rank.stream.counters.skipped == {"malformed batch": 1}
    assert (rank.stream.trust, rank.reuse(PROMPT)) == (Trust.PARTIAL, 0)
    rank.live(2, blocks(3, 3, parent=2))
    assert (rank.stream.trust, rank.reuse(PROMPT)) == (Trust.PARTIAL, 12)
    rank.live(3, AllBlocksCleared())
    assert rank.stream.trust is Trust.EXACT


def test_A10_an_event_of_an_unknown_type_is_counted_and_trust_stays(rank):
    payload = msgspec.msgpack.encode([1.0, [["AllBlocksCleared"], ["BlockMoved", 1], ["AllBlocksCleared"]], 0])
    rank.stream.on_live(frames.encode_live("kv", 0, payload), 1.0)
    assert rank.stream.counters.skipped == {"unknown_type": 1}
    assert (rank.stream.counters.events, rank.stream.trust) == (2, Trust.EXACT)


def test_a_malformed_event_is_asked_for_again_and_makes_the_rank_stale_where_nobody_answers(rank):
    rank.live(0, blocks(1, 8))
    payload = msgspec.msgpack.encode([1.0, [["BlockRemoved"]], 0])
    assert rank.stream.on_live(frames.encode_live("kv", 1, payload), 1.0).ask_replay_from == 1
    rank.stream.on_replay_failed(1.0)
    assert (rank.stream.counters.skipped, rank.stream.trust) == ({"malformed": 1}, Trust.STALE)
    assert rank.reuse(PROMPT) == 0


def test_a_removal_of_a_doubted_block_ends_what_can_be_proved_of_it(index):
    rank = Rank(index, replay=False)
    rank.live(0, blocks(1, 4))
    rank.live(2, BlockRemoved(block_hashes=(4, 3)))
    assert rank.stream.counters.unknown_removals == 0
    rank.live(3, blocks(4, 4, parent=3))
    assert rank.reuse(PROMPT) == 0
    rank.live(4, blocks(3, 3, parent=2))
    assert rank.reuse(PROMPT) == 16


def test_a_host_copy_stored_below_a_doubted_block_proves_nothing(index):
    rank = Rank(index, replay=False)
    rank.live(0, blocks(1, 4))
    rank.live(2, blocks(5, 5, parent=4, medium=Medium.HOST))
    assert rank.reuse(PROMPT) == 0


def test_parked_blocks_are_bounded_in_tokens_too(index):
    rank = Rank(index)
    size = 1 << 20
    for number in range(8):
        rank.live(number, stored([100 + number], 99, [number] * size))
    assert index.size().parked_blocks == 4


def test_a_replay_that_does_not_reach_back_is_partial(rank):
    rank.live(9, blocks(2, 2, parent=1))
    rank.replay(5, blocks(1, 1))
    for seq in range(6, 9):
        rank.replay(seq)
    rank.replay(9, blocks(2, 2, parent=1))
    rank.replay_end()
    assert rank.stream.trust is Trust.PARTIAL
    assert rank.reuse(PROMPT) == 8


def test_counters_tell_kinds_and_unknown_removals(rank):
    rank.live(0, blocks(1, 2), BlockRemoved(block_hashes=(9, 2)), AllBlocksCleared())
    assert rank.stream.counters.kinds == {"BlockStored": 1, "BlockRemoved": 1, "AllBlocksCleared": 1}
    assert (rank.stream.counters.events, rank.stream.counters.unknown_removals) == (3, 1)


@pytest.mark.parametrize("medium", [Medium.HOST, Medium.DISK, Medium.EXTERNAL, "TAPE"])
def test_copies_in_other_tiers_give_no_credit_yet(rank, medium):
    rank.live(0, blocks(1, 4, medium=medium))
    assert rank.reuse(PROMPT) == 0


def test_A26_batches_of_another_rank_at_the_same_address_are_counted_and_change_nothing(index):
    rank, other = Rank(index, dp_rank=1), Rank(index, dp_rank=0)
    rank.live(0, blocks(1, 2))
    for seq in range(3):
        rank.stream.on_live(frames.encode_live("kv", seq, other.payload(AllBlocksCleared())), 1.0)
    rank.live(1, blocks(3, 3, parent=2))
    assert (rank.reuse(PROMPT), rank.stream.trust) == (12, Trust.EXACT)
    assert rank.stream.counters.skipped == {"other rank": 3}


def test_an_engine_that_numbers_its_only_rank_within_a_larger_group_is_believed(index):
    rank, global_name = Rank(index, dp_rank=0), Rank(index, dp_rank=5)
    for seq in range(2):
        rank.stream.on_live(frames.encode_live("kv", seq, global_name.payload(blocks(1, 2))), 1.0)
    assert (rank.reuse(PROMPT), rank.stream.counters.skipped) == (8, {})


def test_more_groups_than_engines_have_are_not_believed(rank):
    rank.live(0, *(blocks(1, 1, group_idx=number, group_kind="full_attention") for number in range(200)))
    assert not rank.index.is_modelled(rank.target)


def test_copies_in_endless_tiers_are_not_kept(rank):
    rank.live(0, *(blocks(1, 1, medium=f"tier {number}") for number in range(100)))
    assert rank.index.size().blocks == 0


def test_an_engine_that_published_nothing_yet_has_an_empty_cache(rank):
    assert rank.stream.on_connected(1.0).ask_replay_from == 0
    rank.replay_end()
    assert (rank.stream.trust, rank.stream.last_seq) == (Trust.EXACT, None)
    rank.live(0, blocks(1, 2))
    assert (rank.stream.trust, rank.reuse(PROMPT)) == (Trust.EXACT, 8)
    rank.stream.on_lost(9.0)
    assert rank.stream.trust is Trust.LOST


def test_a_buffer_that_rolled_over_proves_no_empty_cache(rank):
    rank.stream.on_connected(1.0)
    for _ in range(2):
        rank.replay(7, blocks(1, 1))
        rank.replay_end()
    assert (rank.stream.trust, rank.reuse(PROMPT)) == (Trust.PARTIAL, 4)


def test_an_end_after_something_that_is_no_batch_proves_no_empty_cache(rank):
    rank.stream.on_connected(1.0)
    rank.stream.on_replay([b"", b"junk", b""], 1.0)
    rank.replay_end()
    assert rank.stream.trust is Trust.LOST


def test_a_batch_that_was_lost_behind_an_empty_replay_is_missed(rank):
    rank.stream.on_connected(1.0)
    rank.replay_end()
    assert rank.live(1, blocks(2, 2, parent=1)).ask_replay_from == 0
    assert rank.stream.trust is Trust.PARTIAL
    rank.replay_end()
    rank.replay_end()
    assert (rank.stream.trust, rank.stream.counters.losses) == (Trust.PARTIAL, 0)


def test_an_engine_lost_before_its_first_batch_is_no_longer_known_to_be_empty(rank):
    rank.stream.on_connected(1.0)
    rank.replay_end()
    assert not rank.stream.is_fresh
    rank.stream.on_lost(2.0)
    assert (rank.stream.trust, rank.stream.is_fresh) == (Trust.LOST, True)
