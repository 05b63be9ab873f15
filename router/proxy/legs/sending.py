"""Sends a placed request: to one rank or as two legs, and once more elsewhere where nobody can have begun.

Nobody can have begun where a connection did not come about. Of two legs that wait for each other the one that was sent
cannot have begun either: it is aborted, and the pair is chosen anew with a new room. Where the prefill leg is done,
only a rank to generate is chosen anew. Everything else that goes wrong is told to the client.
Source: docs/faults.md C01, C19.
"""

import asyncio
import math
from typing import TYPE_CHECKING

import msgspec

from router.errors import DovecoteError, FleetError, PassingError, UpstreamUnreachableError
from router.fleet.breaker import Verdict
from router.fleet.rank import RankFacts
from router.fleet.role import Engine
from router.placement.instructions import Place
from router.placement.stimuli import Outcome
from router.proxy.interrupt import ExchangeWatch
from router.proxy.legs import bodies
from router.proxy.legs.aborts import abort_on_engine
from router.proxy.legs.addressing import address_body, name_headers, reads_name
from router.proxy.legs.machine import Deliver, Leg, Order, Retry
from router.proxy.legs.pair import PairExchange, PrefillError, ReadAnswer, WholeAnswer
from router.proxy.legs.parts import SendingParts
from router.proxy.named_requests import make_engine_name
from router.proxy.sse import StreamScanner, Usage, read_usage
from router.proxy.upstream import Exchange
from router.proxy.verdicts import FULL_STATUSES, judge_status, read_retry_after_s
from wire.ids import Target

if TYPE_CHECKING:
    from router.proxy.attempt import Attempt
    from router.proxy.call import Call


class HandedOver(msgspec.Struct, frozen=True):
    """A prefill that is done and waits for a rank to generate."""

    prefill: Target
    #: What its engine said of where the cache is, as JSON.
    params: bytes


