"""Pairs of engines that hold each other to their protocols: SGLang's rooms and vLLM's transfer parameters.

The SGLang pair enforces what the engines do: a room's remainder is the prefill rank, 0 is none and none is used twice,
a leg whose partner does not come fails, an aborted leg fails its partner. The vLLM pair keeps the cache of a prefill
until it is pulled, and a decode engine that is told of an engine that is gone never answers.
Source: SGLang `srt/disaggregation/` (room rule, fan-out, time limits); vLLM NixlConnector (`kv_transfer_params`).
"""

import asyncio
import json
from contextlib import AsyncExitStack

from aiohttp import web
from fake_engine import DONE, MODEL, ROLE, USAGE, FakeEngine, chunk, event, open_stream, running

GONE = "engine-that-is-gone"


def usage_of(cached):
    return USAGE | {"prompt_tokens_details": {"cached_tokens": cached}}


def error_answer(status, message):
    return web.json_response({"error": {"message": message, "type": "t", "param": None, "code": None}}, status=status)


async def fail(request, fault):
    """One way to fail a request."""
    if fault == "silent":
        await asyncio.Event().wait()
    if fault == "reset":
        request.transport.abort()
        return web.Response()
    if fault == "broken":
        response = await open_stream(request)
        for piece in (ROLE, chunk("a")):
            await response.write(piece)
        request.transport.abort()
        return response
    return error_answer(fault, "no room")


class PairedEngine(FakeEngine):
    """One engine of a pair, whose steps a test can hold up."""

    def __init__(self, fabric, role, dp_size=1):
        super().__init__()
        self.fabric, self.role, self.dp_size = fabric, role, dp_size
        self.cached = 0
        #: What goes wrong with requests: a status, `reset`, `silent`, None, or a function that says so for each.
        self.failing = None
        #: Steps that wait: before the prefill is done, before it answers, before and after the first output.
        self.gates = {name: asyncio.Event() for name in ("prefill", "answer", "role", "output", "rest")}
        for gate in self.gates.values():
            gate.set()
        self.aborted = []
        self.saw_request = asyncio.Event()

    async def start(self):
        self.listening = AsyncExitStack()
        await self.listening.enter_async_context(running(self))

    async def stop(self):
        """From now on nobody listens there."""
        await self.listening.aclose()

    def next_fault(self):
        return self.failing() if callable(self.failing) else self.failing

    def hold(self, name):
        self.gates[name].clear()

    def release(self, name):
        self.gates[name].set()

    def app(self):
        async def abort(request):
            self.aborted.append((await request.json())["rid"])
            return web.json_response({})

        app = super().app()
        app.router.add_post("/abort_request", abort)
        app.router.add_post("/generate", self.complete)
        app.router.add_post("/v1/responses", self.complete)
        return app

    async def complete(self, request):
        self.saw_request.set()
        return await super().complete(request)

    async def generate(self, request, fields):
        """Role, output, end: streamed or whole."""
        if not fields.get("stream"):
            await self.gates["role"].wait()
            await self.gates["output"].wait()
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ab"}}
            return web.json_response(
                {"id": "c", "object": "chat.completion", "created": 1, "model": MODEL, "choices": [choice]}
                | {"usage": usage_of(self.cached)}
            )
        await self.gates["role"].wait()
        response = await open_stream(request)
        await response.write(ROLE)
        await self.gates["output"].wait()
        await response.write(chunk("a"))
        await self.gates["rest"].wait()
        await response.write(chunk("b", "stop"))
        await response.write(event({"id": "c", "choices": [], "usage": usage_of(self.cached)}))
        await response.write(DONE)
        return response


class Room:
    def __init__(self):
        self.ranks = {}
        self.both, self.handed = asyncio.Event(), asyncio.Event()
        self.failed = None


