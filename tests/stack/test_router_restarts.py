"""A router killed under load is exact again at once, from the snapshots of the sidecars.

The engines and the sidecars keep two batches for replay, so that nothing but a snapshot can bring back what was
published before.
"""

import asyncio
import time

import aiohttp
import pytest
from growing_sessions import GrowingSessions, count_batches, count_read, find_judged, until

from simulator.demo.client import AgentClient
from simulator.demo.processes import Children
from tests.ports import take_port
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

ENGINES, RANKS, SESSIONS = 2, 2, 8
KEPT_BATCHES = 2


class Fleet:
    """Engines with a sidecar each, and a router that can be killed."""

    def __init__(self, children, http, tmp_path):
        self.children, self.http, self.tmp_path = children, http, tmp_path
        self.port = take_port()
        self.pairs, self.router = [], None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    async def start_pair(self, number):
        flags = ["--port", 0, "--dp-size", RANKS, "--forward", "timed", "--timed-decode-step-ms", 2]
        flags += ["--timed-prefill-tokens-per-s", 50_000, "--buffer-steps", KEPT_BATCHES]
        engine = await self.children.start(f"engine {number}", ["engine_shim.engine", *map(str, flags)], {})
        await engine.wait_listening(PATIENCE_S)
        flags = ["--engine", engine.url, "--port", "0", "--buffer-batches", str(KEPT_BATCHES)]
        sidecar = await self.children.start(f"sidecar {number}", ["engine_shim.sidecar", *flags], {})
        await sidecar.wait_listening(PATIENCE_S)
        return engine, sidecar

    async def start(self):
        self.pairs = await asyncio.gather(*(self.start_pair(number) for number in range(ENGINES)))
        lines = [f"  - {{url: '{engine.url}', sidecar: '{sidecar.url}'}}" for engine, sidecar in self.pairs]
        text = "\n".join([f"listen: {{port: {self.port}}}", "workers:", *lines])
        (self.tmp_path / "fleet.yaml").write_text(text, encoding="utf-8")
        await self.start_router()

    async def start_router(self):
        config = str(self.tmp_path / "fleet.yaml")
        self.router = await self.children.start("router", ["router", "serve", "--config", config], {})
        await self.router.wait_listening(PATIENCE_S)
        await until(self.is_exact, "every rank is exact")

    async def workers(self):
        async with self.http.get(f"{self.url}/v1/workers") as response:
            return (await response.json())["workers"]

    async def is_exact(self):
        workers = await self.workers()
        trusts = [rank["trust"] for worker in workers for rank in worker["ranks"]]
        return len(trusts) == ENGINES * RANKS and set(trusts) == {"exact"} and all(one["healthy"] for one in workers)

    async def is_working(self):
        return any(rank["inflight_requests"] for worker in await self.workers() for rank in worker["ranks"])

    async def has_read_all(self):
        """Whether the router has read all that the sidecars published, and these all that the engines did."""
        workers = {worker["url"].rstrip("/"): worker for worker in await self.workers()}
        for engine, sidecar in self.pairs:
            told = await count_batches(self.http, engine.url, "dovecote_engine_kv_event_batches_total")
            heard = await count_batches(self.http, sidecar.url, "dovecote_sidecar_event_batches_total")
            passed_on = await count_batches(self.http, sidecar.url, "dovecote_sidecar_published_batches_total")
            if (told, passed_on) != (heard, count_read(workers[engine.url])):
                return False
        return True

    async def settle(self):
        await until(self.has_read_all, "all events are read")

    async def decision(self, request_id):
        async with self.http.get(f"{self.url}/v1/decisions/{request_id}") as response:
            return await response.json()


async def test_a_router_restarted_under_load_is_exact_again_from_the_sidecars_snapshot(tmp_path):
    async with aiohttp.ClientSession() as http, Children() as children:
        fleet = Fleet(children, http, tmp_path)
        await fleet.start()
        client = AgentClient(http, fleet.url, "dovecote-toy", time.monotonic, PATIENCE_S)
        talk = GrowingSessions(client, SESSIONS)
        before = await talk.take_turns(3)
        assert [reply.failure for reply in before if reply.failure] == []

        # Requests are under way when the router dies, and go on being sent while it is away.
        stop = asyncio.Event()
        during = asyncio.create_task(talk.take_turns_until(stop))
        await until(fleet.is_working, "requests are under way")
        fleet.router.kill()
        await fleet.router.wait_death()
        stop.set()
        assert any(reply.failure for reply in await during)
        await fleet.start_router()
        await fleet.settle()
        held = sum(rank["index_blocks"] for worker in await fleet.workers() for rank in worker["ranks"])
        assert held > SESSIONS * 10

        # What a turn rests on is known when it comes, however late its events are read.
        after = await talk.take_turns(3, fleet.settle)
        assert [reply.failure for reply in after if reply.failure] == []
        records = await find_judged(fleet.decision, after)
        classes = [record["accuracy"] for record in records]
        assert set(classes) <= {"exact", "raced"}
        assert classes.count("exact") > len(classes) * 0.8
        # Known is where each conversation lies; a short one may be sent elsewhere all the same.
        held_tokens = [max(each["overlap_tokens"] for each in record["decision"]["candidates"]) for record in records]
        assert min(held_tokens) > 0
