"""Tenants do not meet: not in engines' caches, not in affinity, not in sessions, not by their keys."""

import json
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiohttp import web
from api_engine import ApiEngine
from fake_engine import USAGE, WHOLE, FakeEngine, running
from keeping_engine import KeepingEngine
from proxy_harness import CHAT, in_process

from router.access.keys import hash_key
from router.access.tenants import Tenancy

SECRET = "s" * 40
NAMES = ("a", "b", "b2", "ops")
KEYS = {name: f"{name}-{'k' * 40}" for name in NAMES}
OWN = {"b2": {"tenant": "b", "models": ["toy"]}, "ops": {"role": "admin"}, "b": {"limits": {"body_bytes": 20_000}}}
ACCESS = {
    "keys": [{"name": name, "hash": hash_key(key)} | OWN.get(name, {}) for name, key in KEYS.items()],
    "salt_secret": SECRET,
}
LONG = "a long question about many things " * 200
SALT = {tenant: Tenancy(SECRET.encode()).make_salt(tenant, None) for tenant in NAMES}


def by(name):
    return {"authorization": f"Bearer {KEYS[name]}"}


@asynccontextmanager
async def fleet_of(engines, **sections):
    async with AsyncExitStack() as stack:
        for engine in engines:
            await stack.enter_async_context(running(engine))
        yield await stack.enter_async_context(in_process([engine.url for engine in engines], access=ACCESS, **sections))


@pytest.fixture
async def tenants(engine):
    async with in_process([engine.url], access=ACCESS) as client:
        yield client


async def test_G05_another_tenants_salt_is_no_more_than_a_word_of_ones_own(tenants, engine):
    salts = {}
    for name, said in (("a", None), ("b", None), ("b", SALT["a"]), ("b2", None), ("b2", "x"), ("b", "x"), ("a", "x")):
        fields = {} if said is None else {"cache_salt": said}
        response = await tenants.post("/v1/chat/completions", json=CHAT | fields, headers=by(name))
        assert response.status_code == 200
        salts[name, said] = engine.body()["cache_salt"]
        assert engine.body() == CHAT | {"cache_salt": salts[name, said]}
    assert salts["a", None] == SALT["a"]
    assert salts["b", None] == salts["b2", None] == SALT["b"]
    assert salts["b", SALT["a"]] not in {SALT["a"], SALT["b"]}
    assert salts["b", "x"] == salts["b2", "x"] != salts["a", "x"]


async def test_G05_affinity_and_answers_give_another_tenant_no_signal():
    """Equal prompts: to B it is as if A had never been there, by placement and by every line of its answer."""

    async def cached(_engine, _request, _body):
        usage = USAGE | {"prompt_tokens": 1_700, "prompt_tokens_details": {"cached_tokens": 0}}
        return web.json_response(WHOLE | {"usage": usage})

    engines = [FakeEngine(), FakeEngine()]
    for engine in engines:
        engine.script = cached
    async with fleet_of(engines) as client:
        body = CHAT | {"messages": [{"role": "user", "content": LONG}]}
        seen = []
        for name in ("a", "a", "b", "b"):
            answer = await client.post("/v1/chat/completions", json=body | {"cache_salt": SALT["a"]}, headers=by(name))
            record = client.router.placer.decisions.find_latest(1)[0]
            told = record.to_json()["decision"]
            seen.append(
                (told["predicted_cached_tokens"] > 0, any(each["overlap_tokens"] for each in told["candidates"]))
            )
            shown = {line for line in answer.headers if line.startswith("x-dovecote")}
            assert shown == {"x-dovecote-worker", "x-dovecote-dp-rank"}
        assert seen == [(False, False), (True, True), (False, False), (True, True)]


async def test_a_dry_run_is_for_the_tenant_that_it_names():
    """An admin sees the decision that the tenant's request would get, and without a name nothing that others have."""

    async def uncached(_engine, _request, _body):
        usage = USAGE | {"prompt_tokens": 1_700, "prompt_tokens_details": {"cached_tokens": 0}}
        return web.json_response(WHOLE | {"usage": usage})

    engine = FakeEngine()
    engine.script = uncached
    async with fleet_of([engine]) as client:
        body = CHAT | {"messages": [{"role": "user", "content": LONG}], "session_id": "s"}
        await client.post("/v1/chat/completions", json=body, headers=by("a"))
        seen = {}
        for tenant in ("a", "b", None):
            query = {} if tenant is None else {"tenant": tenant}
            told = await client.post("/v1/explain", json=body, headers=by("ops"), params=query)
            decision = told.json()["decision"]
            seen[tenant] = decision["session"], decision["predicted_cached_tokens"] > 0
        assert seen == {"a": ("a/s", True), "b": ("b/s", False), None: ("s", False)}