class SglangFabric:
    """Where the engines of one fleet meet."""

    def __init__(self, missing_leg_s=30.0):
        self.rooms, self.missing_leg_s = {}, missing_leg_s
        self.violations = []

    def join(self, engine, fields):
        """The rooms of one leg; what breaks the protocol is remembered and raised."""
        numbers = fields.get("bootstrap_room")
        numbers = numbers if isinstance(numbers, list) else [numbers]
        for name in ("bootstrap_host", "bootstrap_port"):
            count = len(fields[name]) if isinstance(fields[name], list) else 1
            self.check(count == len(numbers), f"{name} for {count} of {len(numbers)} rooms")
        prompt = fields.get("prompt")
        items = len(prompt) if isinstance(prompt, list) and isinstance(prompt[0], str) else 1
        self.check(len(numbers) == items * (fields.get("n") or 1), f"{len(numbers)} rooms")
        self.check(len(set(numbers)) == len(numbers), "a room twice")
        rank = fields.get("routed_dp_rank") or 0
        self.check(0 <= rank < engine.dp_size, f"rank {rank}")
        for number in numbers:
            self.check(type(number) is int and 0 < number < 1 << 63, f"room {number}")
            self.enter(engine, number, rank, fields)
        return [self.rooms[number] for number in numbers]

    def enter(self, engine, number, rank, fields):
        room = self.rooms.setdefault(number, Room())
        self.check(engine.role not in room.ranks, f"room {number} used twice")
        if engine.role == "prefill":
            self.check(number % engine.dp_size == rank, f"room {number} of rank {rank} of {engine.dp_size}")
            self.check("disagg_prefill_dp_rank" not in fields, "the prefill engine was told its own rank")
        elif "disagg_prefill_dp_rank" in fields:
            room.resolved = fields["disagg_prefill_dp_rank"]
        room.ranks[engine.role] = rank
        if len(room.ranks) == 2:
            self.check(getattr(room, "resolved", 0) == room.ranks["prefill"], "the decode engine asks another rank")
            room.both.set()

    def check(self, holds, problem):
        if not holds:
            self.violations.append(problem)
            raise ValueError(problem)

    async def meet(self, rooms):
        """Wait for the partner; one that does not come fails the room."""
        try:
            async with asyncio.timeout(self.missing_leg_s):
                for room in rooms:
                    await room.both.wait()
        except TimeoutError:
            self.fail(rooms, "the other leg did not come")

    @staticmethod
    def fail(rooms, reason):
        for room in rooms:
            room.failed = room.failed or reason
            room.both.set()
            room.handed.set()


class SglangEngine(PairedEngine):
    """An SGLang engine in prefill or decode mode."""

    def __init__(self, fabric, role, dp_size=1):
        super().__init__(fabric, role, dp_size)
        self.script = SglangEngine.serve
        self.server_info |= {"disaggregation_mode": role, "dp_size": dp_size}
        if role == "prefill":
            self.server_info["disaggregation_bootstrap_port"] = 8_998

    async def serve(self, request, body):
        fields = json.loads(body)
        try:
            rooms = self.fabric.join(self, fields)
        except ValueError as error:
            return error_answer(500, str(error))
        try:
            return await self.serve_in(rooms, request, fields)
        except asyncio.CancelledError:
            self.fabric.fail(rooms, "ABORT")
            raise

    async def serve_in(self, rooms, request, fields):
        fault = self.next_fault()
        if fault is not None and self.role == "prefill":
            await self.gates["prefill"].wait()
            return await fail(request, fault)
        await self.fabric.meet(rooms)
        if self.role == "prefill":
            await self.gates["prefill"].wait()
            for room in rooms:
                room.handed.set()
            await self.gates["answer"].wait()
            failed = next((room.failed for room in rooms if room.failed), None)
            return error_answer(500, failed) if failed else web.json_response({"usage": usage_of(self.cached)})
        for room in rooms:
            await room.handed.wait()
        failed = next((room.failed for room in rooms if room.failed), None)
        if failed is not None:
            return error_answer(500, failed)
        if fault is not None:
            return await fail(request, fault)
        return await self.generate(request, fields)


class VllmFabric:
    """What the engines of one fleet hold for each other."""

    def __init__(self):
        self.held = {}


class VllmEngine(PairedEngine):
    """A vLLM engine with a connector: either does everything, one is asked to hold, the other to pull."""

    def __init__(self, fabric, role):
        super().__init__(fabric, role)
        self.script = VllmEngine.serve
        self.server_info, self.models = {}, [{"id": MODEL, "owned_by": "vllm"}]
        self.engine_id = f"engine-{id(self)}"
        self.tells_params = True

    async def serve(self, request, body):
        fields = json.loads(body)
        params = fields.get("kv_transfer_params") or {}
        fault = self.next_fault()
        if fault is not None:
            await self.gates["prefill"].wait()
            return await fail(request, fault)
        if params.get("do_remote_decode"):
            return await self.prefill(fields)
        if params.get("do_remote_prefill"):
            return await self.pull(request, fields, params)
        return await self.generate(request, fields)

    async def prefill(self, fields):
        await self.gates["prefill"].wait()
        limit = fields.get("max_output_tokens", fields.get("max_completion_tokens", fields.get("max_tokens")))
        if limit != 1 or fields.get("stream") or fields.get("stream_options") or fields.get("min_tokens"):
            return error_answer(400, "a prefill is one token and no stream")
        name = f"cmpl-{len(self.fabric.held)}"
        self.fabric.held[name] = self.engine_id
        params = {
            "do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": [[7, 8]], "tp_size": 1,
            "remote_engine_id": self.engine_id, "remote_request_id": name, "remote_host": "127.0.0.1", "remote_port": 5,
        }  # fmt: skip
        told = {"kv_transfer_params": params} if self.tells_params else {}
        return web.json_response({"id": name, "choices": [], "usage": usage_of(self.cached)} | told)

    async def pull(self, request, fields, params):
        if params["remote_engine_id"] == GONE or self.fabric.held.get(params["remote_request_id"]) is None:
            await asyncio.Event().wait()
        del self.fabric.held[params["remote_request_id"]]
        return await self.generate(request, fields)
