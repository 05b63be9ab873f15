"""Fetching snapshots: parts as they come, and one None for whatever goes wrong."""

import queue
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import pytest

from prefix_index import NaivePrefixIndex
from prefix_index.trust import Trust
from router.events.link import RankSource
from router.events.rank import FedRank, Wish
from router.events.snapshots import SnapshotFetcher
from tests.waiting import PATIENCE_S
from wire.block_hash import namespace_seed
from wire.events import Medium
from wire.ids import Target, WorkerId
from wire.snapshot import BlockRecord, SnapshotEnd, SnapshotHeader, encode_snapshot, to_records, to_runs

HEADER = SnapshotHeader(incarnation="a", watermark=7, trust="exact", dp_rank=0, model="m", seed=namespace_seed("m"))
RECORDS = [BlockRecord(n, n - 1 if n else None, n, 16, Medium.DEVICE, None, None, None, 1, n) for n in range(6_000)]
WHOLE = b"".join(encode_snapshot(HEADER, to_runs(RECORDS)))


@contextmanager
def served(status, body):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/snapshot/0"
    finally:
        server.shutdown()
        server.server_close()


def fetch(url, *, wanted=1_000, clock=time.monotonic):
    """Parts as they were handed on, up to the end, the failure, or the one after which no more is wanted."""
    fetcher = SnapshotFetcher(limit_s=PATIENCE_S, clock=clock)
    parts = queue.SimpleQueue()
    left = iter(range(wanted - 1, -1, -1))

    def take(part):
        parts.put(part)
        return next(left) > 0

    fetcher.fetch(url, take)
    got = []
    try:
        while len(got) < wanted:
            got.append(parts.get(timeout=PATIENCE_S))
            if got[-1] is None or isinstance(got[-1], SnapshotEnd):
                break
    finally:
        fetcher.stop()
    assert parts.empty()
    return got


def test_a_snapshot_comes_in_parts_with_its_end_last():
    with served(200, WHOLE) as url:
        header, *chunks, end = fetch(url)
    assert (header, end) == (HEADER, SnapshotEnd(len(RECORDS)))
    assert [record for chunk in chunks for run in chunk for record in to_records(run)] == RECORDS


@pytest.mark.parametrize(
    ("status", "body"),
    [(503, b"{}"), (200, b""), (200, WHOLE[:-3]), (200, b"\xff" * 64), (200, WHOLE[:1_000] + b"\0" * 300_000)],
)
def test_whatever_is_no_whole_snapshot_ends_in_one_none(status, body):
    with served(status, body) as url:
        parts = fetch(url)
    assert parts[-1] is None
    assert parts.count(None) == 1


def test_an_address_that_cannot_be_asked_is_a_failure_too():
    for url in ("http://127.0.0.1:1/snapshot/0", "nonsense", "http://[::1"):
        assert fetch(url) == [None]


def test_a_snapshot_that_drips_is_given_up_although_no_piece_is_late():
    hours = count(0.0, 3_600.0)
    with served(200, WHOLE) as url:
        assert fetch(url, clock=lambda: next(hours))[-1] is None


def test_what_is_not_wanted_any_more_is_not_read_on():
    with served(200, WHOLE) as url:
        assert fetch(url, wanted=2) == [HEADER, tuple(to_runs(RECORDS[:4_096]))]


@pytest.mark.parametrize("changed", [{"model": "other"}, {"seed": 5}, {"dp_rank": 1}])
def test_a_snapshot_of_something_else_is_refused(changed):
    source = RankSource(target=Target(WorkerId("w"), 0), model="m", endpoint="tcp://h:1", snapshot_url="http://h/s")
    rank = FedRank(source, NaivePrefixIndex(), replay_limit_s=5.0, retry_pause_s=30.0)
    wish = rank.on_connected(0.0)
    assert wish == Wish(snapshot=1)
    fields = {name: getattr(HEADER, name) for name in HEADER.__struct_fields__} | changed
    rank.on_snapshot(SnapshotHeader(**fields), 1, 1.0)
    assert (rank.counters.snapshots_failed, rank.wants_snapshot(1), rank.trust) == (1, False, Trust.LOST)
