"""Routes about placement: a dry run of a decision, the policy that acts, and its file read anew.

`POST /v1/explain` takes a prompt's length and what ranks hold of it as tokens, or the name of a request that was placed
before, and answers the decision it would get now with every rank spelled out. Nothing is charged or remembered.
"""

import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import Field

from router.config_model import ConfigModel
from router.control.reload import PolicyFile
from router.errors import error_body
from router.placement.placer import Placer
from router.placement.stimuli import RequestArrived
from wire.ids import RequestId, SessionId, Target, WorkerId

Tokens = Annotated[int, Field(strict=True, ge=0, le=100_000_000)]
Name = Annotated[str, Field(strict=True, min_length=1, max_length=512)]
#: Name of the request in a dry run, which decides ties.
DRY_RUN = "dry-run"


class HeldTokens(ConfigModel):
    """What one rank is taken to hold of the prompt."""

    worker: Name
    dp_rank: Annotated[int, Field(strict=True, ge=0, le=65_535)] = 0
    tokens: Tokens


class ExplainRequest(ConfigModel):
    """A request to explain, without its text."""

    model: Name | None = None
    prompt_tokens: Tokens
    expected_output_tokens: Tokens = 256
    session: Name | None = None
    #: Name that decides ties.
    request_id: Name = DRY_RUN
    #: Tokens of the prompt's head by rank.
    held: Annotated[tuple[HeldTokens, ...], Field(max_length=10_000)] = ()


def build_policy_routes(
    placer: Placer, policy_file: PolicyFile, clock: Callable[[], float] = time.monotonic
) -> APIRouter:
    """The routes."""
    routes = APIRouter()

    @routes.post("/v1/explain")
    async def explain(asked: ExplainRequest) -> JSONResponse:
        """The decision that such a request would get now; 200 also where it would be refused."""
        return JSONResponse(_explain(placer, asked, clock()))

    @routes.get("/v1/policy")
    async def policy() -> JSONResponse:
        """The policy that acts, and what is wrong with its file."""
        return JSONResponse(policy_file.to_json())

    @routes.post("/v1/policy/reload")
    async def reload() -> JSONResponse:
        """Read the file anew; 409 where there is none, 422 where it is refused and the old policy stays."""
        if policy_file.path is None:
            message = "the policy is part of the fleet's configuration; policy.file names one that can be read anew"
            return JSONResponse(error_body(message, "invalid_request_error", code="no_policy_file"), status_code=409)
        if await policy_file.look(is_asked=True):
            return JSONResponse(policy_file.to_json())
        message = policy_file.problem or "the file was refused"
        return JSONResponse(error_body(message, "invalid_request_error", code="policy_refused"), status_code=422)

    return routes


def _explain(placer: Placer, asked: ExplainRequest, now_s: float) -> dict[str, Any]:
    arrival = RequestArrived(
        now_s=now_s,
        request_id=RequestId(asked.request_id),
        model=asked.model,
        prompt_tokens=asked.prompt_tokens,
        expected_output_tokens=asked.expected_output_tokens,
        session=None if asked.session is None else SessionId(asked.session),
        overlaps={Target(WorkerId(each.worker), each.dp_rank): each.tokens for each in asked.held},
    )
    return {"dry_run": True, "decision": placer.explain(arrival).to_json()}
