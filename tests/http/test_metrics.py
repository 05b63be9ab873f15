"""Every metric that is declared moves, none has a label that a client chose, and the page about them is up to date."""

import asyncio
import re
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import web
from fake_engine import DONE, ROLE, USAGE, WHOLE, FakeEngine, answering, chunk, event, open_stream, running
from proxy_harness import CHAT, eventually, in_process, value

from prefix_index.trust import Trust
from router.access.keys import hash_key
from router.config.policy import Coefficients
from router.metrics import PREFIX, RouterMetrics, StreamView
from router.metrics_docs import LABELS, find_families, make_router, render_page
from wire.ids import Target, WorkerId

ROOT = Path(__file__).parents[2]
#: Families that the traffic here does not move, with the tests that see them do.
ELSEWHERE = {
    "breaker_openings": "tests/http/test_breakers.py",
    "clock_jumps": "tests/http/test_odd_worlds.py",
    "collector_pause_seconds": "tests/router/test_app.py",
    "keys_file_refused": "tests/http/test_keys_file.py",
    "kept_states": "tests/http/test_kept_state.py",
    "policy_file_refused": "tests/http/test_policy_file.py",
    "policy_reloads": "tests/http/test_policy_file.py",
    "predicted_cached_tokens": "tests/http/test_real_engines.py",
    "prediction_disagreement": "tests/http/test_prediction_alarm.py",
    "prompt_cache_bytes": "tests/http/test_real_engines.py",
    "prompt_cache_tokens": "tests/http/test_real_engines.py",
    "source_problem": "tests/http/test_workers_file.py",
    "retries": "tests/http/test_proxy_errors.py",
}
LOADS = {
    "loads": [
        {
            "dp_rank": 0, "num_running_reqs": 3, "num_waiting_reqs": 2, "num_waiting_uncached_tokens": 50,
            "num_used_tokens": 70, "max_total_num_tokens": 4096,
        }
    ]
}  # fmt: skip
KEY = "k" * 40
TOLD = USAGE | {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 60}}
UNTOLD = {"prompt_tokens": 70, "completion_tokens": 3, "total_tokens": 73}
BY_TIER = TOLD | {"cached_tokens_details": {"device": 40, "host": 15, "storage": 5, "storage_backend": "file"}}


def whole(usage):
    async def script(_engine, _request, _body):
        return web.json_response(WHOLE | {"usage": usage})

    return script


def rank(router, name, **labels):
    return value(router, name, worker="w0", dp_rank="0", **labels)


def samples(router):
    return {
        (sample.name, tuple(sample.labels.items())): sample.value
        for family in router.metrics.registry.collect()
        for sample in family.samples
    }


def test_the_page_about_metrics_is_up_to_date():
    assert (ROOT / "docs/metrics.md").read_text(encoding="utf-8") == render_page()


def test_every_label_has_its_values_told_and_none_is_a_clients():
    router = make_router()
    used = {label for _, labels in find_families(router).values() for label in labels}
    router.prompts.close()
    assert used == set(LABELS)


async def test_E03_hits_are_counters_by_tier_beside_the_prompts_that_were_counted(client, engine):
    """One request with hits, then one without any: the ratio is the true one, and a probe changes nothing."""
    engine.script = whole(BY_TIER)
    await client.chat()
    engine.script = whole(USAGE)
    await client.chat()
    before = samples(client.router)
    await client.get("/health")
    await client.get("/v1/models")
    found = {
        tier: rank(client.router, "hit_tokens_total", tier=tier) for tier in ("device", "host", "storage", "unknown")
    }
    assert found == {"device": 40, "host": 15, "storage": 5, "unknown": 0}
    assert rank(client.router, "counted_prompt_tokens_total") == 109
    hits = {key for key in samples(client.router) if "hit_tokens" in key[0]}
    assert {key: samples(client.router)[key] for key in hits} == {key: before[key] for key in hits}


