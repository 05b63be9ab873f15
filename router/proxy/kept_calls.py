"""Calls about state that one engine keeps: sessions opened and closed, responses read, deleted and cancelled.

A session is opened on a rank that placement chooses and stays there. All other calls go to the worker that keeps what
they name, or are refused; none is sent anywhere else.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from router.access.tenants import scope_name
from router.errors import RequestError, UpstreamUnreachableError
from router.metrics import RequestOutcome
from router.placement.instructions import RejectReason
from router.placement.stimuli import StateDropped
from router.prompt import PreparedPrompt
from router.proxy import splice
from router.proxy.asked import Asked, check_model
from router.proxy.attempt import Attempt
from router.proxy.bystander import Bystander
from router.proxy.call import Call
from router.proxy.headers import text_headers
from router.proxy.interrupt import ExchangeWatch
from router.proxy.kept import check_id, check_path_id, is_id, name_response, name_session
from router.proxy.ports import ProxyParts
from router.proxy.refusal import no_worker, state_refusal
from router.proxy.relay import Relay, Relayed, Witness
from router.proxy.upstream import Exchange
from router.sessions.identity import find_session
from wire.ids import SessionId, Target

#: What placement is told of opening a session: next to no work.
_NO_PROMPT = PreparedPrompt(prompt_tokens=1, credit="none: a session is opened")


class OpenSession:
    """`POST /open_session`: SGLang keeps what a session's requests leave until it is closed."""

    def __init__(self, call: Call, opening: set[str]) -> None:
        """Take the call.

        Args:
            call: The call.
            opening: Ids under which sessions are being opened now; shared by all calls.
        """
        self._call = call
        self._parts = call.parts
        self._opening = opening

    async def serve(self) -> RequestOutcome:
        """Serve it; see `Call.run` for what is raised."""
        data = await self._call.read_body()
        fields = decode_fields(data)
        wanted = None if fields.get("session_id") is None else check_id(fields["session_id"], "session_id")
        model = self._check_model(fields.get("model"))
        forwarded = splice.splice(data, put={}, cut=["model"]) if "model" in fields else data
        if wanted is None:
            return await self._open(forwarded, model, None)
        opening = scope_name(self._call.tenant, wanted)
        if opening in self._opening:
            raise RequestError("a session of this id is being opened", param="session_id")
        self._opening.add(opening)
        try:
            return await self._open(forwarded, model, wanted)
        finally:
            self._opening.discard(opening)

    def _check_model(self, model: Any) -> str | None:
        """Model the session is for; a fleet that serves several has to be told."""
        if model is not None and not isinstance(model, str):
            raise RequestError("model must be str", param="model")
        self._call.check_allowed(model)
        fleet = self._parts.placer.fleet
        if model is not None:
            check_model(self._parts, model)
        elif len({rank.facts.models for rank in fleet.ranks()}) > 1:
            raise RequestError("model is missing: workers here serve different ones", param="model")
        return model

    async def _open(self, forwarded: bytes, model: str | None, wanted: str | None) -> RequestOutcome:
        attempt = Attempt(self._parts, self._call.running, self._ask(model, wanted), arrived_s=self._call.arrived_s)

        def see(status: int, body: bytes) -> None:
            session_id = read_session_id(body) if status < 300 else None
            if session_id is not None:
                attempt.keep(name_session(session_id))

        with ExchangeWatch(self._call.client, self._parts.lookout) as watch:
            watch.limit_whole(self._parts.limits.request_s)
            exchange = await self._call.open_placed(attempt, forwarded, watch)
            relayed = await carry(self._call, exchange, attempt, watch, see)
        attempt.end(relayed.outcome)
        return self._call.judge(relayed.status, relayed.outcome)

    def _ask(self, model: str | None, wanted: str | None) -> Asked:
        placer = self._parts.placer
        tenant = self._call.tenant
        name = None if wanted is None else scope_name(tenant, name_session(wanted))
        known = None if name is None else placer.pins.look_up(name, placer.clock.now_s)
        session = find_session(text_headers(self._call.headers), {}).session
        return Asked(
            request_id=self._call.request_id,
            model=model,
            session=None if session is None else SessionId(scope_name(tenant, session)),
            prompt=_NO_PROMPT,
            max_output_tokens=1,
            # The engine that has a session of that id says so itself.
            pin=None if known is None or known.is_lost else name,
            tenant=tenant,
        )


