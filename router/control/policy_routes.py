"""Routes about the policy: which one acts, and its file read anew."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from router.control.reload import PolicyFile
from router.control.reload_answer import answer_reload


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
        missing = "the policy is part of the fleet's configuration; policy.file names one that can be read anew"
        return await answer_reload(policy_file.watch, policy_file.to_json, what="policy", missing=missing)

    return routes