class Sending:
    """One request on its way to a worker that takes it."""

    def __init__(
        self, call: "Call", attempt: "Attempt", forwarded: bytes, parts: SendingParts, watch: ExchangeWatch
    ) -> None:
        self.call = call
        self.attempt = attempt
        self.forwarded = forwarded
        self.parts = parts
        self._watch = watch
        self._begun_s = call.parts.clock()
        self._attempts = 0
        #: The client named it, in its body: engines know it by a name that was made of that.
        self.is_named = bool(call.engine_names)
        self.handed: HandedOver | None = None

    async def open(self) -> Exchange:
        """An exchange with the rank or pair chosen.

        Raises:
            DovecoteError: None can take it, or a worker failed.
        """
        self.parts.retries.count_request()
        place = await self.call.admit(self.attempt)
        while True:
            self._attempts += 1
            # What it waited for a place is no silence of the worker.
            self._watch.limit(self.call.parts.limits.first_byte_s)
            try:
                return await (self._send_whole(place.target) if place.prefill is None else self._send_pair(place))
            except _RefusedError as refused:
                self._exclude(refused.target)
                pause_s = self.parts.retries.take(self._attempts)
                if pause_s is None:
                    raise refused.error from None
            await asyncio.sleep(pause_s)
            place = await self._place_again()

    async def _place_again(self) -> Place:
        """Raises where there is no other rank; a request that was refused elsewhere is told of that, or waits."""
        try:
            place = self.attempt.place(prefilled_by=None if self.handed is None else self.handed.prefill)
        except FleetError as error:
            place = await self._wait_for_place(error)
        self.call.parts.metrics.retries.inc()
        return place

    async def _wait_for_place(self, error: FleetError) -> Place:
        """A place as for a request that comes in this moment, where those wait; a prefill that is done does not."""
        call, admission = self.call, self.call.parts.admission
        if self.handed is not None or not isinstance(error, PassingError) or not admission.is_waited_out(error):
            raise UpstreamUnreachableError(
                "the chosen worker does not accept connections, and there is no other"
            ) from None
        self._watch.limit(math.inf)
        self.attempt.readmit_workers()
        waited_s = call.parts.clock() - self._begun_s
        return await admission.place(self.attempt, call.tenant, call.read_priority(), waited_s=waited_s)

    def _exclude(self, target: Target) -> None:
        self.call.count_upstream(UpstreamUnreachableError.code, target)
        self.call.tell_verdict(Verdict.FAILED, target=target, is_unreached=True)
        self.attempt.exclude_worker(target)

    async def _send_whole(self, target: Target) -> Exchange:
        call = self.call
        call.legs, self.attempt.on_output = (), None
        facts = call.find_facts(target)
        headers = call.forward_headers(target)
        if not self.is_named:
            call.engine_names = (make_engine_name(),) if reads_name(facts, call.path) else ()
            headers += [line for name in call.engine_names for line in name_headers(name)]
        try:
            url = call.find_url(target)
            exchange = await call.parts.upstream.open(url, headers, address_body(self.forwarded, facts, call.path))
        except UpstreamUnreachableError as error:
            raise _RefusedError(target, error) from error
        if exchange.status in FULL_STATUSES:
            call.tell_verdict(Verdict.FULL, retry_after_s=read_retry_after_s(exchange.headers))
        return exchange

    async def _send_pair(self, place: Place) -> Exchange:
        call = self.call
        if not self.is_named:
            call.engine_names = (make_engine_name(),)
        legs = _LegSender(self, place)
        is_stream, lookout = self.attempt.asked.is_stream, call.parts.lookout
        pair = PairExchange(legs, legs.order, self.parts.limits, lookout, is_stream=is_stream)
        self.attempt.on_output = pair.see_output
        call.legs = tuple(legs.targets.values())
        call.name_server(place.target)
        decision = await pair.open()
        target = legs.targets[decision.leg]
        if isinstance(decision, Retry):
            self.handed = legs.handed
            error = pair.errors[decision.leg]
            raise _RefusedError(target, error) from error
        if not isinstance(decision, Deliver):
            raise pair.errors[decision.leg]
        answer = pair.prefill_answer if decision.leg is Leg.PREFILL else None
        exchange: Exchange = pair if answer is None else ReadAnswer(answer)
        if exchange.status in FULL_STATUSES:
            call.tell_verdict(Verdict.FULL, retry_after_s=read_retry_after_s(exchange.headers))
        return exchange


def abandon(call: "Call") -> None:
    """Nobody waits for an answer any more: its engine is told. A pair tells both of its engines by itself."""
    if call.target is not None and not call.legs:
        key = call.parts.fleet.find_key(call.target.worker)
        facts, background = call.find_facts(call.target), call.parts.sending.background
        abort_on_engine(call.parts.upstream, background, facts, call.engine_names, key)


class _RefusedError(Exception):
    """A worker saw nothing of the request; placed elsewhere it may go well."""

    def __init__(self, target: Target, error: DovecoteError) -> None:
        super().__init__(str(error))
        self.target = target
        self.error = error