class UseKept:
    """A call that goes to the worker which keeps what it names."""

    def __init__(self, call: Call, name: str, data: bytes, *, drops: bool) -> None:
        """Take the call.

        Args:
            call: The call.
            name: Pin of what it names, of its tenant.
            data: Its body.
            drops: Whether the state is gone once the worker has agreed.
        """
        self._call = call
        self._parts = call.parts
        self._tenant = call.tenant
        self._name = scope_name(self._tenant, name)
        self._data = data
        self._drops = drops

    async def serve(self) -> RequestOutcome:
        """Serve it; see `Call.run` for what is raised."""
        target = self._find()
        with ExchangeWatch(self._call.client, self._parts.lookout) as watch:
            limit(watch, self._parts)
            exchange = await self._open(target)
            relayed = await carry(self._call, exchange, Bystander(), watch, self._see)
        return self._call.judge(relayed.status, relayed.outcome)

    def _find(self) -> Target:
        """The rank that keeps it. What nobody has heard of is at home where there is one worker, and no tenants."""
        placer = self._parts.placer
        pin = placer.pins.find(self._name, placer.clock.now_s)
        if not len(placer.fleet):
            raise no_worker(self._parts)
        if pin is None:
            targets = [rank.facts.target for rank in placer.fleet.ranks()]
            if self._tenant or len({target.worker for target in targets}) != 1:
                raise state_refusal(RejectReason.UNKNOWN_STATE)
            target = targets[0]
        else:
            target = pin.target
        rank = placer.fleet.find(target)
        if rank is None or (pin is not None and pin.is_lost):
            raise state_refusal(RejectReason.LOST_STATE)
        if not rank.facts.healthy:
            raise state_refusal(RejectReason.PINNED_ELSEWHERE)
        return target

    async def _open(self, target: Target) -> Exchange:
        try:
            return await self._call.open_at(target, self._data)
        except UpstreamUnreachableError as error:
            raise state_refusal(RejectReason.LOST_STATE) from error

    def _see(self, status: int, _body: bytes) -> None:
        if self._drops and status < 300:
            placer = self._parts.placer
            placer.handle(StateDropped(now_s=self._parts.clock(), name=self._name))


async def close_session(call: Call) -> RequestOutcome:
    """`POST /close_session`; see `Call.run` for what is raised."""
    data = await call.read_body()
    name = name_session(check_id(decode_fields(data).get("session_id"), "session_id"))
    return await UseKept(call, name, data, drops=True).serve()


async def use_response(call: Call, response_id: str) -> RequestOutcome:
    """`/v1/responses/{id}`: read, delete, cancel; see `Call.run` for what is raised."""
    name = name_response(check_path_id(response_id))
    data = await call.read_body()
    return await UseKept(call, name, data, drops=call.method == "DELETE").serve()


def limit(watch: ExchangeWatch, parts: ProxyParts) -> None:
    """Start the timers of an exchange."""
    watch.limit_whole(parts.limits.request_s)
    watch.limit(parts.limits.first_byte_s)


async def carry(
    call: Call,
    exchange: Exchange,
    witness: Witness,
    watch: ExchangeWatch,
    see: Callable[[int, bytes], None],
    *,
    is_opaque: bool = False,
) -> Relayed:
    """Carry an answer back as it is, and close the exchange."""
    try:
        limits = call.parts.limits
        call.relay = Relay(exchange, call.client, witness, watch, limits=limits, own_headers=call.own_headers)
        return await call.relay.carry_as_it_is(see, is_opaque=is_opaque)
    finally:
        exchange.close()


def decode_fields(data: bytes) -> dict[str, Any]:
    """Members of a small body.

    Raises:
        RequestError: It is no JSON object.
    """
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError("the body is not a JSON object") from error


def read_session_id(body: bytes) -> str | None:
    """Name of the session that an engine opened; None where it says none."""
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return said if is_id(said) else None
