"""Routes about the policy: which one acts, and its file read anew."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from router.control.error_answer import answer_error
from router.control.reload import PolicyFile


def build_policy_routes(policy_file: PolicyFile) -> APIRouter:
    """The routes."""
    routes = APIRouter()

    @routes.get("/v1/policy")
    async def policy() -> JSONResponse:
        """The policy that acts, and what is wrong with its file."""
        return JSONResponse(policy_file.to_json())

    @routes.post("/v1/policy/reload")
    async def reload() -> JSONResponse:
        """Read the file anew; 409 where there is none, 422 where it is refused and the old policy stays."""
        if policy_file.watch.path is None:
            message = "the policy is part of the fleet's configuration; policy.file names one that can be read anew"
            return answer_error(409, message, code="no_policy_file")
        if await policy_file.watch.look(is_asked=True):
            return JSONResponse(policy_file.to_json())
        message = policy_file.watch.problem or "the file was refused"
        return answer_error(422, message, code="policy_refused")

    return routes