class _LegSender:
    """Sends the legs of one pair in the way of its engine, and hears of them; see `PairEdge`."""

    def __init__(self, sending: Sending, place: Place) -> None:
        self._sending = sending
        self._call, self._attempt = sending.call, sending.attempt
        self._forwarded, self._parts = sending.forwarded, sending.parts
        self.targets = {Leg.PREFILL: place.prefill or place.target, Leg.DECODE: place.target}
        self._facts = {leg: self._call.find_facts(target) for leg, target in self.targets.items()}
        #: What a vLLM prefill engine said; kept where only the decode leg is sent anew.
        self.handed = sending.handed
        decode = self._facts[Leg.DECODE]
        self._is_sglang = decode is not None and decode.engine is Engine.SGLANG
        self._rooms = self._mint(max(1, self._attempt.asked.choices)) if self._is_sglang else ()
        self.order = self._find_order()
        if self.order is Order.DECODE_ONLY and self.handed is None:
            self._attempt.skip_prefill()

    def _find_order(self) -> Order:
        if self._is_sglang:
            return Order.TOGETHER
        # One transfer is for one prompt: of several the decode engine computes all itself.
        is_one = self._attempt.asked.prompts == 1
        return Order.PREFILL_FIRST if is_one and self.handed is None else Order.DECODE_ONLY

    def _mint(self, count: int) -> tuple[int, ...]:
        prefill = self._facts[Leg.PREFILL]
        dp_size = 1 if prefill is None else prefill.dp_size
        return tuple(self._parts.rooms.mint(self.targets[Leg.PREFILL].dp_rank, dp_size) for _ in range(count))

    async def open_leg(self, leg: Leg) -> Exchange:
        """See `PairEdge`."""
        call, target = self._call, self.targets[leg]
        facts = self._facts[leg]
        body = self._write_sglang(leg, facts) if self._is_sglang else self._write_vllm(leg)
        url = call.find_url(target)
        return await call.parts.upstream.open(url, call.write_headers(target), body)

    def _write_sglang(self, leg: Leg, facts: RankFacts | None) -> bytes:
        prefill = self._facts[Leg.PREFILL]
        if prefill is None or facts is None or prefill.bootstrap is None:
            raise FleetError("the prefill worker left the fleet; try again")
        told = bodies.SglangLeg(
            bootstrap=prefill.bootstrap,
            rooms=self._rooms,
            rid=None if self._sending.is_named else self._call.engine_names[0],
            dp_rank=facts.target.dp_rank if facts.dp_size > 1 else None,
            prefill_dp_rank=prefill.target.dp_rank if leg is Leg.DECODE and prefill.dp_size > 1 else None,
        )
        return bodies.write_sglang_leg(self._forwarded, told)

    def _write_vllm(self, leg: Leg) -> bytes:
        if leg is Leg.PREFILL:
            return bodies.write_vllm_prefill(self._forwarded)
        return self._forwarded if self.handed is None else bodies.write_vllm_decode(self._forwarded, self.handed.params)

    def take_prefill(self, answer: WholeAnswer) -> None:
        """See `PairEdge`."""
        self._attempt.see_prefill_usage(read_prefill_usage(answer.body))
        self._call.tell_verdict(judge_status(answer.status), target=self.targets[Leg.PREFILL])
        if not self._is_sglang:
            self.handed = HandedOver(self.targets[Leg.PREFILL], bodies.read_transfer_params(answer.body))

    def abort_leg(self, leg: Leg) -> None:
        """See `PairEdge`."""
        parts = self._call.parts
        key = parts.fleet.find_key(self.targets[leg].worker)
        abort_on_engine(parts.upstream, self._parts.background, self._facts[leg], self._call.engine_names, key)

    def release_prefill(self, *, is_done: bool) -> None:
        """See `PairEdge`."""
        self._attempt.end_prefill(Outcome.DONE if is_done else Outcome.CANCELLED)

    def blame(self, leg: Leg) -> None:
        """See `PairEdge`."""
        self._call.name_server(self.targets[leg])

    def hold(self, task: "asyncio.Task[None]") -> None:
        """See `PairEdge`."""
        self._parts.background.hold(task)


class _Answer(msgspec.Struct):
    usage: object = None
    meta_info: object = None


_ANSWER = msgspec.json.Decoder(_Answer)


def read_prefill_usage(body: bytes) -> Usage:
    """Counts of a prefill leg's answer, whole or streamed; nothing where it says none.

    Raises:
        PrefillError: Its stream has an error in it.
    """
    if not body.lstrip().startswith(b"{"):
        scanner = StreamScanner()
        scanner.feed(body)
        scanner.finish()
        if scanner.has_error:
            raise PrefillError("the prefill worker's stream ended in an error")
        return scanner.to_usage()
    try:
        answer = _ANSWER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Usage()
    return read_usage(answer.usage if answer.usage is not None else answer.meta_info) or Usage()
