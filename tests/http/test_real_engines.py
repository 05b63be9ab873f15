"""The router in front of real engine processes: same ids, exact predictions, and engines that are killed and return."""

import asyncio
import json
import random
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
from engine_process import engine_processes, read_all_events
from proxy_harness import eventually, in_process, value

from router.control.parity import BATTERY
from router.prompt import Prompter, PromptInput
from router.prompt.engine_form import ArgumentForm, EngineForm
from tests.waiting import PATIENCE_S

pytest.importorskip("engine_shim.engine.command", reason="needs the engine package")

WORDS = ["birds", "come", "home", "to", "the", "loft", "when", "rain", "falls", "over", "hills", "at", "dawn"]
FAST = {"interval_s": 0.1, "unhealthy_after": 3}


def text(rng, words):
    return " ".join(rng.choices(WORDS, k=words))


HEAD = {"role": "system", "content": "Keep the loft. " * 12}


async def nothing():
    """Goes on at once."""


async def talk(client, rng, session, turns, counts, *, settle=nothing):
    """One agent session; its answers go into its next prompts, each sent once what has to settle did."""
    messages = [HEAD, {"role": "user", "content": text(rng, 40)}]
    for _ in range(turns):
        body = {
            "model": "dovecote-toy",
            "messages": messages,
            "max_tokens": rng.randint(2, 20),
            "stream": rng.random() < 0.6,
        }
        headers = {"x-dovecote-session": session}
        response = await client.post("/v1/chat/completions", json=body, headers=headers)
        counts[response.status_code] = counts.get(response.status_code, 0) + 1
        answer = read_answer(response)
        await settle()
        messages = [*messages, {"role": "assistant", "content": answer}, {"role": "user", "content": text(rng, 15)}]


def read_answer(response):
    if response.status_code != 200:
        return ""
    if not response.headers["content-type"].startswith("text/event-stream"):
        return response.json()["choices"][0]["message"]["content"]
    chunks = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk.get("choices", ()))


def predictions(router):
    kinds = ("exact", "raced", "lower_bound", "n_greater_1", "unexplained")
    return {kind: value(router, "predictions_total", accuracy=kind) for kind in kinds}


async def talk_and_be_exact(client, engines, rng, session):
    """Six turns, each predicted once all events of those before were read: however late, nothing differs then."""
    counts = {}
    await talk(client, rng, session, 6, counts, settle=lambda: read_all_events(client.router, engines))
    assert counts == {200: 6}
    decisions = client.router.placer.decisions
    await eventually(lambda: all(record.accuracy for record in decisions.find_latest(6)))
    assert [record.accuracy for record in decisions.find_latest(6)] == ["exact"] * 6


async def wait_for_trust(client):
    await eventually(lambda: all(view.trust == "exact" for view in client.router.events.to_views()))


@pytest.mark.stack
async def test_ids_equal_the_engines_own_and_predictions_hold_through_a_restart(monkeypatch):
    # On a busy machine events come late.
    monkeypatch.setattr("router.proxy.attempt.EVENT_DELAY_S", 5.0)
    async with AsyncExitStack() as stack:
        engines = await stack.enter_async_context(engine_processes(2))
        await check_parity(engines[0].url)
        client = await stack.enter_async_context(in_process([engine.url for engine in engines], probes=FAST))
        await wait_for_trust(client)
        assert len(client.router.events.to_views()) == 4
        await check_quiet_sessions_are_exact(client, engines)
        await check_busy_sessions_are_explained(client)
        await check_a_killed_engine_comes_back(client, engines)
        client.router.placer.ignored.late = 0  # ends of requests whose worker was gone before them


async def check_parity(url):
    """The router makes the ids that the engine makes."""
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=PATIENCE_S) as client:
        info = (await client.get("/server_info")).json()
        prompter = Prompter.load(Path(info["tokenizer_path"]))
        prompter.form = EngineForm(arguments=ArgumentForm.TEXT)
        for case in (case for case in BATTERY if not case.fields):
            ids = (await client.post("/tokenize", json=case.to_body("dovecote-toy"))).json()["tokens"]
            assert list(prompter.prepare(case.to_input()).token_ids) == ids
        for prompt in ("once upon a time", "<|im_end|> 世界\n\n  x", "\t'tis 12345"):
            ids = (await client.post("/tokenize", json={"prompt": prompt})).json()["tokens"]
            assert list(prompter.prepare(PromptInput(prompt=prompt)).token_ids) == ids


async def check_quiet_sessions_are_exact(client, engines):
    await talk_and_be_exact(client, engines, random.Random(1), "quiet")
    assert client.router.placer.decisions.find_latest(1)[0].actual_cached_tokens > 0
    assert predictions(client.router)["exact"] == sum(predictions(client.router).values()) == 6
    page = (await client.get("/metrics")).text
    for family in ("predicted_cached_tokens_total", "prompt_cache_bytes", "prompt_cache_tokens"):
        lines = [line for line in page.splitlines() if line.startswith(f"dovecote_router_{family}")]
        assert sum(float(line.split()[-1]) for line in lines) > 0


async def check_busy_sessions_are_explained(client):
    counts = {}
    sessions = (talk(client, random.Random(place), f"busy{place}", 4, counts) for place in range(8))
    await asyncio.gather(*sessions)
    assert counts == {200: 32}
    await eventually(lambda: sum(predictions(client.router).values()) == 38)
    assert predictions(client.router)["unexplained"] == 0


def credit_of(client, worker):
    views = client.router.events.to_views()
    return [(view.trust.value, view.blocks) for view in views if view.target.worker == worker]


async def check_a_killed_engine_comes_back(client, engines):
    """No request hangs, the engine returns without credit, and what follows is exact."""
    counts = {}
    sessions = [talk(client, random.Random(place), f"late{place}", 6, counts) for place in range(6)]
    running = asyncio.gather(*sessions)
    await eventually(lambda: sum(counts.values()) > 4)
    await engines[0].end()
    await running
    assert sum(counts.values()) == 36
    assert set(counts) <= {200, 502, 503}
    await eventually(lambda: credit_of(client, "w0") == [("lost", 0), ("lost", 0)])
    await engines[0].start()
    await eventually(lambda: client.router.fleet.workers["w0"].is_usable)
    await wait_for_trust(client)
    await talk_and_be_exact(client, engines, random.Random(9), "after")
