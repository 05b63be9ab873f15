"""How long a router takes from nothing to exact: snapshots of 100k and 1M blocks, over HTTP on one machine.

`python -m benchmarks.snapshot --json` prints one line a size: bytes, seconds to make the snapshot, and seconds from a
router that knows nothing to one that is exact. A sidecar's server, and the router's fetcher and index, run in two
processes of this machine.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator

from prefix_index.base import PrefixIndex
from prefix_index.choose import make_index
from prefix_index.naive import NaivePrefixIndex
from prefix_index.trust import Trust
from router.events import EventFeed, RankSource
from wire.events import BlockStored
from wire.ids import Target, WorkerId

SIZES = (100_000, 1_000_000)
BLOCK_TOKENS = 16
CHAIN_BLOCKS = 1_000
MODEL = "bench"


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
            runs = sorted(time_to_exact(told, blocks) for _ in range(repeats))
        finally:
            server.kill()
    return {
        "blocks": blocks,
        "index": type(make_dumpable_index()).__name__,
        "snapshot_bytes": told["bytes"],
        "make_s": round(told["make_s"], 3),
        "to_exact_s": round(runs[len(runs) // 2], 3),
        "to_exact_s_spread": [round(runs[0], 3), round(runs[-1], 3)],
        "repeats": repeats,
    }


def time_to_exact(told: dict[str, int], blocks: int) -> float:
    """Seconds from a router that knows nothing to one that is exact."""
    index = make_dumpable_index()
    feed = EventFeed(index, snapshot_limit_s=60.0)
    target = Target(WorkerId("w"), 0)
    feed.start()
    try:
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
    finally:
        feed.stop()
    if index.block_count(target) != blocks:
        raise SystemExit(f"the router holds {index.block_count(target)} of {blocks} blocks")
    return took_s


def main() -> None:
    """Entry."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of words")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        serve(arguments.serve)
        return
    for blocks in SIZES:
        figures = measure(blocks, arguments.repeats)
        words = f"{blocks:,} blocks: exact after {figures['to_exact_s']} s, {figures['snapshot_bytes']:,} bytes"
        print(json.dumps(figures) if arguments.json else words, flush=True)


if __name__ == "__main__":
    main()
