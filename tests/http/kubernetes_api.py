"""A Kubernetes API server as far as EndpointSlices go: pages, watches with versions and bookmarks, 410, lost lines."""

import asyncio
import json
from contextlib import asynccontextmanager

from aiohttp import web


def endpoint(address, name, **conditions):
    return {"addresses": [address], "conditions": conditions, "targetRef": {"kind": "Pod", "name": name}}


def make_slice(name, *endpoints, port=30_000, version="1"):
    return {
        "metadata": {"name": name, "resourceVersion": version},
        "addressType": "IPv4",
        "endpoints": list(endpoints),
        "ports": [{"name": "http", "port": port}],
    }


class FakeApi:
    """Holds slices by name; every change gets the next version and goes to the watches that are open."""

    def __init__(self):
        self.url = ""
        self.version = 1
        self.slices = {}
        self.token = "secret"
        self.asked = []
        #: Versions below this one are forgotten.
        self.oldest = 0
        self.history = []
        self.watches = set()
        self.page_size = 500

    @property
    def lists(self):
        """Lists begun."""
        return sum("watch" not in query and "continue" not in query for query in self.asked)

    def put(self, each):
        self.version += 1
        each["metadata"]["resourceVersion"] = str(self.version)
        kind = "MODIFIED" if each["metadata"]["name"] in self.slices else "ADDED"
        self.slices[each["metadata"]["name"]] = each
        self._tell(kind, each)

    def delete(self, name):
        self.version += 1
        gone = self.slices.pop(name)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._tell("DELETED", gone)

    def bookmark(self):
        self._tell("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})

    def _tell(self, kind, each):
        line = json.dumps({"type": kind, "object": each}).encode() + b"\n"
        self.history.append((self.version, line))
        for queue in self.watches:
            queue.put_nowait(line)

    def forget(self):
        """The history is compacted: watches from before get 410."""
        self.oldest = self.version + 1

    def cut(self, line=None):
        """End every watch, after a last line where one is given."""
        for queue in self.watches:
            if line is not None:
                queue.put_nowait(line)
            queue.put_nowait(None)

    async def answer(self, request):
        self.asked.append(dict(request.query))
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return web.Response(status=401)
        return await self._watch(request) if "watch" in request.query else self._list(request)

    def _list(self, request):
        names = sorted(self.slices)
        begin = int(request.query.get("continue", "0"))
        page = names[begin : begin + self.page_size]
        more = str(begin + self.page_size) if begin + self.page_size < len(names) else ""
        metadata = {"resourceVersion": str(self.version), "continue": more}
        return web.json_response({"items": [self.slices[name] for name in page], "metadata": metadata})

    async def _watch(self, request):
        version = int(request.query["resourceVersion"])
        if version < self.oldest:
            return web.json_response({"kind": "Status", "code": 410}, status=410)
        response = web.StreamResponse()
        await response.prepare(request)
        queue = asyncio.Queue()
        for number, line in self.history:
            if number > version:
                queue.put_nowait(line)
        self.watches.add(queue)
        try:
            while (line := await queue.get()) is not None:
                await response.write(line)
        finally:
            self.watches.discard(queue)
        return response


@asynccontextmanager
async def serving(api):
    app = web.Application()
    app.router.add_get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", api.answer)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield api
    finally:
        await runner.cleanup()
