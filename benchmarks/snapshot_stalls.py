"""What requests and other ranks feel of a snapshot: `python -m benchmarks.snapshot_stalls [--blocks N]`.

While a router takes a snapshot over, and while it forgets that rank again, requests ask for another rank's reuse every
few milliseconds, and that rank publishes events: one JSON object says how long they take, beside the same figures
without a snapshot (`quiet`). The sidecar's server runs in a process of its own, on the same machine.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import zmq

from benchmarks.snapshot import BLOCK_TOKENS, MODEL, make_dumpable_index
from prefix_index import BlockChain, block_hashes
from prefix_index.trust import Trust
from router.events import EventFeed, RankSource
from router.server import SWITCH_INTERVAL_S
from wire.block_hash import namespace_seed
from wire.dialects import sglang
from wire.events import BlockStored, EventBatch
from wire.frames import encode_live
from wire.ids import Target, WorkerId

#: Blocks that the other rank holds of the prompt that is asked for, and the pause between two questions.
OTHER_BLOCKS = 1_000
PAUSE_S = 0.003
QUIET_S = 2.0


class OtherRank:
    """A rank that goes on publishing, and requests that ask for its blocks."""

    def __init__(self, feed: EventFeed, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        self.feed = feed
        self.target = Target(WorkerId("other"), 0)
        self._socket = context.socket(zmq.PUB)
        self._socket.bind("tcp://127.0.0.1:*")
        ids = [7 * place % 150_000 for place in range(OTHER_BLOCKS * BLOCK_TOKENS)]
        hashes = tuple(block_hashes(ids, BLOCK_TOKENS, namespace_seed(MODEL)))
        self.chain = BlockChain(BLOCK_TOKENS, hashes, len(ids) + 1)
        self._event = BlockStored(
            block_hashes=tuple(range(1, OTHER_BLOCKS + 1)),
            parent_block_hash=None,
            token_ids=tuple(ids),
            block_tokens=BLOCK_TOKENS,
        )
        self._seq = 0
        self._stopping = threading.Event()
        #: Seconds of each question, and from each event to its being applied.
        self.asked_s: list[float] = []
        self.event_s: list[float] = []
        endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        feed.connect(RankSource(target=self.target, model=MODEL, endpoint=endpoint))
        while not feed.find_reuse((self.chain,)).get(self.target):
            self._publish()
            time.sleep(0.01)

    def _publish(self) -> None:
        payload = sglang.encode_batch(EventBatch(ts_s=0.0, events=(self._event,)), sglang.Generation.MAP)
        self._socket.send_multipart(encode_live("", self._seq, payload))
        self._seq += 1

    def _has_applied(self, seq: int) -> bool:
        return any(view.target == self.target and (view.last_seq or 0) >= seq for view in self.feed.to_views())

    def _ask(self) -> None:
        while not self._stopping.is_set():
            started_s = time.perf_counter()
            self.feed.find_reuse((self.chain,))
            self.asked_s.append(time.perf_counter() - started_s)
            time.sleep(PAUSE_S)

    def _tell(self) -> None:
        while not self._stopping.is_set():
            seq, started_s = self._seq, time.perf_counter()
            self._publish()
            while not self._has_applied(seq) and not self._stopping.is_set():
                time.sleep(0.0005)
            self.event_s.append(time.perf_counter() - started_s)
            time.sleep(10 * PAUSE_S)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Ask and publish meanwhile."""
        self.asked_s, self.event_s = [], []
        self._stopping.clear()
        threads = [threading.Thread(target=work) for work in (self._ask, self._tell)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join()

    def figures(self, name: str) -> dict[str, float]:
        """Medians, 99th percentiles and maxima in milliseconds."""
        figures: dict[str, float] = {}
        for what, seconds in (("request", self.asked_s), ("event", self.event_s)):
            ordered = sorted(seconds) or [0.0]
            places = {"p50": len(ordered) // 2, "p99": len(ordered) * 99 // 100, "max": len(ordered) - 1}
            figures |= {f"{what}{name}_{word}_ms": round(1e3 * ordered[place], 2) for word, place in places.items()}
        return figures

    def close(self) -> None:
        """Close its socket."""
        self._socket.close(linger=0)


def watch_one(told: dict[str, Any], blocks: int) -> tuple[float, dict[str, float]]:
    """Seconds until the router is exact, and what others felt of it."""
    events, snapshot_url = read_addresses(told)
    index = make_dumpable_index()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    feed = EventFeed(index, snapshot_limit_s=60.0)
    target = Target(WorkerId("w"), 0)
    feed.start()
    other = OtherRank(feed, context)
    try:
        with other.measured():
            time.sleep(QUIET_S)
        figures = other.figures("_quiet")
        with other.measured():
            started_s = time.perf_counter()
            feed.connect(
                RankSource(
                    target=target,
                    model=MODEL,
                    endpoint=events,
                    snapshot_url=snapshot_url,
                )
            )
            while feed.find_trust(target) is not Trust.EXACT:
                time.sleep(0.005)
            took_s = time.perf_counter() - started_s
        figures |= other.figures("")
        if index.block_count(target) != blocks:
            raise SystemExit(f"the router holds {index.block_count(target)} of {blocks} blocks")
        with other.measured():
            feed.lose(target)
            time.sleep(QUIET_S)
        figures |= other.figures("_losing")
    finally:
        other.close()
        feed.stop()
        context.destroy(linger=0)
    return took_s, figures


def read_addresses(told: dict[str, Any]) -> tuple[str, str]:
    """Event address and snapshot URL, as the serving process announced them."""
    events = told["events"]
    url = told.get("snapshot_url") or f"http://127.0.0.1:{told['port']}/snapshot/0"
    return events if isinstance(events, str) else f"tcp://127.0.0.1:{events}", url


def main() -> None:
    """Entry."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=1_000_000)
    blocks = parser.parse_args().blocks
    # As `dovecote serve` sets it.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    command = [sys.executable, "-m", "benchmarks.snapshot", "--serve", str(blocks)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None  # noqa: S101
            took_s, figures = watch_one(json.loads(server.stdout.readline()), blocks)
        finally:
            server.kill()
    told = {"blocks": blocks, "index": type(make_dumpable_index()).__name__, "to_exact_s": round(took_s, 3)}
    print(json.dumps(told | figures))


if __name__ == "__main__":
    main()
