"""A dry run takes the very request, says what would be decided now, and leaves nothing behind."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from fake_engine import hanging, running
from keeping_engine import KeepingEngine
from proxy_harness import CHAT, eventually, in_process, value
from telling_engine import PROMPT, TellingEngine, blocks, fleet_of

LONG = {"model": "toy", "messages": [{"role": "user", "content": "words of a long prompt, " * 200}]}
#: What a dry run cannot know, or what differs in form from a decision over few ranks.
UNLIKE = {"request_id", "decided_at", "decided_at_s"}


def count_traces(client):
    """Everything that a request leaves somewhere."""
    router = client.router
    parts = router._app._parts
    placer = router.placer
    skipped = ("_created ", "prompt_cache_", "process_", "python_")
    # These tell of time that passes.
    skipped += ("_waiting_seconds", "_waiting_tokens", "_report_age_seconds")
    page = [
        line for line in router.metrics.to_text().decode().splitlines() if not any(word in line for word in skipped)
    ]
    return {
        "charged": placer.ledger.reserved_total,
        "homes": len(placer.homes),
        "live": len(placer._books.live),
        "pins": len(placer.pins),
        "decisions": len(placer.decisions),
        "fingerprints": len(parts.fingerprints),
        "chains": len(parts.chains),
        "chunks": parts.prompts.approximate.count_chunks(),
        "page": page,
    }


async def explain(client, body=None, **more):
    before = count_traces(client)
    answer = await client.post("/v1/explain", **({} if body is None else {"json": body}), **more)
    assert count_traces(client) == before
    return answer


def alike(decision):
    return {name: field for name, field in decision.items() if name not in UNLIKE}


@pytest.mark.parametrize("policy", ["cache_affinity", "round_robin", "session_hash"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", CHAT),
        ("/v1/chat/completions", LONG | {"max_tokens": 7, "tools": [{"type": "function", "function": {"name": "f"}}]}),
        ("/v1/completions", {"model": "toy", "prompt": "once upon a time"}),
        ("/v1/completions", {"model": "toy", "prompt": ["a", "b"], "n": 2}),
        ("/v1/responses", {"model": "toy", "input": "hello", "instructions": "be short"}),
        ("/v1/responses", {"model": "toy", "input": [{"role": "user", "content": "hello"}]}),
    ],
)
async def test_the_request_gets_what_its_dry_run_said(engines, policy, path, body):
    async with in_process([engine.url for engine in engines], policy={"name": policy}) as client:
        for turn in range(3):
            headers = {"x-request-id": f"r{turn}", "x-session-id": "mine"}
            told = (await explain(client, body, headers=headers)).json()
            assert (told["dry_run"], told["path"], told["session_source"]) == (True, path, "x-session-id")
            await client.post(path, json=body, headers=headers)
            real = (await client.get(f"/v1/decisions/r{turn}")).json()["decision"]
            assert alike(told["decision"]) == alike(real)
            assert told["decision"]["session"] == "mine"


async def test_an_answers_limit_is_told_by_the_body_or_beside_token_counts(engine):
    """The longer an answer may get, the more of it meets a session that comes back: term `returns`."""

    async def returns_s(client, body):
        (entry,) = (await explain(client, body)).json()["decision"]["candidates"]
        return entry["terms"]["returns"]

    async with in_process([engine.url]) as client:
        await client.post("/v1/chat/completions", json=CHAT, headers={"x-session-id": "pauses"})
        for body, name in (({"prompt_tokens": 900}, "max_output_tokens"), (CHAT, "max_tokens")):
            whole_s = await returns_s(client, body)
            assert whole_s == await returns_s(client, body | {name: 10_000_000}) > 0.0
            assert await returns_s(client, body | {name: 1}) < whole_s / 10
        refused = await explain(client, {"prompt_tokens": 900, "expected_output_tokens": 5})
        assert (refused.status_code, "max_output_tokens" in refused.text) == (400, True)


async def test_credit_that_events_earned_shows_in_a_dry_run():
    engines = [TellingEngine(), TellingEngine()]
    async with fleet_of(*engines) as asker:
        engines[1].tell(blocks(1, 16))
        engines[0].tell(blocks(1, 2))
        await asker.read_all()
        told = (await explain(asker.client, {"model": "toy", "prompt": list(PROMPT)})).json()["decision"]
        held = {entry["target"]["worker"]: entry["overlap_tokens"] for entry in told["candidates"]}
        assert held == {"w0": 8, "w1": 64}
        assert (told["target"]["worker"], told["predicted_cached_tokens"], told["prompt_tokens"]) == ("w1", 64, 65)
        assert await asker.credit() == {"w0/0": 8, "w1/0": 64}


async def test_a_conversation_without_a_name_is_the_one_it_goes_on_with(engines):
    async with in_process([engine.url for engine in engines]) as client:
        first = (await explain(client, LONG)).json()
        assert first["session_source"] == "fingerprint"
        await client.post("/v1/chat/completions", json=LONG)
        longer = {**LONG, "messages": [*LONG["messages"], {"role": "assistant", "content": "and more " * 40}]}
        told = (await explain(client, longer)).json()
        await client.post("/v1/chat/completions", json=longer)
        known = [record.decision.session for record in client.router.placer.decisions.find_latest(2)]
        assert told["decision"]["session"] == known[0]
        assert (await explain(client, CHAT)).json()["session_source"] == "none"


async def test_what_rests_on_kept_state_is_explained_with_it():
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(running(KeepingEngine())) for _ in range(2)]
        async with in_process([engine.url for engine in engines]) as client:
            first = await client.post("/v1/responses", json={"model": "toy", "input": "hello"})
            name, worker = first.json()["id"], first.headers["x-dovecote-worker"]
            follow_up = {"model": "toy", "input": "go on", "previous_response_id": name}
            told = (await explain(client, follow_up)).json()
            assert told["pin"] == f"response:{name}"
            assert told["decision"]["target"]["worker"] == worker
            assert "can go nowhere else" in told["decision"]["reason"]
            unknown = (await explain(client, follow_up | {"previous_response_id": "resp_x"})).json()
            assert unknown["decision"]["target"] is None
            assert "no engine is known to have it" in unknown["decision"]["reason"]
            session = (await explain(client, CHAT | {"session_params": {"id": "s"}})).json()
            assert session["decision"]["target"] is None


async def test_a_fleet_that_could_not_take_it_is_a_decision_with_a_reason(engine):
    async with in_process([engine.url], admission=[{"workers": ["w0"], "max_requests": 1}]) as client:
        engine.script = hanging
        task = asyncio.create_task(client.chat())
        await eventually(lambda: engine.requests)
        told = (await explain(client, CHAT)).json()["decision"]
        assert (told["target"], told["reason"]) == (
            None,
            "every worker that could take it has as many requests as it may",
        )
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_without_workers_a_dry_run_says_so():
    async with in_process(["http://127.0.0.9:1"]) as client:
        told = (await explain(client, CHAT)).json()["decision"]
        assert (told["target"], told["reason"]) == (None, "no rank is left that was not tried")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/v1/messages",
            {"model": "toy", "messages": [{"role": "user", "content": "hi"}], "system": "s", "max_tokens": 5},
        ),
        ("/v1/embeddings", {"model": "toy", "input": ["a", "b"]}),
        ("/generate", {"input_ids": [1, 2, 3]}),
    ],
)
async def test_forms_that_look_alike_are_told_by_their_path(client, path, body):
    answer = await client.post("/v1/explain", params={"path": path}, json=body)
    assert (answer.status_code, answer.json()["path"]) == (200, path)
    assert answer.json()["decision"]["target"] == {"worker": "w0", "dp_rank": 0}
    answer = await client.post("/v1/explain", params={"path": "/v1/nothing"}, json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "path")


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (b"", 400, "empty"),
        (b"{", 400, "not a JSON object"),
        (b"[1]", 400, "not a JSON object"),
        (b'{"model":"toy"}', 400, "nothing to explain"),
        (b'{"model":"toy","messages":[],"prompt":"x"}', 400, "only one of messages, prompt, input"),
        (b'{"model":"toy","messages":"x"}', 400, "messages must be list"),
        (b'{"model":"toy","messages":[],"messages":[]}', 400, "stands twice"),
        (b'{"model":"toy","messages":[{"role":"user","content":"\\ud83d"}]}', 400, ""),
        (b'{"messages":[]}', 400, "model is missing"),
        (b'{"model":"other","messages":[]}', 404, "served here: toy"),
        (b'{"model":"toy","messages":[],"bootstrap_room":1}', 400, "set by the router"),
        (b'{"model":"toy","input":"a","previous_response_id":1}', 400, "previous_response_id"),
        (b'{"prompt_tokens":5,"messages":[]}', 400, "messages"),
        (b'{"prompt_tokens":-1}', 400, "prompt_tokens"),
        (b'{"prompt_tokens":5,"held":[{"worker":"a","tokens":"x"}]}', 400, "held.0.tokens"),
        (b'{"prompt_tokens":5,"x":NaN}', 400, ""),
        (b'{"messages":' + b"[" * 100_000, 400, ""),
    ],
)
async def test_what_cannot_be_explained_is_refused_in_words(client, engine, body, status, word):
    answer = await explain(client, content=body)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] == {400: "invalid_request", 404: "model_not_found"}[status]
    assert word in error["message"]
    assert engine.requests == []


async def test_a_dry_run_has_the_limits_of_the_request(engine):
    async with in_process([engine.url], limits={"body_bytes": 500}) as client:
        assert (await explain(client, LONG)).json()["error"]["code"] == "body_too_large"
        headers = {"content-encoding": "br"}
        assert (await explain(client, content=b"x", headers=headers)).status_code == 415
        assert (await explain(client, CHAT, headers={"x-big": "x" * 100_000})).status_code == 431
        answer = await client.get("/v1/explain")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        assert value(client.router, "requests_total", outcome="client_error") == 0
