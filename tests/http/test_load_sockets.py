"""A worker that pushes its load is listened to, and asked only where it falls silent."""

import asyncio

import msgspec
import zmq
import zmq.asyncio
from fake_engine import FakeEngine, running
from proxy_harness import eventually, in_process

from tests.waiting import PATIENCE_S

FAST = {"interval_s": 0.03, "unhealthy_after": 3}


def stat(running_requests, rank=None):
    return [b"load", bytes(8), msgspec.msgpack.encode(["LoadStat", running_requests, 1, 64, 4_096, rank])]


def taken(client):
    return client.router.fleet.workers["w0"].loads.by_rank.get(0)


async def test_pushed_load_reaches_placement_and_the_worker_is_not_asked_meanwhile(clock):
    context = zmq.asyncio.Context()
    engine = FakeEngine()
    engine.loads = {"loads": [{"dp_rank": 0, "num_running_reqs": 99}]}
    try:
        socket = context.socket(zmq.PUB)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        block = {"endpoint_host": "127.0.0.1", "endpoint_port_base": 1, "load_endpoint_port_base": port}
        engine.server_info["kv_events"] = block
        async with running(engine), in_process([engine.url], probes=FAST, clock=clock) as client:
            assert taken(client).source == "loads"
            async with asyncio.timeout(PATIENCE_S):
                while taken(client).source != "socket":
                    await socket.send_multipart([b"load", bytes(8), b"garbage"])
                    await socket.send_multipart(stat(5))
                    await asyncio.sleep(0.02)
            (rank,) = client.router.placer.fleet.ranks()
            assert (rank.report.running_requests, rank.report.waiting_requests) == (5, 1)
            before = engine.probes
            await eventually(lambda: engine.probes > before + 3)
            assert taken(client).source == "socket"
            shown = (await client.get("/v1/workers")).json()["workers"][0]["ranks"][0]["load"]
            assert (shown["source"], shown["running_requests"]) == ("socket", 5)
            assert shown["age_s"] == 0.0
            client.router.fleet.workers["w0"].loads.by_rank.clear()
            await eventually(lambda: taken(client) is not None and taken(client).source == "loads")
    finally:
        context.destroy(linger=0)