async def test_what_is_no_salt_is_400(tenants, engine):
    response = await tenants.post("/v1/chat/completions", json=CHAT | {"cache_salt": ["a"]}, headers=by("a"))
    assert (response.status_code, response.json()["error"]["param"]) == (400, "cache_salt")
    assert engine.requests == []


async def test_where_tenants_share_a_clients_own_salt_is_passed_on(engine):
    async with in_process([engine.url], access=ACCESS | {"isolation": "shared"}) as client:
        await client.post("/v1/chat/completions", json=CHAT | {"cache_salt": "mine"}, headers=by("a"))
        assert engine.body()["cache_salt"] == "mine"
        await client.post("/v1/chat/completions", json=CHAT, headers=by("a"))
        assert "cache_salt" not in engine.body()


async def test_a_streams_body_has_the_salt_and_the_wish_for_usage(tenants, engine):
    raw = b'{ "model":"toy", "stream": true, "cache_salt" : "x" ,"messages":[{"role":"user","content":"hi"}]}'
    await tenants.post("/v1/chat/completions", content=raw, headers=by("a"))
    salt = Tenancy(SECRET.encode()).make_salt("a", "x")
    edited = raw.replace(b': "x" ,', f':"{salt}",'.encode())
    assert engine.requests[-1][1] == edited.replace(b"{ ", b'{"stream_options":{"include_usage":true}, ', 1)


async def test_sessions_of_one_name_are_two_sessions(tenants):
    for name in ("a", "b", "b2"):
        headers = by(name) | {"x-session-id": "s"}
        assert (await tenants.post("/v1/chat/completions", json=CHAT, headers=headers)).status_code == 200
    sessions = [record.decision.session for record in tenants.router.placer.decisions.find_latest(3)]
    assert sessions == ["b/s", "b/s", "a/s"]


async def test_another_tenants_stored_response_and_session_do_not_exist():
    """On one engine too, which would serve whoever asks."""
    async with fleet_of([KeepingEngine()]) as client:
        asked = {"model": "toy", "input": "hello"}
        made = (await client.post("/v1/responses", json=asked, headers=by("a"))).json()["id"]
        opened = (await client.post("/open_session", json={"capacity_of_str_len": 9}, headers=by("a"))).json()
        for name, status in (("b", 404), ("a", 200)):
            headers, chat = by(name), CHAT | {"session_params": {"id": opened}}
            go_on = await client.post("/v1/responses", json=asked | {"previous_response_id": made}, headers=headers)
            assert go_on.status_code == status
            assert (await client.get(f"/v1/responses/{made}", headers=headers)).status_code == status
            assert (await client.post("/v1/chat/completions", json=chat, headers=headers)).status_code == status
            closed = await client.post("/close_session", json={"session_id": opened}, headers=headers)
            assert closed.status_code == status
            assert (await client.delete(f"/v1/responses/{made}", headers=headers)).status_code == status


async def test_a_key_ends_at_the_router_and_the_engines_own_goes_on():
    engines = [FakeEngine(), FakeEngine()]
    asked = []

    def noting(engine):
        async def script(_engine, request, _body):
            asked.append((engine, request.headers.get("authorization"), request.headers.get("x-api-key")))
            return web.json_response(WHOLE)

        return script

    for engine in engines:
        engine.script = noting(engine)
    async with AsyncExitStack() as stack:
        for engine in engines:
            await stack.enter_async_context(running(engine))
        workers = [{"url": engines[0].url, "id": "w0", "api_key": "engine-key-1"}, {"url": engines[1].url, "id": "w1"}]
        sections = {"access": ACCESS, "workers": workers, "policy": {"name": "round_robin"}}
        async with in_process([], **sections) as client:
            for headers in (by("a"), by("a"), {"x-api-key": KEYS["a"]}, {"x-api-key": KEYS["a"]}):
                assert (await client.post("/v1/chat/completions", json=CHAT, headers=headers)).status_code == 200
        expected = {(engines[0], "Bearer engine-key-1", None), (engines[1], None, None)}
        assert set(asked) == expected
        asked.clear()
        forwarding = sections | {"access": ACCESS | {"forward_client_keys": True}}
        async with in_process([], **forwarding) as client:
            for _ in range(2):
                assert (await client.post("/v1/chat/completions", json=CHAT, headers=by("a"))).status_code == 200
        assert set(asked) == {(engines[0], "Bearer engine-key-1", None), (engines[1], by("a")["authorization"], None)}


async def test_probes_bring_the_engines_key():
    seen = set()

    @web.middleware
    async def guarded(request, handler):
        seen.add((request.path, request.headers.get("authorization")))
        if request.headers.get("authorization") != "Bearer engine-key":
            return web.Response(status=401)
        return await handler(request)

    class Guarded(FakeEngine):
        def app(self):
            app = super().app()
            app.middlewares.append(guarded)
            return app

    async with running(Guarded()) as engine:
        async with in_process([], workers=[{"url": engine.url, "api_key": "engine-key"}]) as client:
            assert (await client.chat()).status_code == 200
        assert {"/health", "/server_info"} <= {path for path, _ in seen}
        assert {key for _, key in seen} == {"Bearer engine-key"}
        async with in_process([], workers=[{"url": engine.url}]) as client:
            assert (await client.chat()).status_code == 503


