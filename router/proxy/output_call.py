"""A request for output: read, placed, forwarded, carried back."""

import logging

import msgspec

from router.metrics import RequestOutcome
from router.proxy import splice
from router.proxy.api import SHAPES, Api
from router.proxy.asked import Asked, check_model, prepare
from router.proxy.attempt import Attempt
from router.proxy.body import RequestBody
from router.proxy.bounds import check_bounds
from router.proxy.call import Call
from router.proxy.converted import is_as_long
from router.proxy.engine_words import bound_priority, check_query
from router.proxy.interrupt import ExchangeWatch
from router.proxy.named_requests import NamedRequests, encode_rid, make_engine_names, read_rids
from router.proxy.relay import Expected, Relay, Relayed
from wire.ids import Target

_log = logging.getLogger("dovecote.proxy")


class OutputCall:
    """One call of an `Api`."""

    def __init__(self, call: Call, api: Api, named: NamedRequests) -> None:
        self._call = call
        self._parts = call.parts
        self._api = api
        self._named = named
        #: Names that were made for its client's.
        self.engine_names: tuple[str, ...] = ()
        #: Ends its exchange; None before its body was read.
        self._watch: ExchangeWatch | None = None

    async def serve(self) -> RequestOutcome:
        """Serve it; see `Call.run` for what is raised."""
        data = await self._call.read_body()
        body = RequestBody(
            data,
            api=self._api,
            salting=self._call.salting,
            is_trusted=self._call.principal.is_trusted,
        )
        self._watch = ExchangeWatch(self._call.client, self._parts.lookout)
        with self._watch as watch:
            asked = await self._ask(body)
            attempt = Attempt(self._parts, self._call.running, asked, arrived_s=self._call.arrived_s)
            forwarded, drops_usage = body.to_forward()
            if self._call.tenant and not self._call.principal.is_trusted:
                forwarded = self._bound_priority(body, forwarded)
            expected = Expected(
                body.stream, drops_usage, body.choices, body.choices_of_prompt, SHAPES[self._api].untold_status
            )
            rid = body.get("rid")
            self.engine_names = self._call.engine_names = make_engine_names(rid)
            if self.engine_names:
                forwarded = splice.splice(forwarded, put={"rid": encode_rid(rid, self.engine_names)}, cut=())
            names = (self._call.request_id, *read_rids(rid))
            self._named.add(self._call.tenant, names, self)
            try:
                relayed = await self._exchange(attempt, expected, forwarded, watch)
            finally:
                self._named.remove(self._call.tenant, names, self)
        attempt.end(relayed.outcome, relayed.usage)
        self._call.spend(attempt, relayed.usage)
        self._judge_conversion(asked, relayed)
        return self._call.judge(relayed.status, relayed.outcome)

    def _bound_priority(self, body: RequestBody, forwarded: bytes) -> bytes:
        """No tenant overtakes others in an engine's queue further than its key may."""
        said = body.get("priority")
        if said is None:
            return forwarded
        bounded = bound_priority(said, self._call.principal.max_priority)
        if bounded is None:
            return splice.splice(forwarded, put={}, cut=("priority",))
        return splice.splice(forwarded, put={"priority": msgspec.json.encode(bounded)}, cut=())

    # What it is ended by, see `NamedRequest`

    @property
    def targets(self) -> tuple[Target, ...]:
        """See `NamedRequest`."""
        return self._call.targets

    def interrupt(self) -> None:
        """See `NamedRequest`."""
        if self._watch is not None:
            self._watch.abort()

    def _judge_conversion(self, asked: Asked, relayed: Relayed) -> None:
        """Hold the length of a prompt that was converted against what the engine says."""
        usage, form = relayed.usage, asked.conversion
        if form is None or usage is None or usage.prompt_tokens is None or not asked.prompt.is_whole:
            return
        is_equal = is_as_long(asked.prompt.prompt_tokens, usage)
        if self._parts.conversions.judge(asked.model, self._api, form, is_equal=is_equal):
            _log.warning("conversion_unknown api=%s model=%r effect='no exact credit'", self._api.value, asked.model)

    async def _ask(self, body: RequestBody) -> Asked:
        check_bounds(body, self._parts.limits.bounds)
        if self._call.query and not self._call.principal.is_trusted:
            check_query(self._call.query)
        self._call.check_allowed(body.model, *body.adapters)
        check_model(self._parts, body.model, is_needed=SHAPES[self._api].needs_model)
        started_s = self._parts.clock()
        asked = await prepare(self._parts, body, self._call.headers, self._call.request_id, self._call.tenant)
        self._parts.metrics.prompt_preparation.observe(max(0.0, self._parts.clock() - started_s))
        if asked.session is not None:
            return asked
        session = self._parts.fingerprints.identify(asked.prompt.head_hashes, asked.prompt.prompt_tokens)
        return msgspec.structs.replace(asked, session=session)

    async def _exchange(self, attempt: Attempt, expected: Expected, forwarded: bytes, watch: ExchangeWatch) -> Relayed:
        limits = self._parts.limits
        watch.limit_whole(limits.request_s)
        exchange = await self._call.open_placed(attempt, forwarded, watch)
        try:
            self._call.relay = relay = Relay(
                exchange, self._call.client, attempt, watch, limits=limits, own_headers=self._call.own_headers
            )
            return await relay.carry(expected)
        finally:
            exchange.close()
