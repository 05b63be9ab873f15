"""`POST /abort_request`: ends a running request by its name, at every engine that has a share of it.

The name is the client's `rid` or the request's id. An engine that was given a name is told to end that one; one that
was not, or does not know how, loses its connection, which ends the request anywhere. A name that nobody has here is no
error; one that a router made may be another router's, and every worker is told of it.
"""

import asyncio
import logging

import msgspec

from router.errors import RequestError
from router.metrics import RequestOutcome
from router.proxy import respond
from router.proxy.call import Call
from router.proxy.kept import check_id
from router.proxy.kept_calls import decode_fields
from router.proxy.legs.aborts import ask_to_abort
from router.proxy.named_requests import NamedRequest, NamedRequests, is_engine_name
from router.proxy.usable import UsableRanks
from wire.ids import Target

#: How long an engine may take to say that it ended a request.
ABORT_S = 5.0
#: Most workers that are told of a name which nobody has here.
MAX_WORKERS = 64
_log = logging.getLogger("dovecote.proxy")
_JSON = [(b"content-type", b"application/json")]


class AbortCall:
    """One such call."""

    def __init__(self, call: Call, named: NamedRequests, ranks: UsableRanks) -> None:
        self._call = call
        self._named = named
        self._ranks = ranks

    async def serve(self) -> RequestOutcome:
        """Serve it; see `Call.run` for what is raised."""
        fields = decode_fields(await self._call.read_body())
        if fields.get("abort_all"):
            raise RequestError("abort_all would end the requests of others; end each by its rid", param="abort_all")
        rid = check_id(fields.get("rid"), "rid")
        found = self._named.find(self._call.tenant, rid)
        await asyncio.gather(*(self._end(request) for request in found))
        if not found and is_engine_name(rid):
            await self._tell(rid, self._find_workers())
        body = msgspec.json.encode({"aborted": len(found)})
        own = list(self._call.own_headers.items())
        await respond.send_whole(self._call.client, 200, [*_JSON, *own], body)
        return RequestOutcome.DONE

    async def _end(self, request: NamedRequest) -> None:
        told = [done for name in request.engine_names for done in await self._tell(name, request.targets)]
        if not told or not all(told):
            request.interrupt()

    def _find_workers(self) -> tuple[Target, ...]:
        """One rank of each worker that takes requests."""
        ranks = {target.worker: target for target in self._ranks.find(None)}
        return tuple(ranks.values())[:MAX_WORKERS]

    async def _tell(self, name: str, targets: tuple[Target, ...]) -> list[bool]:
        """Tell each worker once; whether each has done it."""
        workers = {target.worker: target for target in targets}
        return await asyncio.gather(*(self._tell_one(name, target) for target in workers.values()))

    async def _tell_one(self, name: str, target: Target) -> bool:
        url = self._call.parts.fleet.find_url(target)
        if url is None:
            return False
        headers = [line for line in self._call.forward_headers(target) if line[0] != b"content-type"]
        status = await ask_to_abort(self._call.parts.upstream, url, headers, name, limit_s=ABORT_S)
        _log.info("aborted request=%s worker=%s status=%d", name, target.worker, status)
        return 200 <= status < 300
