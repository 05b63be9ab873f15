"""Two of four engines are killed in the middle of a replay of sessions and restarted.

No request hangs, restarted ranks start without credit, and afterwards every prediction that nothing raced is exact.
"""

import asyncio
import time

import aiohttp
import pytest
from growing_sessions import GrowingSessions, count_batches, count_read, find_judged, until

from simulator.demo.client import AgentClient
from simulator.demo.processes import Children
from tests.ports import take_ports
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

ENGINES, RANKS, SESSIONS, KILLED = 4, 2, 12, 2


class Fleet:
    """The processes, and what the router says of them."""

    def __init__(self, children, http):
        self.children, self.http = children, http
        self.ports = take_ports(ENGINES)
        self.engines = []
        self.url = ""

    async def start_engine(self, port):
        flags = ["--port", port, "--dp-size", RANKS, "--forward", "timed", "--timed-decode-step-ms", 5]
        flags += ["--timed-prefill-tokens-per-s", 20000]
        return await self.children.start(f"engine {port}", ["engine_shim.engine", *map(str, flags)], {})

    async def start(self):
        self.engines = [await self.start_engine(port) for port in self.ports]
        await asyncio.gather(*(engine.wait_listening(PATIENCE_S) for engine in self.engines))
        urls = [engine.url for engine in self.engines]
        router = await self.children.start("router", ["router", "serve", "--port", "0", "--workers", *urls], {})
        await router.wait_listening(PATIENCE_S)
        self.url = router.url
        await until(self.all_healthy, "every worker is healthy")

    async def workers(self):
        async with self.http.get(f"{self.url}/v1/workers") as response:
            return (await response.json())["workers"]

    async def all_healthy(self):
        return all(worker["healthy"] for worker in await self.workers())

    async def killed_are_out(self):
        return not any(worker["healthy"] for worker in await self.ranks_of_killed())

    async def ranks_of_killed(self):
        urls = {f"http://127.0.0.1:{port}" for port in self.ports[:KILLED]}
        return [worker for worker in await self.workers() if worker["url"].rstrip("/") in urls]

    async def killed_are_working(self):
        busy = [sum(rank["inflight_requests"] for rank in worker["ranks"]) for worker in await self.ranks_of_killed()]
        return all(busy)

    async def has_read_all(self):
        """Whether the router has read all that the engines published."""
        name = "dovecote_engine_kv_event_batches_total"
        return all(
            [await count_batches(self.http, each["url"], name) == count_read(each) for each in await self.workers()]
        )

    async def settle(self):
        await until(self.has_read_all, "all events are read")

    async def decision(self, request_id):
        async with self.http.get(f"{self.url}/v1/decisions/{request_id}") as response:
            assert response.status == 200
            return await response.json()


async def test_killed_engines_cost_their_requests_and_nothing_else():
    async with aiohttp.ClientSession() as http, Children() as children:
        fleet = Fleet(children, http)
        await fleet.start()
        client = AgentClient(http, fleet.url, "dovecote-toy", time.monotonic, PATIENCE_S)
        talk = GrowingSessions(client, SESSIONS)
        before = await talk.take_turns(2)
        assert [reply.failure for reply in before if reply.failure] == []

        # Long answers are under way on the engines that die.
        stop = asyncio.Event()
        during = asyncio.create_task(talk.take_turns_until(stop, output_tokens=300))
        await until(fleet.killed_are_working, "the engines to be killed are working")
        for engine in fleet.engines[:KILLED]:
            engine.kill()
        stop.set()
        replies = await during
        failed = [reply for reply in replies if reply.failure]
        assert not any("Timeout" in reply.failure for reply in failed)
        killed = {f"127.0.0.1:{port}" for port in fleet.ports[:KILLED]}
        assert {reply.worker for reply in failed} <= {*killed, None}
        await until(fleet.killed_are_out, "the killed engines are seen to be gone")

        for port in fleet.ports[:KILLED]:
            await (await fleet.start_engine(port)).wait_listening(PATIENCE_S)
        await until(fleet.all_healthy, "the restarted engines are healthy")
        restarted = [rank for worker in await fleet.ranks_of_killed() for rank in worker["ranks"]]
        assert [rank["index_blocks"] for rank in restarted] == [0] * (KILLED * RANKS)

        # What a turn rests on is known when it comes, however late its events are read.
        after = await talk.take_turns(4, fleet.settle)
        assert [reply.failure for reply in after if reply.failure] == []
        records = await find_judged(fleet.decision, after)
        classes = [record["accuracy"] for record in records]
        assert set(classes) <= {"exact", "raced"}
        assert classes.count("exact") > len(classes) * 0.8
        assert {record["outcome"] for record in records} == {"done"}
        assert all(rank["inflight_requests"] == 0 for worker in await fleet.workers() for rank in worker["ranks"])