async def test_a_key_is_for_its_models(engine):
    engine.models = ["toy", "secret-model"]
    engine.server_info = {}
    async with in_process([engine.url], access=ACCESS) as client:
        for name, model, status in (("a", "secret-model", 200), ("b2", "toy", 200), ("b2", "secret-model", 403)):
            response = await client.post("/v1/chat/completions", json=CHAT | {"model": model}, headers=by(name))
            assert response.status_code == status
        error = response.json()["error"]
        assert (error["code"], error["type"]) == ("model_forbidden", "permission_error")
        unknown = await client.post("/v1/chat/completions", json=CHAT | {"model": "other"}, headers=by("b2"))
        assert "secret-model" not in unknown.text
        opened = await client.post("/open_session", json={"model": "secret-model"}, headers=by("b2"))
        assert opened.status_code == 403
        listed = [(await client.get("/v1/models", headers=by(name))).json()["data"] for name in ("a", "b2")]
        assert [[model["id"] for model in models] for models in listed] == [["toy", "secret-model"], ["toy"]]


async def test_a_key_for_one_model_learns_of_no_other_where_its_own_is_away(engine):
    engine.models, engine.server_info = ["secret-model"], {}
    async with in_process([engine.url], access=ACCESS) as client:
        for path, body in (("/v1/chat/completions", CHAT), ("/tokenize", {"model": "toy", "prompt": "x"})):
            response = await client.post(path, json=body, headers=by("b2"))
            assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")
            assert "secret-model" not in response.text
            assert "secret-model" in (await client.post(path, json=body, headers=by("a"))).text


@pytest.mark.parametrize("adapters", ["other", ["other"], [None, "other"], ["toy", "other"]])
async def test_an_adapter_beside_the_model_is_a_model_that_the_key_must_be_for(engine, adapters):
    async with in_process([engine.url], access=ACCESS, forward={"prefixes": ["/v1/audio"]}) as client:
        for path in ("/v1/chat/completions", "/v1/audio/x"):
            body = CHAT | {"lora_path": adapters}
            refused = await client.post(path, json=body, headers=by("b2"))
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "model_forbidden")
            wrong = await client.post(path, json=CHAT | {"lora_path": [5]}, headers=by("b2"))
            assert wrong.status_code == 400
        assert engine.requests == []
        assert (await client.post("/v1/chat/completions", json=body, headers=by("b"))).status_code == 200
        plain = await client.post("/v1/chat/completions", json=CHAT | {"lora_path": ["toy", None]}, headers=by("b2"))
        assert plain.status_code == 200


async def test_G05_what_is_pooled_is_salted_too():
    async with running(ApiEngine()) as engine, in_process([engine.url], access=ACCESS) as client:
        for path, fields in (
            ("/v1/embeddings", {"input": "a"}),
            ("/rerank", {"query": "a", "documents": ["b"]}),
            ("/v1/score", {"text_1": "a", "text_2": "b"}),
            ("/classify", {"input": "a"}),
        ):
            body = {"model": "toy"} | fields
            await client.post(path, json=body, headers=by("a"))
            assert engine.body() == {"cache_salt": SALT["a"]} | body
            await client.post(path, json=body | {"cache_salt": SALT["b"]}, headers=by("a"))
            assert engine.body()["cache_salt"] not in SALT.values()


async def test_a_key_has_a_limit_of_its_own_on_bodies(tenants):
    body = CHAT | {"messages": [{"role": "user", "content": "x" * 20_000}]}
    for name, status in (("a", 200), ("b", 413)):
        assert (await tenants.post("/v1/chat/completions", json=body, headers=by(name))).status_code == status


async def test_no_key_is_seen_in_logs_metrics_decisions_or_workers(caplog):
    caplog.set_level("DEBUG")
    async with running(FakeEngine()) as engine:
        workers = [{"url": engine.url, "api_key": "engine-key-1"}]
        async with in_process([], workers=workers, access=ACCESS) as client:
            for key in (*KEYS.values(), "wrong-" + "k" * 40):
                await client.post("/v1/chat/completions", json=CHAT, headers={"authorization": f"Bearer {key}"})
            pages = [caplog.text, json.dumps(client.router.config.model_dump(mode="json"))]
            for path in ("/metrics", "/v1/decisions", "/v1/workers", "/v1/policy"):
                pages.append((await client.get(path, headers=by("ops"))).text)
            for page in pages:
                for secret in (*KEYS.values(), "engine-key-1", SECRET, "wrong-"):
                    assert secret not in page
