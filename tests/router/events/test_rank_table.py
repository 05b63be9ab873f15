"""What requests ask of all ranks at once: hybrid ways to serve a prompt, corrections, namespaces."""

from itertools import count

from prefix_index import BlockChain, NaivePrefixIndex, block_hashes
from prefix_index.layout import GroupLayout, Layout
from prefix_index.trust import Trust
from router.events.rank import LEAST_RUN_BYTES
from router.events.table import MAX_OPTION_RANKS, OPTIONS_S, FedRanks, FeedLimits, WalkCost, cut_messages
from router.fleet.source import RankSource
from router.fleet.tiers import ReuseOption
from router.metrics import RouterMetrics
from wire.block_hash import namespace_seed
from wire.dialects import sglang, vllm
from wire.events import BlockRemoved, BlockStored, EventBatch, Medium
from wire.frames import encode_live
from wire.ids import Target, WorkerId

MODEL, SIZE = "m", 4
IDS = list(range(100, 133))
WINDOWED = Layout(
    (
        GroupLayout(kind="full_attention", bytes_per_token=10),
        GroupLayout(kind="sliding_window", window_tokens=8, bytes_per_token=2),
    )
)


def chain(size=SIZE, *, bigram=False, others=()):
    hashes = tuple(block_hashes(IDS, size, namespace_seed(MODEL, bigram=bigram)))
    return BlockChain(size, hashes, len(IDS) - bigram, others)


def stored(first, last, **fields):
    parent = None if first == 0 else first
    names = tuple(range(first + 1, last + 1))
    return BlockStored(
        block_hashes=names, parent_block_hash=parent, token_ids=tuple(IDS[SIZE * first : SIZE * last]),
        block_tokens=SIZE, **fields,
    )  # fmt: skip


class Table:
    def __init__(self, clock=lambda: 1.0, **more):
        self.ranks = FedRanks(NaivePrefixIndex(), FeedLimits(), clock=clock, **more)
        self.seqs = {}

    def follow(self, worker, **fields):
        target = Target(WorkerId(worker), 0)
        source = RankSource(target=target, model=MODEL, endpoint="tcp://h:1", **fields)
        assert self.ranks.put(source)
        self.ranks.on_opened(source)
        return target

    def publish(self, target, *events, encode=vllm.encode_batch, form="0.32"):
        seq = self.seqs[target] = self.seqs.get(target, -1) + 1
        payload = encode(EventBatch(ts_s=1.0, events=events), form)
        self.ranks.on_frames(target, encode_live("", seq, payload), is_replay=False)

    def options(self, target, *, plain=None):
        found = self.ranks.find_options(plain or chain(), None, {})
        return found.get(target, ())


def test_ranks_of_one_tier_and_group_are_not_asked_for_other_ways():
    table = Table()
    rank = table.follow("a")
    table.publish(rank, stored(0, 4))
    assert table.ranks.find_reuse((chain(),)) == {rank: 16}
    assert table.options(rank) == ()


def test_blocks_in_host_memory_are_a_way_with_its_tokens_and_bytes():
    table = Table()
    rank = table.follow("a", layout=Layout((GroupLayout(kind="full_attention", bytes_per_token=10),)))
    table.publish(rank, stored(0, 2), stored(0, 6, medium=Medium.HOST))
    assert table.options(rank) == (
        ReuseOption(reach="device", reuse_tokens=8),
        ReuseOption(reach="host", reuse_tokens=24, host_tokens=16, host_bytes=160),
    )


def test_ways_that_take_too_long_to_look_up_are_left_out_and_tried_again_later():
    walks = WalkCost()
    assert walks.count_within(OPTIONS_S, 1_000) == MAX_OPTION_RANKS
    for _ in range(20):
        walks.record(OPTIONS_S / 2, 1_000)
    assert walks.count_within(OPTIONS_S, 1_000) in (1, 2)
    assert walks.count_within(OPTIONS_S, 4_000) == 0
    assert next(tries for tries in range(9_999) if walks.count_within(OPTIONS_S, 4_000)) > 100


def test_a_machine_that_stood_still_tells_nothing_of_what_a_walk_costs():
    hours = count(0.0, 3_600.0)
    for more, is_asked_again in (({}, True), ({"timer": hours.__next__}, False)):
        table = Table(hours.__next__, **more)
        rank = table.follow("a")
        table.publish(rank, stored(0, 6, medium=Medium.HOST))
        assert table.options(rank)
        assert bool(table.options(rank)) == is_asked_again


def test_without_a_layout_the_bytes_of_a_way_are_not_known():
    table = Table()
    rank = table.follow("a")
    table.publish(rank, stored(0, 6, medium=Medium.HOST))
    (way,) = table.options(rank)
    assert (way.host_tokens, way.host_bytes) == (24, None)


