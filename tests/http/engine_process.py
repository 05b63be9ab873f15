"""Engines as processes of their own."""

import asyncio
import signal
import sys
from contextlib import asynccontextmanager

import httpx

from simulator.demo.scrape import MetricsPage
from tests.waiting import LOADING_S, PATIENCE_S, eventually


class EngineProcess:
    """One engine of two ranks, timed forward without waiting."""

    def __init__(self):
        self.url = ""
        self.port = 0
        self._process = None

    async def start(self, *, decode_ms=0, forward="timed"):
        command = [
            *(sys.executable, "-m", "engine_shim.engine", "--port", str(self.port), "--dp-size", "2"),
            *("--forward", forward, "--pool-pages", "512", "--max-model-len", "4096"),
            *(("--timed-decode-step-ms", str(decode_ms)) if decode_ms else ("--time-scale", "0")),
        ]
        self._process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        async with asyncio.timeout(LOADING_S):
            line = (await self._process.stdout.readline()).decode()
        self.url = line.split()[-1]
        self.port = int(self.url.rpartition(":")[2])
        return self

    async def end(self, number=signal.SIGKILL):
        if self._process.returncode is None:
            self._process.send_signal(number)
        await self._process.wait()


@asynccontextmanager
async def engine_processes(count, **arguments):
    engines = [EngineProcess() for _ in range(count)]
    try:
        await asyncio.gather(*(engine.start(**arguments) for engine in engines))
        yield engines
    finally:
        await asyncio.gather(*(engine.end() for engine in engines if engine._process is not None))


async def read_all_events(router, engines):
    """Wait until the router has read all that engines published: whatever was answered is known to it then."""
    told = {}
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
        for place, engine in enumerate(engines):
            page = MetricsPage((await http.get(f"{engine.url}/metrics")).text)
            for labels, count in page.samples("dovecote_engine_kv_event_batches_total"):
                told[f"w{place}", int(labels["dp_rank"])] = int(count)

    def count_read():
        newest = {view.target: view.last_seq for view in router.events.to_views()}
        return {(target.worker, target.dp_rank): 0 if seq is None else seq + 1 for target, seq in newest.items()}

    await eventually(lambda: count_read() == told)