async def test_E06_an_engine_that_does_not_tell_its_hits_is_unknown_and_not_without_any(client, engine):
    for usage in (TOLD, UNTOLD, TOLD, USAGE):
        engine.script = whole(usage)
        await client.chat()
    assert rank(client.router, "counted_prompt_tokens_total") == 209
    assert rank(client.router, "hit_tokens_total", tier="unknown") == 120
    assert rank(client.router, "uncounted_answers_total") == 1


async def test_the_pace_of_a_stream_is_measured_over_its_tokens(engine, clock):
    async def slow(_engine, request, _body):
        response = await open_stream(request)
        await response.write(ROLE + chunk("a"))
        await eventually(lambda: value(client.router, "ttft_seconds_count") == 1)
        clock.advance(4.0)
        usage = event({"id": "c", "choices": [], "usage": USAGE | {"completion_tokens": 5}})
        await response.write(chunk("b", "stop") + usage + DONE)
        return response

    engine.script = slow
    async with in_process([engine.url], clock=clock) as client:
        await client.chat(stream=True)
        assert value(client.router, "inter_token_seconds_sum") == 1.0
        assert value(client.router, "inter_token_seconds_count") == 1


async def test_load_is_what_this_router_placed_and_what_the_engine_says(engine):
    engine.loads = LOADS
    async with in_process([engine.url]) as client:
        await eventually(lambda: rank(client.router, "reported_running_requests") == 3)
        assert rank(client.router, "reported_waiting_requests") == 2
        assert rank(client.router, "reported_used_tokens") == 70
        assert rank(client.router, "reported_capacity_tokens") == 4096
        seen = []

        async def look(_engine, _request, _body):
            seen.append((rank(client.router, "waiting_tokens"), rank(client.router, "open_tokens")))
            return web.json_response(WHOLE)

        engine.script = look
        await client.chat()
        assert min(seen[0]) > 0
        assert rank(client.router, "waiting_tokens") == rank(client.router, "open_tokens") == 0


async def test_E01_nothing_that_a_client_sends_becomes_a_series(engine):
    access = {"keys": [{"name": "one", "hash": hash_key(KEY)}], "anonymous": True}
    async with in_process([engine.url], access=access) as client:

        async def ask(place):
            headers = {"x-session-id": f"s{place}", "authorization": f"Bearer {place}", "x-request-id": f"r{place}"}
            await client.post(f"/v1/{place}", json=CHAT)
            await client.request("GET", f"/{place}")
            for fields in ({"model": f"m{place}"}, {"user": f"u{place}"}, {"stream": place}):
                await client.post("/v1/chat/completions", json=CHAT | fields, headers=headers)

        await ask("warm-up")
        before = set(samples(client.router))
        for place in range(200):
            await ask(place)
        assert set(samples(client.router)) == before
        assert value(client.router, "requests_total", outcome="client_error") >= 200


VIEW = StreamView(
    target=Target(WorkerId("w0"), 0), trust=Trust.EXACT, last_seq=0, blocks=2, batches=3, events={"stored": 4},
    skipped={"gap": 5}, gaps=6, replays=7, failed_replays=17, resets=8, losses=9, snapshots_asked=10,
    snapshots_loaded=11, snapshots_failed=12, overdue=13, orphans=14, unknown_removals=15, lag_s=16.0,
)  # fmt: skip


def test_E05_every_figure_of_an_event_stream_is_shown_under_its_own_name():
    metrics = RouterMetrics()
    metrics.watch_streams(lambda: [VIEW])
    shown = {sample.name.removeprefix(PREFIX): sample.value for family in metrics.registry.collect()
             for sample in family.samples if sample.labels.get("trust", "exact") == "exact"}  # fmt: skip
    assert {name: shown[name] for name in STREAM_FIGURES} == STREAM_FIGURES


