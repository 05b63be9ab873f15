"""The event thread over real sockets: order, gaps, replays, restarts, garbage."""

import time
from contextlib import contextmanager

import pytest
import zmq
from publisher_fake import BLOCK_TOKENS, Publisher, removed, stored, tokens

from prefix_index import BlockChain, NaivePrefixIndex, block_hashes
from prefix_index.trust import Trust
from router.events import EventFeed, FeedLimits, RankSource
from router.events.link import read_messages
from router.metrics import RouterMetrics
from tests.ports import take_port
from tests.waiting import PATIENCE_S, wait_until
from wire.block_hash import namespace_seed
from wire.ids import Target, WorkerId

MODEL = "toy"
TARGET = Target(WorkerId("w"), 0)


def chain(blocks):
    ids = tokens(blocks)
    hashes = tuple(block_hashes(ids, BLOCK_TOKENS, namespace_seed(MODEL)))
    return BlockChain(block_tokens=BLOCK_TOKENS, hashes=hashes, token_count=len(ids))


def source(publisher, target=TARGET, **more):
    fields = {"endpoint": publisher.endpoint, "replay_endpoint": publisher.replay_endpoint} | more
    return RankSource(target=target, model=MODEL, **fields)


class Fleet:
    """A feed, its index and the publishers it follows."""

    def __init__(self, context, feed, index):
        self.context, self.feed, self.index = context, feed, index
        self.publishers = []

    def publisher(self, **arguments):
        self.publishers.append(Publisher(self.context, **arguments))
        return self.publishers[-1]

    def follow(self, publisher, target=TARGET, **more):
        """From then on all that the publisher sends arrives."""
        self.feed.connect(source(publisher, target, **more))
        wait_until(publisher.has_subscriber)

    def restart(self, publisher, **arguments):
        """Close it and open a new process at the same addresses."""
        publisher.close()
        self.publishers.remove(publisher)
        ports = (int(address.rpartition(":")[2]) for address in (publisher.endpoint, publisher.replay_endpoint))
        port, replay_port = ports
        return self.publisher(port=port, replay_port=replay_port, **arguments)

    def view(self, target=TARGET):
        return next(view for view in self.feed.to_views() if view.target == target)

    def reuse(self, blocks=8, target=TARGET):
        return self.feed.find_reuse((chain(blocks),)).get(target, 0)

    def wait_for_reuse(self, wanted_tokens, blocks=8):
        wait_until(lambda: self.reuse(blocks) == wanted_tokens)

    def wait_until_connected(self, publisher):
        """A catch-up is asked for as soon as the event socket is connected, and its wish for events is under way."""
        wait_until(lambda: publisher.asked and publisher.has_subscriber())


@contextmanager
def running_fleet(**arguments):
    context = zmq.Context()
    index = NaivePrefixIndex()
    feed = EventFeed(index, **arguments)
    feed.start()
    fleet = Fleet(context, feed, index)
    try:
        yield fleet
        index.check_invariants()
    finally:
        feed.stop()
        for publisher in fleet.publishers:
            publisher.close()
        context.destroy(linger=0)


@pytest.fixture
def fleet():
    with running_fleet() as fleet:
        yield fleet


def test_live_batches_become_reuse(fleet):
    engine = fleet.publisher()
    fleet.follow(engine)
    fleet.wait_until_connected(engine)
    engine.start()
    engine.publish(stored(0, 4))
    fleet.wait_for_reuse(16)
    engine.publish(removed(3))
    fleet.wait_for_reuse(12)
    assert fleet.view().trust is Trust.EXACT
    assert fleet.view().events == {"AllBlocksCleared": 1, "BlockStored": 1, "BlockRemoved": 1}


def test_what_was_published_before_the_router_came_is_read_at_once(fleet):
    engine = fleet.publisher()
    engine.start()
    engine.publish(stored(0, 3))
    fleet.follow(engine)
    fleet.wait_for_reuse(12)
    wait_until(lambda: fleet.view().trust is Trust.EXACT)
    engine.publish(stored(3))
    fleet.wait_for_reuse(16)
    assert fleet.view().resets == 0


def test_A02_a_first_number_above_zero_without_its_start_is_a_lower_bound(fleet):
    engine = fleet.publisher(keeps=2)
    engine.start()
    engine.publish(stored(0, 2))
    engine.publish(stored(0, 1, base=900))
    engine.publish(stored(1, 1, base=900))
    fleet.follow(engine)
    fleet.wait_for_reuse(8)
    wait_until(lambda: fleet.view().trust is Trust.PARTIAL)


def test_a_gap_is_filled_by_a_replay_exactly_once(fleet):
    engine = fleet.publisher()
    fleet.follow(engine)
    fleet.wait_until_connected(engine)
    engine.start()
    engine.publish(stored(0, 2))
    fleet.wait_for_reuse(8)
    engine.publish(stored(2), lost=True)
    engine.publish(stored(3), lost=True)
    engine.publish(stored(4))
    fleet.wait_for_reuse(20)
    engine.publish(stored(5))
    fleet.wait_for_reuse(24)
    view = fleet.view()
    assert (view.gaps, view.replays, view.trust) == (1, 1, Trust.EXACT)
    assert view.events["BlockStored"] == 5


