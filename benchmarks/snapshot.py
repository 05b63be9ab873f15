"""How long a router takes from nothing to exact: `python -m benchmarks.snapshot [--json] [--quick]`.

A sidecar's server, and the router's fetcher and index, run in two processes of one machine; 100k and a million blocks
come as a snapshot over HTTP. Reference in the same run: the same blocks as events of 16 blocks out of an engine's
replay buffer, through the same feed. Times are wall-clock, in rounds that take turns.
"""

import argparse
import json
import socket
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from benchmarks.processes import run_child
from benchmarks.rows import Aim, Row, make_row
from benchmarks.run_facts import describe_run, finish, make_parser, progress
from prefix_index.base import PrefixIndex
from prefix_index.choose import make_index
from prefix_index.naive import NaivePrefixIndex
from prefix_index.trust import Trust
from router.events import EventFeed, RankSource
from wire.events import BlockStored
from wire.ids import Target, WorkerId

SIZES = {100_000: None, 1_000_000: Aim(at_most=2.0)}
QUICK_SIZES = {10_000: None}
BLOCK_TOKENS = 16
CHAIN_BLOCKS = 1_000
BLOCKS_PER_EVENT = 16
MODEL = "bench"
REPLAYED = "the same blocks out of a replay buffer"


def stores(blocks: int) -> Iterator[BlockStored]:
    """Events that fill a cache: chains of a thousand blocks, each of its own tokens."""
    for number in range(0, blocks, BLOCKS_PER_EVENT):
        chain, place = divmod(number, CHAIN_BLOCKS)
        count = min(BLOCKS_PER_EVENT, blocks - number)
        names = [(number + offset) * 2_654_435_761 % (1 << 63) for offset in range(-1, count)]
        first = place * BLOCK_TOKENS
        yield BlockStored(
            block_hashes=tuple(names[1:]),
            parent_block_hash=names[0] if place else None,
            token_ids=tuple((chain * 7_919 + token) % 150_000 for token in range(first, first + count * BLOCK_TOKENS)),
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
    told: dict[str, Any] = {"make_s": time.perf_counter() - started_s, "bytes": sum(map(len, frames))}
    del frames
    told |= {"events": f"tcp://127.0.0.1:{hub.ports.events_base}", **publish_all(blocks)}

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            port = self.servers[0].sockets[0].getsockname()[1]
            print(json.dumps({**told, "snapshot_url": f"http://127.0.0.1:{port}/snapshot/0"}), flush=True)

    Announcing(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", ws="none")).run()


def publish_all(blocks: int) -> dict[str, str]:
    """An engine that published every block once, and replays them; its addresses."""
    from engine_shim.engine.publish.config import Endpoint, EventSockets  # noqa: PLC0415
    from engine_shim.engine.publish.publisher import EventPublisher  # noqa: PLC0415
    from wire.dialects.sglang import Generation, encode_batch  # noqa: PLC0415

    anywhere = Endpoint("127.0.0.1", 0)
    sockets = EventSockets(live=anywhere, replay=anywhere, buffer_steps=blocks // BLOCKS_PER_EVENT + 1)
    publisher = EventPublisher(sockets, dp_size=1, encode=lambda batch: encode_batch(batch, Generation.MAP))
    for event in stores(blocks):
        publisher.topics[0].publish((event,), 1.0)
    publisher.start()
    bound = publisher.sockets
    return {"replay_events": bound.live.address(), "replay": bound.replay.address() if bound.replay else ""}


def time_to_exact(source: RankSource, blocks: int) -> float:
    """Seconds from a router that knows nothing to one that is exact."""
    index = make_dumpable_index()
    feed = EventFeed(index, snapshot_limit_s=60.0)
    feed.start()
    try:
        started_s = time.perf_counter()
        feed.connect(source)
        while feed.find_trust(source.target) is not Trust.EXACT:
            time.sleep(0.005)
        took_s = time.perf_counter() - started_s
    finally:
        feed.stop()
    if index.block_count(source.target) != blocks:
        raise SystemExit(f"the router holds {index.block_count(source.target)} of {blocks} blocks")
    return took_s


def measure(blocks: int, aim: Aim | None, repeats: int) -> tuple[Row, dict[str, Any]]:
    """One size."""
    with run_child([sys.executable, "-m", "benchmarks.snapshot", "--serve", str(blocks)]) as server:
        told = json.loads(server.read_line())
        target = Target(WorkerId("w"), 0)
        ours = RankSource(target=target, model=MODEL, endpoint=told["events"], snapshot_url=told["snapshot_url"])
        replayed = RankSource(
            target=target, model=MODEL, endpoint=told["replay_events"], replay_endpoint=told["replay"]
        )
        taken: list[float] = []
        reference: list[float] = []
        for _ in range(repeats):
            taken.append(time_to_exact(ours, blocks))
            reference.append(time_to_exact(replayed, blocks))
    row = make_row(
        f"snapshot of {blocks:,} blocks until the router is exact", taken, "s", reference=REPLAYED,
        reference_value=median(reference), aim=aim, headline=True,
    )  # fmt: skip
    details = {
        "blocks": blocks,
        "index": type(make_dumpable_index()).__name__,
        "snapshot_bytes": told["bytes"],
        "make_s": told["make_s"],
        "to_exact_s": taken,
        "replay_to_exact_s": reference,
    }
    return row, details


def main() -> int:
    """Entry."""
    parser = make_parser(__doc__, repeats=3)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.serve)
        return 0
    if options.quick:
        options.repeats = 1
    facts, rows, sizes = describe_run(options), [], []
    for blocks, aim in (QUICK_SIZES if options.quick else SIZES).items():
        progress(f"snapshot of {blocks:,} blocks")
        row, details = measure(blocks, aim, options.repeats)
        rows.append(row)
        sizes.append(details)
    return finish("snapshot", options, facts, rows, {"sizes": sizes})


if __name__ == "__main__":
    sys.exit(main())
