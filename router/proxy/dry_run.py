"""`POST /v1/explain`: the decision that a request would get now, with every rank spelled out.

Takes the very body of a request (chat, text completion or response) with the headers it would come with, or, without
any prompt, its length and what ranks hold of it as tokens. Nothing is charged, counted or remembered, but for what
preparing a prompt keeps of any.
"""

import logging
from functools import partial
from typing import Annotated, Any
from urllib.parse import parse_qsl

import msgspec
from pydantic import Field, ValidationError

from router.config.model import ConfigModel, describe_refusal
from router.errors import DovecoteError, RequestError
from router.placement.stimuli import RequestArrived
from router.proxy import respond
from router.proxy.api import PATHS, SHAPES, Api
from router.proxy.asked import arrive, check_model, prepare
from router.proxy.body import RequestBody
from router.proxy.bounds import check_bounds
from router.proxy.call import read_request_id
from router.proxy.client import Client, ClientGoneError, Scope
from router.proxy.headers import Headers
from router.proxy.members import decode_members
from router.proxy.ports import ProxyParts
from router.proxy.received import read_limited
from wire.ids import RequestId, SessionId, Target, WorkerId

_log = logging.getLogger("dovecote.proxy")
Tokens = Annotated[int, Field(strict=True, ge=0, le=100_000_000)]
Name = Annotated[str, Field(strict=True, min_length=1, max_length=512)]
#: Name of the request in a dry run, which decides ties.
DRY_RUN = RequestId("dry-run")
#: Forms that a body tells by its prompt's member; others are named by `?path=`.
_TOLD_APART = (Api.CHAT, Api.COMPLETION, Api.RESPONSE, Api.GENERATE)


class HeldTokens(ConfigModel):
    """What one rank is taken to hold of the prompt."""

    worker: Name
    dp_rank: Annotated[int, Field(strict=True, ge=0, le=65_535)] = 0
    tokens: Tokens


class ExplainRequest(ConfigModel):
    """A request to explain, without its text."""

    model: Name | None = None
    prompt_tokens: Tokens
    max_output_tokens: Tokens | None = None
    session: Name | None = None
    #: Name that decides ties.
    request_id: Name = DRY_RUN
    #: Tokens of the prompt's head by rank.
    held: Annotated[tuple[HeldTokens, ...], Field(max_length=10_000)] = ()

    def to_arrival(self, now_s: float) -> RequestArrived:
        """The stimulus."""
        return RequestArrived(
            now_s=now_s,
            request_id=RequestId(self.request_id),
            model=self.model,
            prompt_tokens=self.prompt_tokens,
            max_output_tokens=self.max_output_tokens,
            session=None if self.session is None else SessionId(self.session),
            overlaps={Target(WorkerId(each.worker), each.dp_rank): each.tokens for each in self.held},
        )


async def serve_dry_run(parts: ProxyParts, scope: Scope, client: Client) -> None:
    """One call; a request that would be refused for want of a rank is a decision too, without a target."""
    headers: Headers = list(scope["headers"])
    try:
        data = await read_limited(headers, client, parts.limits.body_bytes)
        told = await _explain(parts, headers, data, scope.get("query_string", b""))
        await respond.send_whole(client, 200, [(b"content-type", b"application/json")], msgspec.json.encode(told))
    except ClientGoneError:
        return
    except DovecoteError as error:
        await respond.send_error(client, error, {})
    except Exception:  # noqa: BLE001
        # Our own defect: the client still gets an answer, and the log the story.
        _log.exception("dry_run_failed")
        await respond.send_error(client, DovecoteError("the router failed on this request"), {})


async def _explain(parts: ProxyParts, headers: Headers, data: bytes, query: bytes) -> dict[str, Any]:
    names = decode_members(data).by_name.keys()
    if "prompt_tokens" in names:
        arrival = _read_counts(data).to_arrival(parts.clock())
        return {"dry_run": True, "decision": parts.placer.explain(arrival).to_json()}
    said = dict(parse_qsl(query.decode("latin-1")))
    api, tenant = _find_api(names, said.get("path")), said.get("tenant", "")
    # Whose request it would be: its prompts and sessions are looked for where that tenant's are.
    salting = partial(parts.tenancy.make_salt, tenant) if parts.tenancy.isolates(tenant) else None
    body = RequestBody(data, api=api, salting=salting)
    check_bounds(body, parts.limits.bounds)
    check_model(parts, body.model, is_needed=SHAPES[api].needs_model)
    asked = await prepare(parts, body, headers, read_request_id(headers) or DRY_RUN, tenant)
    source = asked.session_source
    if asked.session is None:
        session = parts.fingerprints.find(asked.prompt.head_hashes, asked.prompt.prompt_tokens)
        source = "none" if session is None else "fingerprint"
        asked = msgspec.structs.replace(asked, session=session)
    decision = parts.placer.explain(arrive(parts, asked, now_s=parts.clock()))
    return {
        "dry_run": True,
        "path": api.value,
        "session_source": source,
        "pin": asked.pin,
        "uncredited": asked.prompt.uncredited,
        "decision": decision.to_json(),
    }


def _find_api(names: Any, said: str | None) -> Api:
    """The path that a body would be sent to: as the query says, else told by the member that makes its prompt."""
    if said is not None:
        if said not in PATHS:
            raise RequestError(f"path is no API that is placed; valid: {', '.join(sorted(PATHS))}", param="path")
        return PATHS[said]
    wanted = {SHAPES[api].prompt_fields[0]: api for api in _TOLD_APART}
    found = [api for name, api in wanted.items() if name in names]
    if len(found) == 1:
        return found[0]
    if found:
        raise RequestError(f"only one of {', '.join(wanted)} may stand in a body to explain, or say ?path=")
    raise RequestError(f"nothing to explain: the body has neither prompt_tokens nor one of {', '.join(wanted)}")


def _read_counts(data: bytes) -> ExplainRequest:
    try:
        return ExplainRequest.model_validate_json(data)
    except ValidationError as error:
        path, _, problem, _ = describe_refusal(error.errors(include_url=False)[0])
        name = ".".join(path) or None
        raise RequestError(f"{name or 'the body'}: {problem}", param=name) from None
