"""A sidecar beside a fake engine, from its HTTP face and from a router behind it."""

import httpx
import pytest
import zmq
from beside import get, wait_until

from tests.waiting import PATIENCE_S
from wire.dialects import sglang, vllm
from wire.events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch
from wire.frames import encode_live
from wire.hints import KvAction, KvHints, encode_hints
from wire.snapshot import SnapshotEnd, SnapshotHeader, SnapshotReader, to_records


def stored(first, count=1, *, salt=0, **fields):
    """Blocks `first` to `first + count` of one prompt, named 100 on."""
    numbers = range(first, first + count)
    return BlockStored(
        block_hashes=tuple(100 + salt + number for number in numbers),
        parent_block_hash=100 + salt + first - 1 if first else None,
        token_ids=tuple(salt + number * 4 + place for number in numbers for place in range(4)),
        block_tokens=4,
        **fields,
    )


class Play:
    """Publishes batches of one rank, numbered."""

    def __init__(self, engine, rank=0, *, encode=None):
        self.engine, self.rank, self.seq = engine, rank, 0
        self.encode = encode or (lambda batch: vllm.encode_batch(batch, "0.32"))

    def __call__(self, *events, lost=False):
        batch = EventBatch(ts_s=1.0 + self.seq / 8 + id(self) % 1000, events=events, dp_rank=self.rank)
        frames = encode_live("kv", self.seq, self.encode(batch))
        self.engine.ranks[self.rank].publish(frames, lost=lost)
        self.seq += 1


def blocks(service, rank=0):
    return service.hub.to_views()[rank].blocks


def ready(service):
    wait_until(lambda: service.is_ready, "a ready sidecar")


def test_a_router_behind_a_sidecar_holds_what_the_engine_said_before_and_after_it_came(bench):
    engine = bench.engine()
    play = Play(engine)
    play(AllBlocksCleared())
    play(stored(0, 3))
    url, service = bench.sidecar(engine)
    wait_until(lambda: blocks(service) == 3)
    router = bench.router(url)
    wait_until(lambda: router.view().trust.value == "exact" and router.view().blocks == 3, "an exact router")
    assert router.view().snapshots_loaded == 1
    play(stored(3), BlockRemoved(block_hashes=(102,)))
    wait_until(lambda: service.hub.to_views()[0].engine_seq == play.seq - 1)
    wait_until(lambda: router.view().last_seq == service.hub.to_views()[0].next_seq - 1)
    assert (blocks(service), router.view().blocks) == (3, 3)
    assert router.records() == set(read_snapshot(url)[1])


def test_numbers_go_on_over_a_restart_of_the_engine_which_subscribers_see_as_a_clear(bench):
    engine = bench.engine()
    play = Play(engine)
    play(stored(0, 3))
    url, service = bench.sidecar(engine)
    wait_until(lambda: blocks(service) == 3)
    router = bench.router(url)
    wait_until(lambda: router.view().blocks == 3)
    before = service.hub.to_views()[0]
    engine.restart()
    again = Play(engine)
    again(stored(0, 2, salt=50))
    wait_until(lambda: blocks(service) == 2 and router.view().blocks == 2, "the new engine's blocks")
    after = service.hub.to_views()[0]
    assert after.next_seq > before.next_seq
    assert after.engine_lives == before.engine_lives + 1
    assert router.view().events["AllBlocksCleared"] >= 1
    wait_until(lambda: router.view().trust.value == "exact", "an exact router")
    info = get(f"{url}/server_info").json()
    assert info["sidecar"]["ranks"][0]["engine_incarnation"] == after.engine_lives


def test_a_sidecar_that_missed_events_for_good_says_so_to_the_router(bench):
    engine = bench.engine()
    play = Play(engine)
    play(stored(0, 3))
    url, service = bench.sidecar(engine)
    wait_until(lambda: blocks(service) == 3)
    router = bench.router(url)
    wait_until(lambda: router.view().blocks == 3)
    play(stored(3), lost=True)
    engine.ranks[0].buffer = []
    play(stored(0, 1, salt=50))
    wait_until(lambda: router.view().trust.value == "partial" and router.view().blocks == 1, "a router in doubt")
    play(stored(4))
    play(AllBlocksCleared())
    wait_until(lambda: router.view().trust.value == "exact", "an exact router")


