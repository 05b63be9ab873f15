"""Keys at the door: every path is closed without one, and each key opens what it is for."""

import itertools
import re

import pytest
from proxy_harness import CHAT, in_process, on_socket, value

from router.access.keys import hash_key
from router.config.access import AccessConfig

KEYS = {role: f"{role}-{'k' * 40}" for role in ("client", "metrics", "admin")}
ACCESS = {"keys": [{"name": role, "role": role, "hash": hash_key(key)} for role, key in KEYS.items()]}
ODD_SPELLINGS = ("/v1/chat/completions/", "//v1/chat/completions", "/v1/%63hat/completions", "/v1//models", "/METRICS",
                 "/metrics/", "/docs", "/openapi.json", "/redoc", "/debug", "/", "/health/", "/%2e%2e/health",
                 "/v1/responses/r/cancel", "/nothing")  # fmt: skip


def bearer(role):
    return {"authorization": f"Bearer {KEYS[role]}"}


@pytest.fixture(params=[in_process, on_socket], ids=["asgi", "socket"])
async def guarded(engine, request):
    async with request.param([engine.url], access=ACCESS) as client:
        yield client


def every_path(router):
    paths = {re.sub(r"{[a-z_]+}", "r", path) for path in router.control.openapi()["paths"]}
    assert {"/metrics", "/v1/workers", "/v1/decisions/r"} <= paths
    return sorted({*paths, *ODD_SPELLINGS, "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/explain",
                   "/open_session", "/close_session", "/v1/responses/r"})  # fmt: skip


async def test_G06_without_a_key_every_route_is_401_but_the_health_list(guarded, engine):
    closed = [path for path in every_path(guarded.router) if path not in AccessConfig().open_paths]
    assert len(closed) > 20
    for path, method in itertools.product(closed, ("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT")):
        response = await guarded.request(method, path, json=CHAT if method == "POST" else None)
        assert response.status_code == 401, (method, path)
        assert response.headers["www-authenticate"] == "Bearer"
    assert (await guarded.get("/health")).status_code == 200
    assert engine.requests == []
    assert value(guarded.router, "errors_total", reason="missing_key") == len(closed) * 6


async def test_a_wrong_key_is_401_and_a_good_one_of_another_role_403(guarded):
    wrong = await guarded.get("/v1/models", headers={"authorization": "Bearer " + "w" * 40})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (401, "invalid_key")
    assert wrong.json()["error"]["type"] == "authentication_error"
    for path in ("/v1/workers", "/v1/decisions", "/v1/policy", "/v1/explain", "/metrics", "/docs"):
        forbidden = await guarded.get(path, headers=bearer("client"))
        assert (forbidden.status_code, forbidden.json()["error"]["code"]) == (403, "forbidden")


async def test_each_key_opens_its_paths(guarded):
    assert (await guarded.post("/v1/chat/completions", json=CHAT, headers=bearer("client"))).status_code == 200
    anthropic = {"x-api-key": KEYS["client"]}
    assert (await guarded.post("/v1/chat/completions", json=CHAT, headers=anthropic)).status_code == 200
    assert (await guarded.get("/metrics", headers=bearer("metrics"))).status_code == 200
    assert (await guarded.get("/v1/workers", headers=bearer("admin"))).status_code == 200
    assert (await guarded.get("/v1/models", headers=bearer("admin"))).status_code == 200


async def test_without_keys_a_loopback_router_serves_everybody(client):
    assert (await client.chat()).status_code == 200
    assert (await client.get("/v1/workers")).status_code == 200


async def test_open_paths_are_the_operators_to_choose(engine):
    async with in_process([engine.url], access=ACCESS | {"open_paths": ["/metrics"]}) as client:
        assert (await client.get("/metrics")).status_code == 200
        assert (await client.get("/health")).status_code == 401