STREAM_FIGURES = {
    "index_blocks": 2, "event_batches_total": 3, "events_total": 4, "events_skipped_total": 5, "event_gaps_total": 6,
    "event_replays_total": 7, "event_replays_failed_total": 17, "event_resets_total": 8, "event_losses_total": 9,
    "snapshots_asked_total": 10, "snapshots_loaded_total": 11, "snapshots_failed_total": 12, "overdue_blocks_total": 13,
    "orphan_blocks_total": 14, "unknown_removals_total": 15, "event_lag_seconds": 16, "stream_trust": 1,
}  # fmt: skip


class Raises:
    """A policy that fails."""

    name = "raises"
    coefficients = Coefficients()

    def choose(self, query, ranks, seed):
        raise KeyError("no such thing")


def name_family(sample_name):
    return re.sub(r"_(total|bucket|sum|count)$", "", sample_name.removeprefix(PREFIX))


async def stir(engines, client, seen):
    """Some of everything: good and bad answers, streams, a full fleet, a key over its limit, a failing policy."""
    key = {"authorization": f"Bearer {KEY}"}

    async def look(_engine, _request, _body):
        seen.append(samples(client.router))
        return web.json_response(WHOLE | {"usage": BY_TIER})

    counts = event({"id": "c", "choices": [], "usage": TOLD | {"completion_tokens": 4}})

    async def stream(_engine, request, _body):
        response = await open_stream(request)
        await response.write(ROLE + chunk("a"))
        await eventually(lambda: value(client.router, "ttft_seconds_count") == 1)
        seen.append(samples(client.router))
        await response.write(chunk("b", "stop") + counts + DONE)
        return response

    for script in (look, whole(UNTOLD), answering(500), stream):
        for engine in engines:
            engine.script = script
        body = CHAT | {"stream": script is stream}
        seen.append((await client.post("/v1/chat/completions", json=body, headers=key)) and samples(client.router))
    door = asyncio.Event()

    async def wait(_engine, _request, _body):
        await door.wait()
        seen.append(samples(client.router))
        return web.json_response(WHOLE)

    for engine in engines:
        engine.script = wait
    tasks = [asyncio.create_task(client.post("/v1/chat/completions", json=CHAT, headers=key)) for _ in range(3)]
    await eventually(lambda: value(client.router, "queue_waiting") == 1)
    seen.append(samples(client.router))
    door.set()
    await asyncio.gather(*tasks)
    await client.post("/v1/chat/completions", json=CHAT, headers=key)
    seen.append(samples(client.router))


async def test_E05_every_declared_metric_moves():
    engines = [FakeEngine(), FakeEngine()]
    for engine in engines:
        engine.loads = LOADS
    access = {"keys": [{"name": "one", "hash": hash_key(KEY), "limits": {"requests_per_minute": 7}}]}
    sections = {
        "access": access,
        "queue": {"max_waiting": 4, "requests_per_rank": 1},
        "policy": {"shadow": {"name": "round_robin"}},
    }
    async with AsyncExitStack() as stack:
        urls = [(await stack.enter_async_context(running(engine))).url for engine in engines]
        client = await stack.enter_async_context(in_process(urls, **sections))
        seen = []
        await stir(engines, client, seen)
        client.router.placer.change_policy(Raises(), None)
        # As after a change of the keys: its buckets are full again.
        client.router.admission.rates.forget(frozenset())
        await client.post("/v1/chat/completions", json=CHAT, headers={"authorization": f"Bearer {KEY}"})
        seen.append(samples(client.router))
    moved = {name_family(name) for each in seen for (name, _), count in each.items() if count != 0}
    streams = {name_family(name) for name in STREAM_FIGURES}
    declared = make_router()
    declared.prompts.close()
    assert set(find_families(declared)) - moved - streams == set(ELSEWHERE)


@pytest.mark.parametrize(("family", "path"), ELSEWHERE.items())
def test_what_moves_elsewhere_is_looked_at_there(family, path):
    assert family in (ROOT / path).read_text(encoding="utf-8")
