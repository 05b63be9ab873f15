"""Calls that an engine answers without its model: `/tokenize`, `/detokenize`, `count_tokens`.

Nothing is charged. Counting a conversation goes where its next turn would go, and leaves its prompt prepared for that;
all else goes to a healthy rank that serves the model, in turn. A worker that refuses the connection is passed over.
"""

import msgspec

from router.errors import RequestError, UpstreamUnreachableError
from router.metrics import RequestOutcome
from router.proxy.api import Api
from router.proxy.asked import arrive, check_model, prepare
from router.proxy.body import RequestBody
from router.proxy.bystander import Bystander
from router.proxy.call import MAX_ATTEMPTS, Call
from router.proxy.interrupt import ExchangeWatch
from router.proxy.kept_calls import carry, decode_fields, limit
from router.proxy.upstream import Exchange
from router.proxy.usable import UsableRanks
from wire.ids import Target, WorkerId

#: Paths of vLLM and SGLang.
TOKEN_PATHS = frozenset({"/tokenize", "/v1/tokenize", "/detokenize", "/v1/detokenize"})
COUNT_PATH = f"{Api.MESSAGES}/count_tokens"


async def serve_tokens(call: Call, ranks: UsableRanks) -> RequestOutcome:
    """Ids of a text or conversation, or text of ids; see `Call.run` for what is raised."""
    data = await call.read_body()
    model = decode_fields(data).get("model")
    if model is not None and not isinstance(model, str):
        raise RequestError("model must be str", param="model")
    call.check_allowed(model)
    check_model(call.parts, model, is_needed=False)
    return await _ask_rank(call, ranks, data, model, None)


async def count_tokens(call: Call, ranks: UsableRanks) -> RequestOutcome:
    """Length of a conversation in Anthropic's form; see `Call.run` for what is raised."""
    data = await call.read_body()
    body = RequestBody(data, api=Api.MESSAGES, salting=call.salting)
    call.check_allowed(body.model)
    check_model(call.parts, body.model)
    return await _ask_rank(call, ranks, data, body.model, await _find_home(call, body))


async def _find_home(call: Call, body: RequestBody) -> Target | None:
    """Where the conversation's next turn would go; None where none could take it."""
    parts = call.parts
    asked = await prepare(parts, body, call.headers, call.request_id, call.tenant)
    if asked.session is None and asked.prompt.head_hashes:
        session = parts.fingerprints.find(asked.prompt.head_hashes, asked.prompt.prompt_tokens)
        asked = msgspec.structs.replace(asked, session=session)
    return parts.placer.explain(arrive(parts, asked, now_s=parts.clock())).target


async def _ask_rank(
    call: Call, ranks: UsableRanks, data: bytes, model: str | None, wanted: Target | None
) -> RequestOutcome:
    with ExchangeWatch(call.client, call.parts.lookout) as watch:
        limit(watch, call.parts)
        exchange = await open_somewhere(call, ranks, data, model, wanted)
        relayed = await carry(call, exchange, Bystander(), watch, lambda _status, _body: None)
    return call.judge(relayed.status, relayed.outcome)


async def open_somewhere(
    call: Call, ranks: UsableRanks, data: bytes, model: str | None, wanted: Target | None = None
) -> Exchange:
    """An exchange with the rank wanted, else any that serves the model.

    Raises:
        DovecoteError: No rank can take it, or the worker failed.
    """
    refused: set[WorkerId] = set()
    for attempt in range(1, MAX_ATTEMPTS + 1):
        target = wanted if wanted is not None and not refused else ranks.choose(model, excluded=refused)
        try:
            return await call.open_at(target, data)
        except UpstreamUnreachableError:
            refused.add(target.worker)
            if attempt == MAX_ATTEMPTS or not ranks.find(model, excluded=refused):
                raise
    raise RuntimeError("unreachable: the last attempt returns or raises")