def test_a_replay_that_nobody_answers_ends_in_time_and_trust_falls():
    with running_fleet(limits=FeedLimits(replay_limit_s=0.3)) as fleet:
        engine = fleet.publisher(answers=False)
        fleet.follow(engine)
        fleet.wait_until_connected(engine)
        engine.start()
        engine.publish(stored(0, 2))
        fleet.wait_for_reuse(8)
        engine.publish(stored(2), lost=True)
        engine.publish(stored(0, 1, base=500))
        wait_until(lambda: fleet.view().trust is Trust.STALE)
        assert fleet.reuse() == 0


def test_a_stream_that_lost_events_is_read_again_from_the_start_when_it_can_be():
    with running_fleet(limits=FeedLimits(replay_limit_s=0.2, retry_pause_s=0.1)) as fleet:
        engine = fleet.publisher(answers=False)
        fleet.follow(engine)
        fleet.wait_until_connected(engine)
        engine.start()
        engine.publish(stored(0, 2))
        engine.publish(stored(2), lost=True)
        engine.publish(stored(3))
        wait_until(lambda: fleet.view().trust is Trust.STALE)
        engine.answers = True
        fleet.wait_for_reuse(16)
        assert fleet.view().trust is Trust.EXACT


def test_a_restarted_engine_starts_without_credit_and_is_believed_again_by_its_own_events(fleet):
    engine = fleet.publisher()
    fleet.follow(engine)
    fleet.wait_until_connected(engine)
    engine.start()
    engine.publish(stored(0, 4))
    fleet.wait_for_reuse(16)
    engine = fleet.restart(engine)
    fleet.wait_for_reuse(0)
    assert fleet.view().blocks == 0
    fleet.wait_until_connected(engine)
    engine.start()
    engine.publish(stored(0, 2, base=700))
    fleet.wait_for_reuse(8)
    assert fleet.view().trust is Trust.EXACT


def test_a_lost_engine_loses_credit_at_once_and_its_late_events_bring_nothing_back(fleet):
    engine = fleet.publisher()
    fleet.follow(engine)
    fleet.wait_until_connected(engine)
    engine.start()
    engine.publish(stored(0, 4))
    fleet.wait_for_reuse(16)
    before = fleet.feed.find_position(TARGET)
    fleet.feed.lose(TARGET)
    assert fleet.reuse() == 0
    assert fleet.feed.find_trust(TARGET) is Trust.LOST
    assert fleet.feed.find_evidence(TARGET, before, time.monotonic()).cleared
    # It was alive after all: what its buffer tells is read anew.
    fleet.wait_for_reuse(16)


def test_a_rank_that_is_not_followed_any_more_holds_nothing(fleet):
    engine = fleet.publisher()
    fleet.follow(engine)
    engine.start()
    engine.publish(stored(0, 4))
    fleet.wait_for_reuse(16)
    fleet.feed.disconnect(TARGET)
    engine.publish(stored(4))
    assert fleet.reuse() == 0
    assert fleet.feed.to_views() == []
    assert fleet.index.block_count(TARGET) == 0


def test_corrupt_frames_and_payloads_are_counted_and_the_stream_goes_on(fleet):
    engine = fleet.publisher()
    fleet.follow(engine)
    fleet.wait_until_connected(engine)
    engine.start()
    engine.pub.send_multipart([b"", b"short", b"x"])
    engine.pub.send_multipart([b"only one frame"])
    engine.publish_bytes(b"\xc1 not msgpack")
    engine.publish(stored(0, 2))
    wait_until(lambda: fleet.view().events.get("BlockStored") == 1)
    skipped = fleet.view().skipped
    assert sum(count for reason, count in skipped.items() if reason.startswith("frame")) == 2
    assert skipped["malformed batch"] == 1
    # A batch that cannot be read may have held anything.
    assert fleet.view().losses == 1
    metrics = RouterMetrics()
    metrics.watch_streams(fleet.feed.to_views)
    page = metrics.to_text().decode()
    assert 'dovecote_router_event_losses_total{dp_rank="0",worker="w"} 1.0' in page
    assert fleet.view().trust is not Trust.EXACT
    assert fleet.feed.find_evidence(TARGET, 1, time.monotonic()).cleared
    engine.start()
    engine.publish(stored(0, 2))
    fleet.wait_for_reuse(8)
    wait_until(lambda: fleet.view().trust is Trust.EXACT)


def test_A22_every_rank_has_its_own_stream(fleet):
    other = Target(WorkerId("w"), 1)
    engines = [fleet.publisher(), fleet.publisher()]
    for engine, target in zip(engines, (TARGET, other), strict=True):
        fleet.follow(engine, target)
        engine.start()
    engines[0].publish(stored(0, 1))
    engines[1].publish(stored(0, 3))
    wait_until(lambda: fleet.feed.find_reuse((chain(8),)) == {TARGET: 4, other: 12})


