"""A process that publishes cache events at a steady rate, or one that only reads them.

`python -m benchmarks.event_source --publish BLOCKS` binds two runs of ports, one port a rank, and prints where they
begin. Each line `RUN BLOCKS_PER_S SECONDS` on stdin publishes on one of them for so long and is answered by what was
done; `RUN clear` empties every rank's cache. Batches are made beforehand, so that publishing costs little. With
`--drain PORT` it follows such ports and throws away what comes: what the traffic itself does to a machine.
"""

import argparse
import json
import sys
import time
from random import Random

import zmq

from benchmarks.chains import BLOCK_TOKENS, CHAIN_BLOCKS, encode, make_chain
from benchmarks.open_loop import RANKS
from benchmarks.real_text import draw_stretches, read_tokens
from benchmarks.run_facts import SEED
from wire.dialects import vllm
from wire.events import AllBlocksCleared, EventBatch
from wire.frames import encode_live

BLOCKS_PER_EVENT = 16
#: Messages are sent in bursts this long apart, as engines send after a step.
STEP_S = 0.01
#: Tokens of text between the beginnings of two chains, in the mean.
_TOKENS_A_CHAIN = 500


def make_batches(blocks: int) -> list[bytes]:
    """Stores of 16 blocks in the order of sending: the ranks take turns, each going on with its own chains."""
    chains = max(1, -(-blocks // (CHAIN_BLOCKS * RANKS))) * RANKS
    tokens = read_tokens(CHAIN_BLOCKS * BLOCK_TOKENS + chains * _TOKENS_A_CHAIN)
    stretches = draw_stretches(tokens, chains, CHAIN_BLOCKS * BLOCK_TOKENS, rng := Random(SEED))
    ranks: list[list[bytes]] = [[] for _ in range(RANKS)]
    for number, stretch in enumerate(stretches):
        ranks[number % RANKS] += map(encode, make_chain(rng, stretch, BLOCKS_PER_EVENT))
    return [batch for turn in zip(*ranks, strict=True) for batch in turn]


class Source:
    """Two runs of sockets and the batches, in turn."""

    def __init__(self, batches: list[bytes]) -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._batches = batches
        self._runs = [bind_run(context, RANKS) for _ in range(2)]
        self.port_bases = [base for base, _ in self._runs]
        self._seqs = [[0] * RANKS for _ in self._runs]

    def publish(self, run: int, blocks_per_s: float, seconds: float) -> dict[str, float]:
        """Publish at a rate; says how many blocks, and how far behind its own clock it fell."""
        per_step = blocks_per_s * STEP_S / BLOCKS_PER_EVENT
        started_s, sent, late_s = time.monotonic(), 0, 0.0
        for step in range(1, int(seconds / STEP_S) + 1):
            while sent < per_step * step:
                # Those of a flood that are sent again are copies of blocks.
                self._send(run, sent % RANKS, self._batches[sent % len(self._batches)])
                sent += 1
            ahead_s = started_s + step * STEP_S - time.monotonic()
            late_s = max(late_s, -ahead_s)
            if ahead_s < -seconds:
                break
            time.sleep(max(0.0, ahead_s))
        blocks, took_s = sent * BLOCKS_PER_EVENT, time.monotonic() - started_s
        return {"batches": sent, "blocks_per_s": blocks / took_s, "late_s": late_s}

    def clear(self, run: int) -> None:
        """Every rank's cache is emptied: the next round stores anew."""
        payload = vllm.encode_batch(EventBatch(ts_s=1.0, events=(AllBlocksCleared(),), dp_rank=0), "0.32")
        for rank in range(RANKS):
            self._send(run, rank, payload)

    def _send(self, run: int, rank: int, payload: bytes) -> None:
        self._runs[run][1][rank].send_multipart(encode_live("", self._seqs[run][rank], payload))
        self._seqs[run][rank] += 1


def bind_run(context: "zmq.Context[zmq.Socket[bytes]]", count: int) -> tuple[int, list["zmq.Socket[bytes]"]]:
    """PUB sockets on ports that follow one another."""
    rng = Random()
    for _ in range(100):
        base = rng.randrange(20_000, 60_000)
        sockets = [context.socket(zmq.PUB) for _ in range(count)]
        try:
            for rank, socket in enumerate(sockets):
                socket.setsockopt(zmq.SNDHWM, 0)
                socket.bind(f"tcp://127.0.0.1:{base + rank}")
        except zmq.ZMQError:
            for socket in sockets:
                socket.close(linger=0)
            continue
        return base, sockets
    raise RuntimeError("no run of free ports")


def run_source(blocks: int) -> None:
    """Publish as told."""
    source = Source(make_batches(blocks))
    print(json.dumps(source.port_bases), flush=True)
    for line in sys.stdin:
        run, *asked = line.split()
        if asked == ["clear"]:
            source.clear(int(run))
            print("cleared", flush=True)
        else:
            print(json.dumps(source.publish(int(run), *map(float, asked))), flush=True)


def run_drain(port_base: int) -> None:
    """Read and forget."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    for rank in range(RANKS):
        socket.connect(f"tcp://127.0.0.1:{port_base + rank}")
    print("draining", flush=True)
    while True:
        socket.recv_multipart()


def main() -> None:
    """One of the two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--publish", type=int, metavar="BLOCKS", help="make so many blocks, publish when told")
    parser.add_argument("--drain", type=int, metavar="PORT", help="follow the ports from this one on")
    options = parser.parse_args()
    if options.drain is not None:
        run_drain(options.drain)
    else:
        run_source(options.publish or 0)


if __name__ == "__main__":
    main()
