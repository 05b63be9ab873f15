"""A request for output: read, placed, forwarded, carried back."""

import msgspec

from router.metrics import RequestOutcome
from router.proxy.api import Api
from router.proxy.asked import Asked, check_model, prepare
from router.proxy.attempt import Attempt
from router.proxy.body import RequestBody
from router.proxy.call import Call
from router.proxy.interrupt import ExchangeWatch
from router.proxy.relay import Relay, Relayed


class OutputCall:
    """One call of an `Api`."""

    def __init__(self, call: Call, api: Api) -> None:
        self._call = call
        self._parts = call.parts
        self._api = api

    async def serve(self) -> RequestOutcome:
        """Serve it; see `Call.run` for what is raised."""
        data = await self._call.read_body()
        body = RequestBody(data, api=self._api, known=self._parts.known_bodies, salting=self._call.salting)
        async with ExchangeWatch(self._call.client) as watch:
            attempt = Attempt(self._parts, self._call.running, await self._ask(body), arrived_s=self._call.arrived_s)
            forwarded, drops_usage = body.to_forward()
            relayed = await self._exchange(attempt, body, forwarded, drops_usage, watch)
        attempt.end(relayed.outcome, relayed.usage)
        return self._call.judge(relayed.status, relayed.outcome)

    async def _ask(self, body: RequestBody) -> Asked:
        self._call.check_allowed(body.model)
        check_model(self._parts, body.model)
        started_s = self._parts.clock()
        asked = await prepare(self._parts, body, self._call.headers, self._call.request_id, self._call.principal.tenant)
        self._parts.metrics.prompt_preparation.observe(max(0.0, self._parts.clock() - started_s))
        if asked.session is not None:
            return asked
        session = self._parts.fingerprints.identify(asked.prompt.head_hashes, asked.prompt.prompt_tokens)
        return msgspec.structs.replace(asked, session=session)

    async def _exchange(
        self, attempt: Attempt, body: RequestBody, forwarded: bytes, drops_usage: bool, watch: ExchangeWatch
    ) -> Relayed:
        limits = self._parts.limits
        watch.limit_whole(limits.request_s)
        watch.limit(limits.first_byte_s)
        exchange = await self._call.open_placed(attempt, forwarded)
        try:
            self._call.relay = relay = Relay(
                exchange, self._call.client, attempt, watch, limits=limits, own_headers=self._call.own_headers
            )
            return await relay.carry(wants_stream=body.stream, drop_usage_chunk=drops_usage, choices=body.choices)
        finally:
            exchange.close()
