"""A fake engine that keeps responses and sessions, and answers as SGLang and vLLM do where it has none of that id."""

import json
from itertools import count

from aiohttp import web
from fake_engine import MODEL, WHOLE, FakeEngine, event, open_stream

USAGE = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 2, "total_tokens": 11}
_NUMBERS = count(1)


def named(kind, **fields):
    """An event of the Responses API."""
    return f"event: {kind}\n".encode() + event({"type": kind, **fields})


def refuse(status, message):
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": status}
    return web.json_response({"error": error}, status=status)


class KeepingEngine(FakeEngine):
    """State by id, gone with the process."""

    def __init__(self):
        super().__init__()
        self.responses, self.sessions = {}, {}
        self.server_info |= {"start_time_s": next(_NUMBERS)}
        #: Every call about state: method, path with query, body.
        self.calls = []
        self.script = keeping
        #: Pieces that a stream of a response ends with; None for its usual end.
        self.stream_end = None

    def restart(self):
        """Another process in its place."""
        self.responses, self.sessions = {}, {}
        self.server_info |= {"start_time_s": next(_NUMBERS)}

    def app(self):
        app = super().app()
        app.router.add_post("/v1/responses", self.complete)
        app.router.add_route("*", "/v1/responses/{id}", self.use_response)
        app.router.add_post("/v1/responses/{id}/cancel", self.use_response)
        app.router.add_post("/open_session", self.open_session)
        app.router.add_post("/close_session", self.close_session)
        return app

    async def note(self, request):
        body = await request.read()
        self.calls.append((request.method, request.path_qs, body))
        return json.loads(body) if body else {}

    async def use_response(self, request):
        await self.note(request)
        found = self.responses.get(request.match_info["id"])
        if found is None:
            return refuse(404, f"Response with id '{request.match_info['id']}' not found.")
        if request.method == "DELETE":
            del self.responses[request.match_info["id"]]
            return web.json_response({"id": found["id"], "deleted": True})
        if "stream=true" in request.query_string:
            stream = await open_stream(request)
            await stream.write(named("response.completed", response=found))
            return stream
        return web.json_response(found)

    async def open_session(self, request):
        fields = await self.note(request)
        name = fields.get("session_id") or f"session-{next(_NUMBERS)}"
        if name in self.sessions:
            return refuse(400, "Failed to open the session. Check if a session with the same id is still open.")
        self.sessions[name] = []
        return web.json_response(name)

    async def close_session(self, request):
        fields = await self.note(request)
        self.sessions.pop(fields["session_id"], None)
        return web.Response(status=200)

    def respond(self, fields):
        """A response, kept where it is to be."""
        response = {"id": f"resp_{next(_NUMBERS):016x}", "object": "response", "model": MODEL, "status": "completed"}
        if fields.get("store") is not False:
            self.responses[response["id"]] = response | {"usage": USAGE}
        return response


async def keeping(engine, request, body):
    """What rests on kept state is answered where it is kept, refused elsewhere."""
    fields = json.loads(body)
    session = (fields.get("session_params") or {}).get("id")
    if session is not None and session not in engine.sessions:
        return refuse(400, f"Invalid request: session id {session} does not exist")
    if request.path != "/v1/responses":
        return web.json_response(WHOLE)
    before = fields.get("previous_response_id")
    if before is not None and before not in engine.responses:
        return refuse(404, f"Response with id '{before}' not found.")
    response = engine.respond(fields)
    if not fields.get("stream"):
        return web.json_response(response | {"usage": USAGE})
    return await stream_response(engine, request, response)


async def stream_response(engine, request, response):
    stream = await open_stream(request)
    begun = response | {"status": "in_progress", "usage": None}
    pieces = [
        named("response.created", response=begun, sequence_number=0),
        named("response.in_progress", response=begun, sequence_number=1),
        named("response.output_text.delta", delta="ab", sequence_number=2),
        named("response.output_text.delta", delta='c "response" d', sequence_number=3),
        named("response.output_text.done", text='abc "response" d', sequence_number=4),
    ]
    usual = [named("response.completed", response=response | {"usage": USAGE}, sequence_number=5)]
    for piece in pieces + (usual if engine.stream_end is None else engine.stream_end):
        await stream.write(piece)
    return stream
