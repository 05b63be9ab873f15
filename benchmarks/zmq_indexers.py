"""Events over ZeroMQ into two processes: Dynamo's `dynamo.indexer`, and this router's event feed with its index.

Both get the same messages in vLLM's array form from the same sockets' kind, one socket a worker; the figure is CPU
time of the process an event, sockets included. Role of the second process: `python -m benchmarks.zmq_indexers`.
"""

import http.client
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import zmq

from benchmarks.chains import BLOCK_TOKENS, CHAIN_BLOCKS, MODEL, holder, make_payloads
from benchmarks.processes import Child, find_free_port, read_cpu_s, read_resident_bytes, run_child, wait_for
from benchmarks.real_text import draw_stretches
from benchmarks.run_facts import SEED
from wire.frames import encode_live

WORKERS = 16
#: Of vLLM's encodings, one that both read.
VLLM_VERSION = "0.20"
Sockets = list["zmq.Socket[bytes]"]


@contextmanager
def open_publishers() -> Iterator[tuple[Sockets, list[str]]]:
    """A socket a worker, and their addresses. They tell when a subscriber came, so nothing is lost before."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    publishers = [context.socket(zmq.XPUB) for _ in range(WORKERS)]
    try:
        for publisher in publishers:
            publisher.setsockopt(zmq.SNDHWM, 0)
            publisher.bind("tcp://127.0.0.1:*")
        yield publishers, [str(publisher.getsockopt_string(zmq.LAST_ENDPOINT)) for publisher in publishers]
    finally:
        context.destroy(linger=0)


def publish(publishers: Sockets, lists: list[list[bytes]]) -> None:
    """Every payload on its worker's socket, workers taking turns, once somebody listens."""
    for publisher in publishers:
        if not publisher.poll(30_000):
            raise RuntimeError("nobody subscribed")
    for seq in range(max(map(len, lists))):
        for publisher, payloads in zip(publishers, lists, strict=True):
            if seq < len(payloads):
                publisher.send_multipart(encode_live("", seq, payloads[seq]))


def measure_indexer(python: Path, tokens: Sequence[int], per_event: int, blocks: int) -> dict[str, Any]:
    """Dynamo's indexer with one thread; raises OSError or RuntimeError where it cannot run."""
    lists = make_payloads(tokens, per_event, blocks, WORKERS, version=VLLM_VERSION)
    port = find_free_port()
    command = [str(python), "-m", "dynamo.indexer", "--port", str(port), "--threads", "1"]
    with open_publishers() as (publishers, addresses), run_child(command, DYN_LOG="error") as child:
        wait_for(lambda: _answers(child, port), "dynamo.indexer")
        for worker, address in enumerate(addresses):
            place = {"instance_id": worker, "endpoint": address, "model_name": MODEL, "block_size": BLOCK_TOKENS}
            _post(port, "/register", place)
        figures = _measure(child, publishers, lists, blocks)
        found = _post(port, "/query", {"token_ids": _first_prompt(tokens, blocks), "model_name": MODEL})
    if found["scores"] != {"0": {"0": CHAIN_BLOCKS * BLOCK_TOKENS}}:
        raise RuntimeError(f"the indexer does not know what was published: {found['scores']}")
    return figures


def measure_feed(tokens: Sequence[int], per_event: int, blocks: int) -> dict[str, Any]:
    """This router's event feed."""
    lists = make_payloads(tokens, per_event, blocks, WORKERS, version=VLLM_VERSION)
    with open_publishers() as (publishers, addresses):
        command = [sys.executable, "-m", "benchmarks.zmq_indexers", *addresses]
        with run_child(command) as child:
            child.read_line()
            figures = _measure(child, publishers, lists, blocks)
            held = int(child.ask("count"))
    if held != blocks // CHAIN_BLOCKS * CHAIN_BLOCKS:
        raise RuntimeError(f"the feed holds {held} of {blocks} blocks")
    return figures


def _measure(child: Child, publishers: Sockets, lists: list[list[bytes]], blocks: int) -> dict[str, Any]:
    before_s, before_bytes = child.wait_until_idle(), read_resident_bytes(child.pid)
    publish(publishers, lists)
    used_s = child.wait_until_idle() - before_s
    events = sum(map(len, lists))
    return {
        "events": events,
        "cpu_us_per_event": 1e6 * used_s / events,
        "events_per_s": events / used_s if used_s else float(events),
        "resident_bytes_per_block": (read_resident_bytes(child.pid) - before_bytes) / blocks,
    }


def _first_prompt(tokens: Sequence[int], blocks: int) -> list[int]:
    """Tokens of the first chain that `make_payloads` makes."""
    return list(next(draw_stretches(tokens, blocks // CHAIN_BLOCKS, CHAIN_BLOCKS * BLOCK_TOKENS, Random(SEED))))


def _answers(child: Child, port: int) -> bool:
    read_cpu_s(child.pid)
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/health")
        connection.getresponse().read()
    except OSError:
        return False
    return True


def _post(port: int, path: str, body: dict[str, Any]) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    data = answer.read()
    if answer.status >= 300:
        raise RuntimeError(f"{path}: {answer.status} {data[:200]!r}")
    return json.loads(data) if data else None


def run_feed(addresses: list[str]) -> None:
    """The second process: follows every address; answers any line with the number of blocks it holds."""
    from prefix_index.choose import make_index  # noqa: PLC0415  (only this process needs the router)
    from router.events import EventFeed, RankSource  # noqa: PLC0415

    index = make_index()
    feed = EventFeed(index)
    feed.start()
    for number, address in enumerate(addresses):
        feed.connect(RankSource(target=holder(number), model=MODEL, endpoint=address))
    print("ready", flush=True)
    for _ in sys.stdin:
        print(sum(view.blocks for view in feed.to_views()), flush=True)
    feed.stop()


if __name__ == "__main__":
    run_feed(sys.argv[1:])
