"""One rank between its sockets and the index, without sockets: time limits and the catch-up."""

import pytest

from prefix_index import NaivePrefixIndex
from prefix_index.stream import LATE_S
from prefix_index.trust import Trust
from router.events.link import RankSource
from router.events.rank import FedRank, Wish
from router.metrics import RouterMetrics
from wire.dialects import sglang
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch
from wire.frames import encode_live, encode_replay, encode_replay_end
from wire.ids import Target, WorkerId

PAYLOAD = sglang.encode_batch(EventBatch(ts_s=1.0, events=(AllBlocksCleared(),), dp_rank=0), sglang.Generation.MAP)
LIMIT_S = 5.0


def fed_rank() -> FedRank:
    source = RankSource(
        target=Target(WorkerId("w"), 0), model="m", endpoint="tcp://h:1", replay_endpoint="tcp://h:2", topic=""
    )
    rank = FedRank(source, NaivePrefixIndex(), replay_limit_s=LIMIT_S, retry_pause_s=30.0)
    rank.is_waiting_for_sockets = False
    return rank


def live(seq):
    return encode_live("", seq, PAYLOAD)


def replayed(seq):
    return encode_replay(seq, PAYLOAD)


def test_a_replay_that_says_the_same_for_ever_is_overdue_in_time():
    rank = fed_rank()
    rank.on_live(live(0), 0.0)
    assert rank.on_live(live(2), 0.0) == Wish(replay_from=1)
    for second in range(10):
        rank.on_replay(replayed(0), float(second))
        rank.on_replay([b"", b"junk", b""], float(second))
    assert rank.deadline_s == LIMIT_S


def test_a_replay_that_goes_on_gets_its_time_anew():
    rank = fed_rank()
    rank.on_live(live(0), 0.0)
    rank.on_live(live(5), 0.0)
    rank.on_replay(replayed(1), 3.0)
    assert rank.deadline_s == 3.0 + LIMIT_S


def test_a_catch_up_with_an_absurd_number_does_not_silence_the_live_stream():
    rank = fed_rank()
    assert rank.on_connected(0.0) == Wish(replay_from=0)
    assert rank.on_replay(replayed(2**62), 0.0) == Wish(replay_from=0)
    rank.on_live(live(0), 0.0)
    rank.on_live(live(1), 0.0)
    rank.on_replay(encode_replay_end(), 0.0)
    assert (rank.trust, rank.to_view(0.0).last_seq) == (Trust.EXACT, 1)


def test_live_batches_that_the_catch_up_brought_change_nothing():
    rank = fed_rank()
    rank.on_connected(0.0)
    for seq in range(3):
        rank.on_replay(replayed(seq), 0.0)
    for seq in range(4):
        rank.on_live(live(seq), 0.0)
    rank.on_replay(encode_replay_end(), 0.0)
    assert (rank.counters.batches, rank.counters.resets) == (4, 0)


def test_a_rank_tells_how_long_ago_it_took_in_a_batch():
    rank = fed_rank()
    assert rank.to_view(3.0).last_batch_age_s is None
    rank.on_live(live(0), 4.0)
    assert rank.to_view(6.5).last_batch_age_s == 2.5


def test_a_rank_whose_messages_wait_too_long_is_stale_and_credited_less_and_less():
    rank = fed_rank()
    rank.on_live(live(0), 0.0)
    rank.on_lag(1.0, is_behind=True)
    rank.on_lag(1.0 + LATE_S / 2, is_behind=True)
    assert (rank.trust, rank.to_view(1.3).lag_s) == (Trust.EXACT, pytest.approx(0.3))
    rank.on_lag(1.0 + LATE_S, is_behind=True)
    assert rank.trust is Trust.STALE
    assert rank.credit_ratio(1.0 + LATE_S) == 1.0
    assert rank.credit_ratio(1.0 + LATE_S + 30.0) == pytest.approx(0.5)
    rank.on_lag(40.0, is_behind=False)
    assert (rank.trust, rank.credit_ratio(40.0), rank.to_view(40.0).lag_s) == (Trust.EXACT, 1.0, 0.0)


def test_A05_blocks_whose_parent_nobody_told_of_are_counted_in_a_metric():
    rank = fed_rank()
    told = BlockStored(block_hashes=(7, 8), parent_block_hash=6, token_ids=(1, 2, 3, 4), block_tokens=2)
    events = (told, BlockRemoved(block_hashes=(99,)))
    payload = sglang.encode_batch(EventBatch(ts_s=1.0, events=events, dp_rank=0), sglang.Generation.MAP)
    rank.on_live(encode_live("", 0, payload), 0.0)
    metrics = RouterMetrics()
    metrics.watch_streams(lambda: [rank.to_view(0.0)])
    labels = {"worker": "w", "dp_rank": "0"}
    assert metrics.registry.get_sample_value("dovecote_router_orphan_blocks_total", labels) == 2
    assert metrics.registry.get_sample_value("dovecote_router_unknown_removals_total", labels) == 1
