"""Workers come, change, drain and go while the router serves; what is gone leaves nothing behind."""

import asyncio
from pathlib import Path

import pytest
from fake_engine import hanging, held_until
from proxy_harness import CHAT, eventually, in_process, value

from router.config.workers import WorkerConfig
from router.control.registry import Entry, Listed, Put, Removed

TOY = str(Path(__file__).parents[2] / "engine_shim/engine/tokenizer/toy")
FAST = {"interval_s": 0.03, "unhealthy_after": 3}


def entry(engine, name, **more):
    flags = {key: more.pop(key) for key in ("ready", "draining") if key in more}
    return Entry(WorkerConfig(url=engine.url, id=name, **more), **flags)


def known(client):
    return list(client.router.fleet.workers)


def usable(client, name):
    worker = client.router.fleet.workers.get(name)
    return worker is not None and worker.takes_requests


async def served_by(client, times=8):
    return {(await client.chat()).headers["x-dovecote-worker"] for _ in range(times)}


async def test_a_worker_that_is_added_while_the_router_runs_gets_requests(engines):
    async with in_process([engines[0].url], probes=FAST, policy={"name": "round_robin"}) as client:
        client.router.fleet.apply(Put("api", entry(engines[1], "new")))
        await eventually(lambda: usable(client, "new"))
        assert await served_by(client) == {"w0", "new"}


async def test_a_worker_that_is_gone_finishes_its_streams_and_leaves_nothing(engines):
    release = asyncio.Event()
    engines[1].script = held_until(release)
    async with in_process([engines[0].url], probes=FAST, policy={"name": "round_robin"}) as client:
        fleet = client.router.fleet
        fleet.apply(Put("api", entry(engines[1], "new")))
        await eventually(lambda: usable(client, "new"))
        tasks = [asyncio.create_task(client.chat(stream=True)) for _ in range(2)]
        await eventually(lambda: engines[1].requests)
        fleet.apply(Removed("api", "new"))
        assert known(client) == ["w0", "new"]
        assert await served_by(client) == {"w0"}
        release.set()
        answers = await asyncio.gather(*tasks)
        assert all(answer.text.endswith("data: [DONE]\n\n") for answer in answers)
        await eventually(lambda: known(client) == ["w0"])
        assert value(client.router, "placements_total", worker="new", dp_rank="0") == 0
        assert "new" not in client.router.metrics.to_text().decode()
        assert not [rank for rank in client.router.placer.fleet.ranks() if rank.facts.target.worker == "new"]


async def test_D05_a_draining_worker_gets_nothing_new_sessions_included_and_finishes_what_it_has(engines):
    async with in_process([engines[0].url], probes=FAST) as client:
        fleet = client.router.fleet
        fleet.apply(Put("api", entry(engines[1], "new")))
        await eventually(lambda: usable(client, "new"))
        homes = {}
        for number in range(12):
            answer = await client.post("/v1/chat/completions", json=CHAT, headers={"x-session-id": f"s{number}"})
            homes[f"s{number}"] = answer.headers["x-dovecote-worker"]
        assert set(homes.values()) == {"w0", "new"}
        fleet.apply(Put("api", entry(engines[1], "new", draining=True)))
        for session in homes:
            answer = await client.post("/v1/chat/completions", json=CHAT, headers={"x-session-id": session})
            assert answer.headers["x-dovecote-worker"] == "w0"


async def test_D06_a_worker_that_is_not_ready_any_more_or_serves_another_model_leaves_the_old_pool(engines):
    async with in_process([engines[0].url], probes=FAST) as client:
        fleet = client.router.fleet
        fleet.apply(Put("api", entry(engines[1], "new")))
        await eventually(lambda: usable(client, "new"))
        fleet.apply(Put("api", entry(engines[1], "new", ready=False)))
        assert await served_by(client, 4) == {"w0"}
        fleet.apply(Put("api", entry(engines[1], "new")))
        engines[1].models = ["other"]
        engines[1].server_info["served_model_name"] = "other"
        fleet.report_reconnect("new")
        await eventually(lambda: fleet.workers["new"].facts.models == ("other",))
        assert await served_by(client, 4) == {"w0"}
        assert (await client.chat(model="other")).headers["x-dovecote-worker"] == "new"


async def test_D06_a_worker_that_is_described_otherwise_begins_anew(engines):
    async with in_process([engines[0].url], probes=FAST) as client:
        fleet = client.router.fleet
        fleet.apply(Put("api", entry(engines[1], "new")))
        await eventually(lambda: usable(client, "new"))
        before = fleet.workers["new"]
        fleet.apply(Put("api", entry(engines[1], "new", dp_size=4)))
        assert fleet.workers["new"] is not before
        await eventually(lambda: fleet.workers["new"].refused is not None)
        assert await served_by(client, 4) == {"w0"}


