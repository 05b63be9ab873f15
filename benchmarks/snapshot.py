"""How long a router takes from nothing to exact: snapshots of 100k and 1M blocks, over HTTP on one machine.

`python -m benchmarks.snapshot --json` prints one line a size: bytes, seconds to make the snapshot, and seconds from a
router that knows nothing to one that is exact. A sidecar's server, and the router's fetcher and index, run in two
processes of this machine. Meanwhile requests ask for another rank's reuse every few milliseconds and that rank
publishes events: how long they take is printed beside the same figures without a snapshot.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import zmq

from prefix_index.base import BlockChain, PrefixIndex
from prefix_index.choose import make_index
from prefix_index.hashing import block_hashes
from prefix_index.naive import NaivePrefixIndex
from prefix_index.trust import Trust
from router.events import EventFeed, RankSource
from router.server import SWITCH_INTERVAL_S
from wire.block_hash import namespace_seed
from wire.dialects import sglang
from wire.events import BlockStored, EventBatch
from wire.frames import encode_live
from wire.ids import Target, WorkerId

SIZES = (100_000, 1_000_000)
BLOCK_TOKENS = 16
CHAIN_BLOCKS = 1_000
MODEL = "bench"
#: Blocks that the other rank holds of the prompt that is asked for, and the pause between two questions.
OTHER_BLOCKS = 1_000
PAUSE_S = 0.003
QUIET_S = 2.0


def stores(blocks: int) -> Iterator[BlockStored]:
    """Events that fill a cache: chains of a thousand blocks, each of its own tokens."""
    for chain in range(blocks // CHAIN_BLOCKS):
        first = chain * CHAIN_BLOCKS
        yield BlockStored(
            block_hashes=tuple((first + number) * 2_654_435_761 % (1 << 63) for number in range(CHAIN_BLOCKS)),
            parent_block_hash=None,
            token_ids=tuple((chain * 7_919 + place) % 150_000 for place in range(CHAIN_BLOCKS * BLOCK_TOKENS)),
            block_tokens=BLOCK_TOKENS,
        )


def make_dumpable_index() -> PrefixIndex:
    """What a sidecar and its router would use."""
    index = make_index()
    return index if "dump" in index.supports else NaivePrefixIndex()


def serve(blocks: int) -> None:
    """A sidecar's HTTP face and sockets over a mirror that holds `blocks`; says its addresses, runs until killed."""
    import uvicorn  # noqa: PLC0415  (only the serving process needs it)
    from fastapi import FastAPI  # noqa: PLC0415

    from engine_shim.sidecar.hub import MirrorHub  # noqa: PLC0415
    from engine_shim.sidecar.mirror import ENGINE, Settings  # noqa: PLC0415
    from engine_shim.sidecar.snapshot_response import SnapshotResponse, SnapshotSlots  # noqa: PLC0415
    from wire.event_sources import RankEvents  # noqa: PLC0415

    index = make_dumpable_index()
    settings = Settings(model=MODEL, incarnation="bench")
    source = RankEvents("tcp://127.0.0.1:1")
    hub = MirrorHub([source], index, settings, host="127.0.0.1", events_port_base=0, replay_port_base=0)
    holder = Target(ENGINE, 0)
    for event in stores(blocks):
        index.apply(holder, event)
    # As if every event had come in order: the mirror believes itself.
    mirror = hub._mirrors[0]  # noqa: SLF001
    mirror.stream._trust = Trust.EXACT  # noqa: SLF001
    hub.start()
    app, slots = FastAPI(), SnapshotSlots()

    def answer() -> SnapshotResponse:
        slots.take_place()
        return SnapshotResponse(slots, lambda: hub.take_snapshot(0))

    app.add_api_route("/snapshot/0", answer, response_model=None)
    started_s = time.perf_counter()
    frames = hub.take_snapshot(0)
    made_s = time.perf_counter() - started_s
    told = {"events": hub.ports.events_base, "make_s": made_s, "bytes": sum(map(len, frames))}
    del frames

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: list[object] | None = None) -> None:
            await super().startup(sockets)  # type: ignore[arg-type]
            port = self.servers[0].sockets[0].getsockname()[1]
            print(json.dumps({**told, "port": port}), flush=True)

    Announcing(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", ws="none")).run()


def measure(blocks: int, repeats: int) -> dict[str, object]:
    """Figures of one size; the median of the repeats, with their spread."""
    command = [sys.executable, "-m", "benchmarks.snapshot", "--serve", str(blocks)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None  # noqa: S101
            told = json.loads(server.stdout.readline())
            results = [time_to_exact(told, blocks) for _ in range(repeats)]
            runs = sorted(took_s for took_s, _ in results)
        finally:
            server.kill()
    return {
        "blocks": blocks,
        "index": type(make_dumpable_index()).__name__,
        "snapshot_bytes": told["bytes"],
        "make_s": round(told["make_s"], 3),
        "to_exact_s": round(runs[len(runs) // 2], 3),
        "to_exact_s_spread": [round(runs[0], 3), round(runs[-1], 3)],
        **max((stalls for _, stalls in results), key=lambda stalls: stalls["request_max_ms"]),
        "repeats": repeats,
    }


class OtherRank:
    """A rank that goes on publishing, and requests that ask for its blocks."""

    def __init__(self, feed: EventFeed, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        self.feed = feed
        self.target = Target(WorkerId("other"), 0)
        self._socket = context.socket(zmq.PUB)
        self._socket.bind("tcp://127.0.0.1:*")
        (event,) = stores(OTHER_BLOCKS)
        hashes = tuple(block_hashes(event.token_ids, BLOCK_TOKENS, namespace_seed(MODEL)))
        self.chain = BlockChain(BLOCK_TOKENS, hashes, len(event.token_ids) + 1)
        self._event = event
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


def time_to_exact(told: dict[str, int], blocks: int) -> tuple[float, dict[str, float]]:
    """Seconds from a router that knows nothing to one that is exact, and what others felt of it."""
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
                    endpoint=f"tcp://127.0.0.1:{told['events']}",
                    snapshot_url=f"http://127.0.0.1:{told['port']}/snapshot/0",
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


def main() -> None:
    """Entry."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of words")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--blocks", type=int, help="one size instead of 100k and a million")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        serve(arguments.serve)
        return
    # As `dovecote serve` sets it.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    for blocks in SIZES if arguments.blocks is None else [arguments.blocks]:
        figures = measure(blocks, arguments.repeats)
        words = f"{blocks:,} blocks: exact after {figures['to_exact_s']} s, {figures['snapshot_bytes']:,} bytes"
        print(json.dumps(figures) if arguments.json else words, flush=True)


if __name__ == "__main__":
    main()