def test_a_sidecar_that_restarts_is_a_new_source(bench):
    engine = bench.engine()
    play = Play(engine)
    play(stored(0, 2))
    url, service = bench.sidecar(engine, events_port_base=0)
    wait_until(lambda: blocks(service) == 2)
    router = bench.router(url)
    wait_until(lambda: router.view().blocks == 2)
    # An engine that comes back with another model gets new mirrors at the same ports.
    engine.answers["/v1/models"] = {"data": [{"id": "other"}]}
    incarnation = service.incarnation
    wait_until(lambda: service.incarnation != incarnation and service.is_ready, "new mirrors")
    assert service.hub.ports.events_base == int(router.facts.events.port_base)
    wait_until(lambda: router.view().blocks == 0, "a router that believes no other model's blocks")


def test_the_sidecar_of_a_vllm_tells_facts_in_sglangs_shape(bench):
    engine = bench.engine(dp_size=2)
    url, service = bench.sidecar(engine)
    ready(service)
    play = Play(engine, 1)
    play(stored(0, 1, group_idx=0, group_kind="full_attention"))
    play(stored(1, 1, group_idx=1, group_kind="sliding_window", window_tokens=8))
    wait_until(lambda: len(service.hub.to_views()[1].groups) == 2)
    info = get(f"{url}/server_info").json()
    assert (info["dp_size"], info["page_size"], info["max_total_num_tokens"]) == (2, 32, 3200)
    assert (info["tokenizer_path"], info["kv_events"]["dp_size"]) == ("/models/tiny", 2)
    told = info["sidecar"]
    assert (told["dialect"], told["model"], told["snapshot_url"]) == ("vllm", "capture", "/snapshot/{dp_rank}")
    assert [group["kind"] for group in told["components"]] == ["full_attention", "sliding_window"]
    loads = get(f"{url}/v1/loads").json()["loads"]
    assert [(each["num_running_reqs"], each["num_waiting_reqs"], each["num_used_tokens"]) for each in loads] == [
        (3, 2, 800),
        (0, 0, 0),
    ]
    page = get(f"{url}/metrics").text
    assert 'dovecote_sidecar_stream_trust{dp_rank="1",trust="exact"} 1.0' in page


@pytest.mark.parametrize("generation", list(sglang.Generation))
def test_the_sidecar_of_an_sglang_passes_on_facts_and_no_secrets(bench, generation):
    engine = bench.engine(dialect="sglang")
    url, service = bench.sidecar(engine)
    ready(service)
    play = Play(engine, encode=lambda batch: sglang.encode_batch(batch, generation))
    play(stored(0, 2))
    wait_until(lambda: blocks(service) == 2)
    info = get(f"{url}/server_info").json()
    assert (info["version"], info["page_size"], info["sidecar"]["dialect"]) == ("0.5", 4, "sglang")
    assert "secret" not in get(f"{url}/server_info").text
    assert get(f"{url}/v1/loads").json()["loads"][0]["num_running_reqs"] == 5


def test_a_sidecar_whose_engine_does_not_answer_says_so_and_waits_for_it(bench):
    engine = bench.engine()
    engine.answers["/health"] = None
    url, service = bench.sidecar(engine)
    answer = get(f"{url}/health")
    assert (answer.status_code, answer.json()["ready"]) == (503, False)
    for path in ("/server_info", "/snapshot/0", "/v1/loads"):
        assert get(url + path).status_code == 503
    engine.answers["/health"] = ""
    ready(service)
    assert get(f"{url}/health").status_code == 200