def test_A19_ranks_of_both_namespaces_match_the_same_prompt():
    table = Table()
    plain, pairs = table.follow("plain"), table.follow("pairs", is_bigram=True)
    for rank in (plain, pairs):
        table.publish(rank, stored(0, 8), encode=sglang.encode_batch, form=sglang.Generation.MAP)
    assert table.ranks.find_reuse((chain(), chain(bigram=True))) == {plain: 32, pairs: 28}


def test_one_look_up_finds_ranks_of_several_block_sizes():
    table = Table()
    small, large = table.follow("small"), table.follow("large")
    table.publish(small, stored(0, 6))
    big = BlockStored(block_hashes=(7, 8), parent_block_hash=None, token_ids=tuple(IDS[:32]), block_tokens=16)
    table.publish(large, big)
    assert table.ranks.find_reuse((chain(others=(chain(16),)),)) == {small: 24, large: 32}


def test_an_answer_corrects_what_is_believed_of_a_window_that_events_do_not_tell_of():
    table = Table()
    rank = table.follow("a", layout=WINDOWED)
    table.publish(rank, stored(0, 6))
    assert table.ranks.has_beliefs(rank)
    assert table.ranks.find_reuse((chain(),)) == {rank: 24}
    cut = BlockChain(SIZE, chain().hashes[:6], 25)
    table.ranks.correct(rank, cut, 8)
    assert table.ranks.find_reuse((chain(),)) == {rank: 8}


def test_only_declared_layouts_are_corrected():
    table = Table()
    rank = table.follow("a")
    table.publish(rank, stored(0, 6))
    table.ranks.correct(rank, chain(), 0)
    assert table.ranks.find_reuse((chain(),)) == {rank: 24}


def test_what_a_window_group_lost_is_evidence():
    table = Table()
    rank = table.follow("a")
    full = {"group_idx": 0, "group_kind": "full_attention"}
    window = {"group_idx": 1, "group_kind": "sliding_window", "window_tokens": 8}
    table.publish(rank, stored(0, 6, **full), stored(0, 6, **window))
    position = table.ranks.find_position(rank)
    table.publish(rank, BlockRemoved(block_hashes=(6,), group_idx=1))
    evidence = table.ranks.find_evidence(rank, position, 2.0)
    assert evidence.lost == {chain().hashes[5]}
    assert (evidence.gained, evidence.removed) == (frozenset(), frozenset())
    assert [way.window_tokens for way in table.options(rank)]


def messages_of(count, first=0):
    payload = vllm.encode_batch(EventBatch(ts_s=1.0, events=(stored(0, 4),)), "0.32")
    return [encode_live("", first + number, payload) for number in range(count)]


def test_live_messages_of_one_hold_are_as_many_as_took_its_time_the_last_time():
    # Each look at the clock is a tenth of a second later: every hold seems to take far too long.
    ticks = count()
    ranks = FedRanks(NaivePrefixIndex(), FeedLimits(), clock=lambda: next(ticks) / 10)
    source = RankSource(target=Target(WorkerId("a"), 0), model=MODEL, endpoint="tcp://h:1")
    ranks.put(source)
    ranks.on_opened(source)
    held, waiting = [], messages_of(2_000)
    while waiting:
        taken, wish = ranks.on_live(source.target, waiting)
        assert wish is None
        held.append(taken)
        waiting = waiting[taken:]
    size_bytes = sum(map(len, messages_of(1)[0]))
    assert max(held) * size_bytes <= LEAST_RUN_BYTES
    assert ranks.find_trust(source.target) is Trust.EXACT


def test_a_message_larger_than_a_hold_is_taken_alone():
    messages = messages_of(3)
    assert cut_messages(messages, 1) == messages[:1]
    assert cut_messages(messages, 2 * sum(map(len, messages[0]))) == messages[:2]
    assert cut_messages(messages, 10**9) == messages


def test_messages_of_a_rank_that_waits_for_new_sockets_are_none():
    table = Table()
    rank = table.follow("a")
    table.ranks.lose(rank)
    assert table.ranks.on_live(rank, messages_of(3)) == (3, None)
    assert table.ranks.to_views()[0].batches == 0


def test_the_lag_of_a_rank_is_on_the_metrics_page():
    now_s = [5.0]
    ranks = FedRanks(NaivePrefixIndex(), FeedLimits(), clock=lambda: now_s[0])
    ranks.put(RankSource(target=Target(WorkerId("a"), 0), model=MODEL, endpoint="tcp://h:1"))
    ranks.on_lag(Target(WorkerId("a"), 0), is_behind=True)
    now_s[0] = 7.5
    metrics = RouterMetrics()
    metrics.watch_streams(ranks.to_views)
    assert 'dovecote_router_event_lag_seconds{dp_rank="0",worker="a"} 2.5' in metrics.to_text().decode()