def test_an_engine_that_connects_finds_the_router_bound(fleet):
    endpoint = f"tcp://127.0.0.1:{take_port()}"
    fleet.feed.connect(RankSource(target=TARGET, model=MODEL, endpoint=endpoint, binds=True))
    engine = fleet.publisher()
    engine.pub.connect(endpoint)

    def has_arrived():
        engine.start()
        return fleet.view().batches > 0

    wait_until(has_arrived)
    engine.publish(stored(0, 1))
    fleet.wait_for_reuse(4)


def test_a_rank_that_was_lost_is_bound_again_and_hears_its_engines_next_life(fleet):
    endpoint = f"tcp://127.0.0.1:{take_port()}"
    fleet.feed.connect(RankSource(target=TARGET, model=MODEL, endpoint=endpoint, binds=True))
    for life in range(5):
        engine = fleet.publisher()
        engine.pub.connect(endpoint)
        before = fleet.view().batches

        def is_heard(engine=engine, before=before):
            engine.start()
            return fleet.view().batches > before

        wait_until(is_heard)
        engine.publish(stored(0, 1 + life))
        fleet.wait_for_reuse(4 * (1 + life))
        fleet.feed.lose(TARGET)
        assert fleet.reuse() == 0


@pytest.mark.parametrize(
    "source",
    [{"endpoint": "tcp://:no-port"}, {"endpoint": "tcp://\ud800:1"}, {"endpoint": "tcp://h:1", "topic": "\ud800"}],
)
def test_an_address_that_cannot_be_used_leaves_the_rank_without_credit(fleet, caplog, source):
    fleet.feed.connect(RankSource(target=TARGET, model=MODEL, **source))
    wait_until(lambda: "event_socket_refused" in caplog.text)
    # Whoever writes it down, in whatever encoding, can do so.
    assert caplog.text.isascii()
    assert fleet.feed.find_trust(TARGET) is Trust.LOST
    other = Target(WorkerId("w"), 1)
    engine = fleet.publisher()
    fleet.follow(engine, other)
    engine.start()
    engine.publish(stored(0, 1))
    wait_until(lambda: fleet.reuse(target=other) == 4)


def test_stopping_ends_the_thread_with_streams_open(fleet):
    engine = fleet.publisher()
    fleet.follow(engine)
    fleet.wait_until_connected(engine)
    fleet.feed.stop()
    assert not fleet.feed.is_alive


def test_a_rank_that_moves_keeps_its_counters_and_starts_without_credit(fleet):
    engine = fleet.publisher()
    fleet.follow(engine)
    engine.start()
    engine.publish(stored(0, 4))
    fleet.wait_for_reuse(16)
    position = fleet.feed.find_position(TARGET)
    moved = fleet.publisher()
    fleet.follow(moved)
    assert fleet.reuse() == 0
    assert fleet.feed.find_evidence(TARGET, position, time.monotonic()).cleared
    moved.start()
    moved.publish(stored(0, 2))
    fleet.wait_for_reuse(8)
    view = fleet.view()
    assert view.events["BlockStored"] == 2
    assert view.resets == 1


def test_a_flood_is_read_whole_in_order_and_ends_exact(fleet):
    engine = fleet.publisher()
    fleet.follow(engine)
    fleet.wait_until_connected(engine)
    engine.start()
    for number in range(5_000):
        engine.publish(stored(0, 1 + number % 4) if number % 5 else removed(3))
    engine.publish(stored(0, 4))
    wait_until(lambda: fleet.view().last_seq == 5_001)
    view = fleet.view()
    assert (view.batches, view.gaps, view.trust, view.lag_s) == (5_002, 0, Trust.EXACT, 0.0)
    assert fleet.reuse() == 16


def test_what_a_flood_lost_in_full_queues_is_replayed(fleet):
    engine = fleet.publisher()
    fleet.follow(engine)
    fleet.wait_until_connected(engine)
    engine.start()
    for number in range(3_000):
        engine.publish(stored(0, 1 + number % 4), lost=1_000 <= number < 1_500)
    wait_until(lambda: fleet.view().last_seq == 3_000 and fleet.view().trust is Trust.EXACT)
    assert (fleet.view().batches, fleet.view().losses) == (3_001, 0)


def test_messages_come_out_of_a_socket_frame_by_frame_as_they_were_sent():
    context = zmq.Context()
    there, here = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    here.connect(f"tcp://127.0.0.1:{there.bind_to_random_port('tcp://127.0.0.1')}")
    sent = [[b"x"] * frames for frames in (1, 3, 2, 5, 3, 3)]
    for message in sent:
        there.send_multipart(message)
    read = []
    wait_until(lambda: read.extend(read_messages(here, 2)) or len(read) >= len(sent))
    assert read == sent
    assert read_messages(here, 2) == []
    there.send_multipart([b"a"])
    there.send_multipart([b"b"])
    assert here.poll(PATIENCE_S * 1_000)
    assert len(read_messages(here, 1)) == 1
    context.destroy(linger=0)