def test_hints_are_answered_as_not_supported(bench):
    url, _ = bench.sidecar(bench.engine())
    hints = KvHints(message_id="h", actions=(KvAction("a", "kv.pin"), KvAction("b", "kv.prefetch")))
    outcomes = httpx.post(f"{url}/v1/kv_hints", content=encode_hints(hints), timeout=PATIENCE_S).json()["outcomes"]
    assert [(each["action_id"], each["status"], each["reason"]) for each in outcomes] == [
        ("a", "rejected", "not supported by the engine"),
        ("b", "rejected", "not supported by the engine"),
    ]
    for body in (b"{}", b"no json", b"x" * (2 << 20)):
        assert httpx.post(f"{url}/v1/kv_hints", content=body, timeout=PATIENCE_S).status_code == 400


@pytest.mark.parametrize("rank", ["1", "-1", "x", "9999999999", "\u00b2"])
def test_a_snapshot_of_no_rank_is_not_found(bench, rank):
    url, service = bench.sidecar(bench.engine())
    ready(service)
    assert get(f"{url}/snapshot/{rank}").status_code == 404


def test_snapshots_taken_while_events_flow_are_each_of_one_moment(bench):
    engine = bench.engine()
    url, service = bench.sidecar(engine)
    ready(service)
    wait_until(lambda: engine.ranks[0].asked)
    play = Play(engine)
    play(stored(0, 1))
    wait_until(lambda: blocks(service) == 1)
    watermarks = []
    for number in range(1, 60):
        play(stored(number))
        header, records = read_snapshot(url)
        # Batch n of the engine brings block n; the mirror's first batches said that it is exact.
        offset = service.hub.to_views()[0].next_seq - service.hub.to_views()[0].engine_seq - 1
        assert len(records) >= header.watermark - offset
        watermarks.append(header.watermark)
    assert watermarks == sorted(watermarks)


def read_snapshot(url):
    reader = SnapshotReader()
    parts = list(reader.feed(get(f"{url}/snapshot/0").content))
    assert isinstance(parts[0], SnapshotHeader)
    assert isinstance(parts[-1], SnapshotEnd)
    return parts[0], [record for part in parts[1:-1] for run in part for record in to_records(run)]


def test_A26_every_rank_of_an_engine_is_mirrored_on_a_port_of_its_own(bench):
    engine = bench.engine(dp_size=3)
    url, service = bench.sidecar(engine)
    ready(service)
    for rank in range(3):
        Play(engine, rank)(stored(0, rank + 1))
    router = bench.router(url)
    wait_until(lambda: [router.view(rank).blocks for rank in range(3)] == [1, 2, 3], "every rank's blocks")


def test_A24_blocks_of_a_rank_that_is_not_followed_any_more_do_not_come_back(bench):
    engine = bench.engine()
    play = Play(engine)
    play(stored(0, 3))
    url, service = bench.sidecar(engine)
    wait_until(lambda: blocks(service) == 3)
    router = bench.router(url)
    target = wait_until(lambda: router.view().blocks == 3 and router.view().target)
    router.feed.disconnect(target)
    play(stored(3))
    wait_until(lambda: blocks(service) == 4)
    assert (router.index.block_count(target), router.feed.to_views()) == (0, [])


def test_garbage_on_the_sidecars_sockets_changes_nothing(bench, context):
    engine = bench.engine()
    url, service = bench.sidecar(engine)
    ready(service)
    wait_until(lambda: engine.ranks[0].asked)
    caller = context.socket(zmq.DEALER)
    caller.connect(f"tcp://127.0.0.1:{service.hub.ports.replay_base}")
    for frames in ([b"x"], [b"", b"short"], [b"", b"1" * 8, b"more"], [b""]):
        caller.send_multipart(frames)
    engine.ranks[0].pub.send_multipart([b"kv", b"bad", b"\xc1"])
    Play(engine)(stored(0, 2))
    wait_until(lambda: blocks(service) == 2)
    assert get(f"{url}/health").json()["ready"]
    caller.close(linger=0)