async def test_D08_fifty_changes_leave_as_many_tasks_as_before_and_removed_workers_get_no_probes(engines):
    async with in_process([engines[0].url], probes=FAST) as client:
        fleet = client.router.fleet
        tasks = len(asyncio.all_tasks())
        for number in range(50):
            fleet.apply(Listed("api", (entry(engines[1], f"n{number}"),)))
            await asyncio.sleep(0)
        fleet.apply(Listed("api", ()))
        await eventually(lambda: known(client) == ["w0"] and len(asyncio.all_tasks()) <= tasks)
        probed = engines[1].probes
        before = engines[0].probes
        await eventually(lambda: engines[0].probes > before + 3)
        assert engines[1].probes == probed
        assert len(fleet._watches) == 1


async def test_D10_models_lists_what_workers_serve_that_take_requests(engines):
    engines[0].models = ["dead-only"]
    engines[0].server_info = {"dp_size": 1}
    async with in_process([engine.url for engine in engines], probes=FAST) as client:
        engines[0].health_status = 503
        await eventually(lambda: not usable(client, "w0"))
        assert [each["id"] for each in (await client.get("/v1/models")).json()["data"]] == ["toy"]
        client.router.fleet.drain("w1")
        assert (await client.get("/v1/models")).json()["data"] == []
        assert (await client.get("/health")).status_code == 503


async def test_an_operator_drains_a_worker_and_takes_it_back(engines):
    async with in_process([engine.url for engine in engines]) as client:
        fleet = client.router.fleet
        assert fleet.drain("w0")
        assert await served_by(client) == {"w1"}
        assert fleet.resume("w0")
        assert not fleet.drain("nobody")
        assert usable(client, "w0")


async def test_models_and_prompters_that_nobody_serves_any_more_are_forgotten(engines):
    async with in_process([engines[0].url], probes=FAST, tokenizer={"path": TOY}) as client:
        engines[1].models, engines[1].server_info = ["other"], {"dp_size": 1}
        fleet = client.router.fleet
        fleet.apply(Put("api", entry(engines[1], "new")))
        await eventually(lambda: client.router.prompts.find("other") is not None)
        fleet.apply(Removed("api", "new"))
        await eventually(lambda: known(client) == ["w0"])
        assert client.router.prompts.find("other") is None
        assert client.router.prompts.find("toy") is not None


async def test_a_worker_that_is_gone_and_comes_back_while_it_finishes_is_used_again(engines):
    engines[1].script = hanging
    async with in_process([], workers=[], registration={"hosts": ["127.0.0.1"], "ports": [1]}) as client:
        fleet = client.router.fleet
        fleet.apply(Put("api", entry(engines[1], "new")))
        await eventually(lambda: usable(client, "new"))
        task = asyncio.create_task(client.chat())
        await eventually(lambda: engines[1].requests)
        worker = fleet.workers["new"]
        fleet.apply(Removed("api", "new"))
        fleet.apply(Put("api", entry(engines[1], "new")))
        assert fleet.workers["new"] is worker
        assert usable(client, "new")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_load_comes_from_vllms_page_or_count_where_there_is_nothing_better(engines):
    page = (
        'vllm:num_requests_running{engine="0",model_name="toy"} 3.0\n'
        'vllm:num_requests_waiting{engine="0",model_name="toy"} 2.0\n'
        'vllm:kv_cache_usage_perc{engine="0",model_name="toy"} 0.5\n'
        'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0\n'
    )
    engines[0].metrics_page, engines[1].server_load = page, 4
    async with in_process([engine.url for engine in engines]) as client:
        first, second = client.router.placer.fleet.ranks()
        assert (first.report.running_requests, first.report.waiting_requests) == (3, 2)
        assert (first.report.used_tokens, first.report.capacity_tokens) == (800, 1_600)
        assert (second.report.running_requests, second.report.used_tokens) == (4, 0)
        sources = [worker.loads.by_rank[0].source for worker in client.router.fleet.workers.values()]
        assert sources == ["metrics", "count"]


# The fake engine has no /tokenize, and its own 404 comes through.
@pytest.mark.parametrize(("path", "status"), [("/v1/chat/completions", 200), ("/tokenize", 404)])
async def test_a_worker_that_left_since_it_was_chosen_is_passed_over(path, status, engines):
    urls = [engine.url for engine in engines]
    async with in_process(urls, probes={"interval_s": 3_600.0}, policy={"name": "round_robin"}) as client:
        # Between the choice and the sending nothing waits that a test could hold: placement simply still knows it.
        del client.router.fleet.workers["w0"]
        for _ in range(4):
            response = await client.post(path, json=CHAT | {"prompt": "p"})
            assert (response.status_code, response.headers["x-dovecote-worker"]) == (status, "w1")
