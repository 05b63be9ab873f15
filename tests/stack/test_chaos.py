"""Engines killed, hung, slowed and restarted under 200 concurrent streams: every client learns the truth.

Twenty seconds by default; `DOVECOTE_CHAOS_S=60` for a longer storm.
"""

import asyncio
import os
import random
import signal
from pathlib import Path

import aiohttp
import pytest
from growing_sessions import until
from streaming_clients import StreamingClients, judge

from simulator.demo.processes import Children
from tests.ports import take_ports
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

ENGINES, RANKS, CLIENTS = 4, 2, 200
CHAOS_S = float(os.environ.get("DOVECOTE_CHAOS_S", "20"))
CONFIG = """\
workers: [{workers}]
timeouts: {{connect_s: 1.0, first_byte_s: 4.0, idle_s: 2.0, request_s: 20.0}}
probes: {{interval_s: 0.5, unhealthy_after: 3}}
"""


class Storm:
    """The fleet, and what is done to it."""

    def __init__(self, children, http, folder):
        self.children, self.http, self.folder = children, http, folder
        self.rng = random.Random(5)
        self.ports = take_ports(ENGINES)
        self.engines = {}
        self.router = None

    async def start(self):
        await asyncio.gather(*map(self.start_engine, self.ports))
        workers = ", ".join(f"{{url: 'http://127.0.0.1:{port}'}}" for port in self.ports)
        config = self.folder / "fleet.yaml"
        config.write_text(CONFIG.format(workers=workers), encoding="utf-8")
        self.router = await self.children.start(
            "router", ["router", "serve", "--port", "0", "--config", str(config)], {}
        )
        await self.router.wait_listening(PATIENCE_S)
        await until(self.all_healthy, "every worker is healthy")

    async def start_engine(self, port):
        flags = ["--port", port, "--dp-size", RANKS, "--forward", "timed", "--timed-decode-step-ms", 20]
        flags += ["--timed-prefill-tokens-per-s", 20_000]
        self.engines[port] = await self.children.start(f"engine {port}", ["engine_shim.engine", *map(str, flags)], {})
        await self.engines[port].wait_listening(PATIENCE_S)

    async def rage(self):
        """One stroke after another at engines of their choice, each kind at least once; one engine is left alone."""
        deeds = (self.kill, self.hang, self.slow, self.restart)
        loop = asyncio.get_running_loop()
        end_s, number = loop.time() + CHAOS_S, 0
        while loop.time() < end_s or number < len(deeds):
            deed, port = deeds[number % len(deeds)], self.rng.choice(self.ports[1:])
            await deed(port)
            number += 1

    async def kill(self, port):
        self.engines[port].kill()
        await self.start_engine(port)

    async def restart(self, port):
        await self.engines[port].stop()
        await self.start_engine(port)

    async def hang(self, port):
        """Longer than the router waits for a byte."""
        await self.freeze(port, 3.0)

    async def slow(self, port):
        for _ in range(20):
            await self.freeze(port, 0.1)
            await asyncio.sleep(0.02)

    async def freeze(self, port, seconds):
        os.killpg(self.engines[port].pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.killpg(self.engines[port].pid, signal.SIGCONT)

    async def workers(self):
        async with self.http.get(f"{self.router.url}/v1/workers") as response:
            return (await response.json())["workers"]

    async def all_healthy(self):
        return all(worker["healthy"] for worker in await self.workers())

    async def none_reserved(self):
        return not any(rank["inflight_requests"] for worker in await self.workers() for rank in worker["ranks"])

    async def no_socket_left(self):
        """Connections that the router still has to an engine or a client, its probes and this look aside."""
        return len(find_connections(self.router.pid)) <= ENGINES * (1 + 2 * RANKS) + 4


def find_connections(pid):
    """Inodes of a process's established or half-closed TCP connections."""
    own = set(filter(None, map(find_socket, Path(f"/proc/{pid}/fd").iterdir())))
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    return {row[9] for row in rows if row[9] in own and row[3] in {"01", "04", "05", "08"}}


def find_socket(entry):
    try:
        said = str(entry.readlink())
    except OSError:
        return None
    return said[8:-1] if said.startswith("socket:[") else None


async def test_every_client_gets_a_whole_answer_or_a_clear_error_while_engines_die_and_hang(tmp_path):
    async with aiohttp.ClientSession() as http, Children() as children:
        storm = Storm(children, http, tmp_path)
        await storm.start()
        clients, stop = StreamingClients(storm.router.url, CLIENTS), asyncio.Event()
        talking = asyncio.create_task(clients.run(stop))
        await storm.rage()
        stop.set()
        await talking
        assert not [verdict for verdict in clients.verdicts if verdict.startswith("lie")]
        assert clients.verdicts["whole"]
        assert any(verdict.startswith("error") for verdict in clients.verdicts)
        await until(storm.all_healthy, "every worker is healthy again")
        await until(storm.none_reserved, "nothing is reserved")
        await until(storm.no_socket_left, "connections to engines and clients are closed")


CHUNK = 'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": null}]}\n\n'
LAST = 'data: {"choices": [{"delta": {}, "finish_reason": "length"}]}\n\n'
USAGE = 'data: {"choices": [], "usage": {"completion_tokens": 40}}\n\n'
DONE = "data: [DONE]\n\n"
ERROR = 'data: {"error": {"message": "gone", "code": "upstream_closed"}}\n\n'


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (CHUNK * 40 + LAST + USAGE + DONE, "whole"),
        (CHUNK * 3 + ERROR, "error event upstream_closed"),
        (CHUNK * 3 + ERROR + DONE, "lie"),
        (CHUNK * 3, "lie"),
        (CHUNK * 3 + DONE, "lie"),
        (CHUNK * 3 + LAST + DONE, "lie"),
        (CHUNK * 40 + LAST + USAGE, "lie"),
        (CHUNK * 40 + LAST + USAGE.replace("40", "3") + DONE, "lie"),
        (LAST + USAGE + DONE, "lie"),
    ],
)
def test_an_answer_cut_off_and_called_whole_is_seen(answer, verdict):
    assert judge(200, answer).partition(":")[0] == verdict
