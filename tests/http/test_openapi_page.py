"""Whatever a client makes of the OpenAPI page, the router never answers with a fault of its own."""

import asyncio
import copy
from contextlib import suppress

import pytest
import schemathesis
from api_engine import ApiEngine
from fake_engine import running
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from proxy_harness import in_process, on_socket
from schemathesis.generation import GenerationMode

from router.proxy.api import PATHS
from tests.waiting import PATIENCE_S

#: Bodies tried of each operation.
EXAMPLES = 4
DATA_PLANE = {
    "/v1/chat/completions",
    "/v1/messages",
    "/generate",
    "/tokenize",
    "/abort_request",
    "/v1/responses/{response_id}",
}
ALIASES = {path for path, api in PATHS.items() if path != api.value} | {"/v1/tokenize", "/v1/detokenize"}
CONTROL = {"/health", "/v1/models", "/v1/models/{model}", "/v1/decisions", "/v1/workers", "/v1/policy", "/metrics"}


async def test_the_page_names_the_paths_of_both_planes():
    async with running(ApiEngine()) as engine, in_process([engine.url]) as client:
        page = (await client.get("/openapi.json")).json()
    assert page["openapi"].startswith("3.")
    assert set(page["paths"]) >= DATA_PLANE | CONTROL
    assert all("summary" in operation for item in page["paths"].values() for operation in item.values())


def name_models(page):
    """The page without second names of paths, with names of models that are served and one that is not."""
    page = copy.deepcopy(page)
    for alias in ALIASES:
        del page["paths"][alias]
    for item in page["paths"].values():
        content = item.get("post", {}).get("requestBody", {}).get("content", {})
        for media in content.values():
            if "model" in media["schema"].get("properties", {}):
                media["schema"]["properties"]["model"] = {"enum": ["toy", "toy", "other"]}
    return page


def send_cases(page, url, mode):
    """Send cases of every operation; gives what was answered with a fault."""
    schema = schemathesis.openapi.from_dict(page)
    schema.config.update(base_url=url)
    faults, statuses = [], set()
    for result in schema.get_all_operations():
        operation = result.ok()

        @seed(1)
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def send(case):
            response = case.call(timeout=PATIENCE_S)
            statuses.add(response.status_code)
            if response.status_code >= 500:
                faults.append((case.method, case.path, case.body, response.status_code, response.text[:200]))

        with suppress(Unsatisfiable):  # nothing in it can be made wrong
            send()
    return faults, statuses


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
async def test_no_case_of_any_operation_is_answered_with_a_fault(mode):
    async with running(ApiEngine()) as engine, on_socket([engine.url]) as client:
        page = name_models((await client.get("/openapi.json")).json())
        faults, statuses = await asyncio.to_thread(send_cases, page, str(client.base_url).rstrip("/"), mode)
    assert faults == []
    assert statuses >= ({200, 404} if mode is GenerationMode.POSITIVE else {400})
