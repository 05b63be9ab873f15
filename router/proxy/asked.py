"""What a client asks for, as placement sees it: from a checked body to the stimulus of its arrival.

Used by requests that are placed and by dry runs alike, so that a dry run cannot differ from what it foretells.
Remembers nothing but what preparing a prompt keeps of it.
"""

import asyncio

import msgspec
import xxhash

from router.access.tenants import scope_name
from router.errors import RequestError
from router.fleet.breaker import Cause
from router.placement.instructions import RejectReason
from router.placement.stimuli import RequestArrived
from router.prompt import PreparedPrompt, PromptInput
from router.proxy.api import SHAPES
from router.proxy.body import RequestBody
from router.proxy.converted import convert, find_usual_form, is_converted, is_known
from router.proxy.headers import Headers, text_headers
from router.proxy.ports import ProxyParts
from router.proxy.refusal import state_refusal, unknown_model
from router.sessions.identity import SESSION_HEADERS, find_session
from wire.ids import RequestId, SessionId, Target

#: Bodies above this are converted in a thread: some 2 ms.
CONVERTED_INLINE_BYTES = 256 << 10
#: Of a longer body so much of its beginning and its end, and its length, tell it from others.
TELLING_BYTES = 32 << 10


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One request for output."""

    request_id: RequestId
    #: Model asked for; None where any will do.
    model: str | None
    #: Conversation; None where the request names none.
    session: SessionId | None = None
    #: Header or member that named it, `none` without one.
    session_source: str = "none"
    prompt: PreparedPrompt
    #: Longest answer that the client allows; None without a limit.
    max_output_tokens: int | None = None
    #: Answers asked for.
    choices: int = 1
    #: State of one engine that it rests on; None where it can go anywhere.
    pin: str | None = None
    #: Whether the engine is asked to keep its answer.
    keeps_response: bool = False
    #: A pair of ranks may serve it, each a leg; else only one that does everything.
    takes_pair: bool = False
    #: Prompts in it, and whether its answer is streamed.
    prompts: int = 1
    is_stream: bool = False
    #: Whose request it is; empty where there are no tenants.
    tenant: str = ""
    #: How its body was made a chat; None where it was one, or is not converted.
    conversion: str | None = None
    #: Its body, by which it is known where it goes on with no conversation.
    data: bytes = b""

    @property
    def cause(self) -> Cause:
        """What its failures are counted as."""
        return Cause(self.tenant, _digest_body(self.data) if self.session is None else self.session)


def _digest_body(data: bytes) -> int:
    """A number by which a request that comes again is known. Cost: a few microseconds, however long it is."""
    return xxhash.xxh3_64_intdigest(data[:TELLING_BYTES] + data[-TELLING_BYTES:], seed=len(data))


def check_model(parts: ProxyParts, model: str | None, *, is_needed: bool = True) -> None:
    """No work for a model that nobody serves.

    One whose last worker left of late, and a fleet that told nothing yet, are refused later, as out of service.

    Args:
        parts: The parts.
        model: The name asked for.
        is_needed: Whether it has to be named where all workers serve the same.

    Raises:
        RequestError: None is named, or nobody serves it.
    """
    placer = parts.placer
    fleet = placer.fleet
    if not model:
        if is_needed:
            raise RequestError("model is missing; GET /v1/models lists those served", param="model")
        if len({rank.facts.models for rank in fleet.ranks()}) > 1:
            raise RequestError("model is missing: workers here serve different ones", param="model")
        return
    if len(fleet) and not fleet.find_serving(model) and not fleet.is_awaited(model, placer.clock.now_s):
        raise unknown_model(model, parts)


async def prepare(
    parts: ProxyParts, body: RequestBody, headers: Headers, request_id: RequestId, tenant: str = ""
) -> Asked:
    """Prompt and conversation of a body; a conversation that only its prompt tells is left to the caller.

    Args:
        parts: The parts.
        body: The body.
        headers: Lines of the call.
        request_id: Name of the request.
        tenant: Whose it is: conversations and kept state of others are out of its reach.

    Raises:
        RequestError: A member of the body is not what it should be.
    """
    named = not SESSION_HEADERS.isdisjoint([name for name, _ in headers])
    identity = find_session(text_headers(headers) if named else {}, body.identity)
    pin = find_pin(parts, body.pin, tenant)
    session = None if identity.session is None else SessionId(scope_name(tenant, identity.session))
    if session is not None and identity.source == "previous_response_id":
        session = parts.chains.find(session)
    conversion, request = None, body.prompt_input
    if is_converted(body.api):
        conversion = _choose_conversion(parts, body)
        request = await _convert(parts, body, conversion)
    prompt = await parts.prompts.prepare(body.model, request, len(body.data))
    return Asked(
        request_id=request_id,
        model=body.model,
        session=session,
        session_source=identity.source,
        prompt=prompt,
        max_output_tokens=body.max_output_tokens,
        choices=body.choices,
        pin=pin,
        keeps_response=body.keeps_response,
        takes_pair=SHAPES[body.api].generates,
        prompts=body.prompts,
        is_stream=body.stream,
        tenant=tenant,
        conversion=conversion if prompt.uncredited is None else None,
        data=body.data,
    )


def _choose_conversion(parts: ProxyParts, body: RequestBody) -> str | None:
    """How a body is made a chat: first as the engines of its model do by their kind, where they are of one."""

    def find_likely() -> str | None:
        engines = {rank.facts.engine for rank in parts.placer.fleet.find_serving(body.model)}
        return find_usual_form(body.api, engines.pop()) if len(engines) == 1 else None

    return parts.conversions.choose(body.model, body.api, find_likely=find_likely)


async def _convert(parts: ProxyParts, body: RequestBody, conversion: str | None) -> PromptInput:
    """What makes the prompt of a body that has to be converted; of a long one off the event loop."""
    if len(body.data) <= CONVERTED_INLINE_BYTES or is_known(body, conversion, parts.chats):
        return convert(body, conversion, parts.chats)
    return await asyncio.to_thread(convert, body, conversion, parts.chats)


def find_pin(parts: ProxyParts, name: str | None, tenant: str) -> str | None:
    """The pin of state that a tenant names.

    Where there are no tenants, what nobody has heard of may be known to the only engine; with them it may be another
    one's, and so does not exist.

    Raises:
        UnknownStateError: The tenant is not known to have it.
    """
    if name is None or not tenant:
        return name
    pin, placer = scope_name(tenant, name), parts.placer
    if placer.pins.look_up(pin, placer.clock.now_s) is None:
        raise state_refusal(RejectReason.UNKNOWN_STATE)
    return pin


def arrive(
    parts: ProxyParts, asked: Asked, *, excluded: frozenset[Target] = frozenset(), now_s: float
) -> RequestArrived:
    """The stimulus: what every rank holds of the prompt now, and by which guess."""
    prompt, chain = asked.prompt, asked.prompt.plain
    overlaps = parts.reuse.find_reuse(prompt.chains) if prompt.chains else {}
    options = {} if chain is None else parts.reuse.find_options(chain, prompt.pairs, overlaps)
    guesses = {} if prompt.text is None else parts.prompts.approximate.find_reuse(prompt.text, prompt.prompt_tokens)
    return RequestArrived(
        now_s=now_s,
        request_id=asked.request_id,
        model=asked.model,
        prompt_tokens=prompt.prompt_tokens,
        overlaps={**overlaps, **guesses} if overlaps else guesses,
        session=asked.session,
        max_output_tokens=asked.max_output_tokens,
        prompts=asked.prompts,
        excluded=excluded,
        chain_hashes=() if chain is None else chain.hashes,
        chain_block_tokens=0 if chain is None else chain.block_tokens,
        credit=prompt.credit,
        approximate=guesses.keys(),
        options=options,
        pin=asked.pin,
        takes_pair=asked.takes_pair,
        cause=asked.cause if parts.placer.breakers else None,
    )
