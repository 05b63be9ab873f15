"""An engine to serve in tests: the timed forward whose sleep is a gate that a test may close or break."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

import httpx

from engine_shim.engine.engine import Engine
from engine_shim.engine.forward.timed import CostModel, TimedForward
from engine_shim.engine.publish import Endpoint, EventSockets
from engine_shim.engine.server import EngineService, ServiceSettings, ServingLimits
from engine_shim.engine.server.process import EngineProcess, listen, url_of
from engine_shim.engine.spec import EngineSpec
from engine_shim.engine.tokenizer import TOY_FOLDER, Tokenizer
from tests.waiting import eventually, wait_until

TOY = Tokenizer(TOY_FOLDER)
LOCAL = Endpoint("127.0.0.1", 0)


class Gate:
    """What the forward does instead of sleeping: waits while closed, raises once when broken."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self._broken = False
        #: Steps that have come to the gate.
        self.steps = 0

    def __call__(self, _duration_s: float) -> None:
        self.steps += 1
        self._open.wait()
        if self._broken:
            self._broken = False
            raise RuntimeError("the device fell over")

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def break_next_step(self) -> None:
        self._broken = True


def make_service(gate: Gate, *, dp_size: int = 2, limits: ServingLimits | None = None, **spec: int) -> EngineService:
    """A service that has not started."""
    sizes = {"page_tokens": 4, "pool_pages": 256, "max_model_len": 512, "prefill_chunk_tokens": 64} | spec
    engine_spec = EngineSpec(vocabulary_tokens=TOY.vocabulary_tokens, eos_token_ids=(TOY.eos_id,), **sizes)

    def build_engine(rank: int) -> Engine:
        return Engine(engine_spec, TimedForward(CostModel(), spec=engine_spec, sleep=gate), dp_rank=rank)

    sockets = EventSockets(live=LOCAL, replay=LOCAL)
    settings = ServiceSettings(
        spec=engine_spec, dp_size=dp_size, event_sockets=sockets, limits=limits or ServingLimits()
    )
    return EngineService(settings, TOY, build_engine)


class Served:
    """A service on a real port, run by a thread of its own."""

    def __init__(self, gate: Gate, service: EngineService) -> None:
        self.gate = gate
        self.service = service
        listener = listen("127.0.0.1", 0)
        self.url = url_of(listener)
        self.process = EngineProcess(service, listener)
        self._thread = threading.Thread(target=self.process.serve_until_told)
        self._thread.start()
        wait_until(lambda: self.process.started)

    def stop(self) -> None:
        self.gate.open()
        self.process.should_exit = True
        self._thread.join()


def is_idle(service: EngineService) -> bool:
    """No request is known to the server or to an engine, and no page is held."""
    loads = [rank.snapshot for rank in service.ranks]
    busy = [
        snapshot.load.running_requests + snapshot.load.waiting_requests + snapshot.pages.leased for snapshot in loads
    ]
    return not any(service.hub.requests) and not any(busy)


def chat_body(content: str = "hello there", **fields: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 4} | fields


def read_events(response: httpx.Response) -> list[str]:
    """The data of each server-sent event."""
    return [line.removeprefix("data: ") for line in response.text.splitlines() if line]


async def hang_up(client: httpx.AsyncClient, path: str, body: dict[str, object], when: Callable[[], bool]) -> None:
    """Send a request and close its connection once a condition holds."""
    task = asyncio.ensure_future(client.post(path, json=body))
    await eventually(when)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
