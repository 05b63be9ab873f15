"""Workers are probed, read, refused, lost and taken back while the router serves."""

import asyncio
import json
import logging
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aiohttp import web
from fake_engine import FakeEngine, hanging, running
from proxy_harness import CHAT, eventually, in_process, leap, value

from router.prompt import Prompter, PromptInput

TOY = Path(__file__).parents[2] / "engine_shim/engine/tokenizer/toy"
FAST = {"interval_s": 0.03, "unhealthy_after": 3}


def usable(client, name="w0"):
    return client.router.fleet.workers[name].is_usable


async def workers(client):
    return {entry["id"]: entry for entry in (await client.get("/v1/workers")).json()["workers"]}


async def test_D03_a_worker_goes_out_after_three_bad_probes_and_comes_back(engine):
    async with in_process([engine.url], probes=FAST) as client:
        engine.health_status = 503
        await eventually(lambda: not usable(client))
        response = await client.chat()
        assert (response.status_code, response.json()["error"]["code"]) == (503, "all_unhealthy")
        assert value(client.router, "worker_healthy", worker="w0") == 0
        assert "answers 503" in (await workers(client))["w0"]["problem"]
        engine.health_status = 200
        await eventually(lambda: usable(client))
        assert (await client.chat()).status_code == 200


async def test_E02_what_a_dead_worker_was_charged_is_released_at_once(engine):
    engine.script = hanging
    async with in_process([engine.url], probes=FAST, timeouts={"first_byte_s": 30.0}) as client:
        task = asyncio.create_task(client.chat())
        await eventually(lambda: engine.requests)
        assert len(client.router.placer.ledger.open_requests()) == 1
        engine.health_status = 500
        await eventually(lambda: not client.router.placer.ledger.open_requests())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        client.router.placer.ignored.late = 0  # the request's own end came after its worker's, as it must


async def test_a_worker_that_contradicts_the_configuration_is_refused_with_both_values(engine):
    worker = {"url": engine.url, "id": "w0", "dp_size": 4}
    engine.server_info["dp_size"] = 2
    async with in_process([], workers=[worker]) as client:
        assert not usable(client)
        problem = (await workers(client))["w0"]["problem"]
        assert "4 in the configuration and 2" in problem
        assert (await client.chat()).status_code == 503


def said(caplog, word):
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith(word)]


async def test_a_refused_worker_is_not_logged_as_healthy_until_it_is_no_longer_refused(engine, caplog):
    caplog.set_level(logging.INFO)
    engine.server_info["dp_size"] = 2
    async with in_process([], workers=[{"url": engine.url, "id": "w0", "dp_size": 4}], probes=FAST) as client:
        assert len(said(caplog, "worker_refused worker=w0")) == 1
        assert not said(caplog, "worker_healthy")
        engine.server_info["dp_size"] = 4
        await eventually(lambda: usable(client))
        assert len(said(caplog, "worker_healthy worker=w0")) == 1


async def test_a_worker_without_models_is_refused(engine):
    engine.models, engine.server_info = [], {}
    async with in_process([engine.url]) as client:
        assert "names no model" in (await workers(client))["w0"]["problem"]


async def test_a_worker_that_only_answers_health_is_not_used(engine):
    engine.models, engine.server_info = None, None
    async with in_process([engine.url]) as client:
        assert not usable(client)


async def test_every_rank_of_a_worker_is_placed_on_and_named_to_it(engine):
    engine.server_info["dp_size"] = 4
    async with in_process([engine.url], policy={"name": "round_robin"}) as client:
        ranks = [(await client.chat()).headers["x-dovecote-dp-rank"] for _ in range(8)]
        assert sorted(ranks) == sorted("01230123")
        assert [dict(engine.headers(place))["x-data-parallel-rank"] for place in range(8)] == ranks


async def test_models_lists_what_usable_workers_serve(engines):
    engines[1].models = ["other"]
    async with in_process([engine.url for engine in engines]) as client:
        models = (await client.get("/v1/models")).json()
        assert [entry["id"] for entry in models["data"]] == ["toy", "other"]
        assert (await client.chat(model="other")).headers["x-dovecote-worker"] == "w1"


async def test_without_a_tokenizer_there_is_no_credit_and_it_is_said(client, caplog):
    entry = (await workers(client))["w0"]
    assert "no tokenizer" in entry["no_cache_credit"]
    assert entry["parity"] == "unknown"
    await client.chat()
    assert value(client.router, "uncredited_prompts_total", reason="no_tokenizer") == 1


async def test_a_tokenizer_of_the_configuration_serves_and_a_broken_one_is_told(engine, tmp_path):
    async with in_process([engine.url], tokenizer={"path": str(TOY)}) as client:
        await client.chat()
        decision = (await client.get("/v1/decisions")).json()["decisions"][0]["decision"]
        prompt = Prompter.load(TOY).prepare(PromptInput(messages=CHAT["messages"]))
        assert decision["prompt_tokens"] == len(prompt.token_ids)
    (tmp_path / "tokenizer.json").write_text("{")
    async with in_process([engine.url], tokenizer={"path": str(tmp_path)}) as client:
        assert "not a tokenizer" in (await workers(client))["w0"]["no_cache_credit"]
        assert (await client.chat()).status_code == 200


async def test_a_tokenizer_on_this_machine_is_found_by_the_workers_word(engine, tmp_path):
    folder = tmp_path / "tokenizer"
    shutil.copytree(TOY, folder)
    engine.server_info["tokenizer_path"] = str(folder)
    async with in_process([engine.url]) as client:
        entry = (await workers(client))["w0"]
        assert "publishes no cache events" in entry["no_cache_credit"]
        assert client.router.prompts.find("toy") is not None
    engine.server_info["tokenizer_path"] = str(tmp_path / "absent")
    async with in_process([engine.url]) as client:
        assert "is not on this machine" in (await workers(client))["w0"]["no_cache_credit"]


async def test_a_worker_whose_ids_differ_earns_no_credit():
    async def tokenize(_request):
        return web.json_response({"tokens": [1, 2, 3]})

    class Tokenizing(FakeEngine):
        def app(self):
            app = super().app()
            app.router.add_post("/tokenize", tokenize)
            return app

    async with running(Tokenizing()) as engine, in_process([engine.url], tokenizer={"path": str(TOY)}) as client:
        entry = (await workers(client))["w0"]
        assert entry["parity"] == "failed"
        assert "parity failed" in entry["no_cache_credit"]


async def test_load_reports_reach_placement(engine):
    load = {
        "dp_rank": 0,
        "num_running_reqs": 3,
        "num_waiting_reqs": 7,
        "num_used_tokens": 100,
        "max_total_num_tokens": 4096,
    }
    engine.loads = {"loads": [load]}
    async with in_process([engine.url]) as client:
        (rank,) = client.router.placer.fleet.find_serving("toy")
        assert rank.report.used_tokens == 100
        await client.chat()
    engine.loads = {"loads": "garbage"}
    async with in_process([engine.url]) as client:
        assert usable(client)


async def test_a_worker_that_was_not_there_at_the_start_is_told_once_and_taken_when_it_comes(caplog):
    engine = FakeEngine()
    async with running(engine):
        url = engine.url
    async with in_process([url], probes=FAST) as client:
        assert (await client.chat()).status_code == 503
        (absence,) = said(caplog, "worker_unhealthy worker=w0")
        assert "ConnectError" in absence
        port = int(url.rpartition(":")[2])
        async with running(engine, port=port):
            await eventually(lambda: usable(client))
            assert (await client.chat()).status_code == 200
        assert len(said(caplog, "worker_unhealthy")) == 1


async def test_health_says_how_many_workers_can_be_used(client):
    response = await client.get("/health")
    assert response.json() == {"status": "ok", "healthy_workers": 1}


async def test_a_decision_tells_every_candidate(engines):
    async with in_process([engine.url for engine in engines]) as client:
        before = datetime.now(UTC)
        response = await client.post("/v1/chat/completions", json=CHAT)
        record = (await client.get("/v1/decisions/" + response.headers["x-request-id"])).json()
        candidates = record["decision"]["candidates"]
        assert [entry["target"]["worker"] for entry in candidates] == ["w0", "w1"]
        assert record["decision"]["reason"]
        decided_at = datetime.fromisoformat(record["decision"]["decided_at"])
        assert decided_at.utcoffset() == timedelta(0)
        assert before <= decided_at + timedelta(milliseconds=2)
        assert decided_at <= datetime.now(UTC) + timedelta(milliseconds=2)
        assert json.dumps(record)


async def test_a_worker_without_events_that_is_another_one_now_is_noticed_at_the_next_probe(engine):
    engine.server_info["dp_size"] = 3
    async with in_process([engine.url], probes={"interval_s": 0.02}) as client:
        assert len(client.router.fleet.find_ranks("w0")) == 3
        engine.server_info["dp_size"] = 1
        await eventually(lambda: len(client.router.fleet.find_ranks("w0")) == 1)


async def test_a_worker_whose_event_connection_broke_is_read_anew_at_the_next_probe(engine):
    engine.server_info["dp_size"] = 3
    async with in_process([engine.url], probes={"interval_s": 60.0}) as client:
        fleet = client.router.fleet
        engine.server_info["dp_size"] = 1
        fleet.report_reconnect("w0")
        await eventually(lambda: len(fleet.find_ranks("w0")) == 1)
        answers = [await client.chat() for _ in range(4)]
        assert {answer.headers["x-dovecote-dp-rank"] for answer in answers} == {"0"}


async def test_a_worker_whose_event_connection_broke_and_that_fails_a_probe_is_out_at_once(engine):
    async with in_process([engine.url], probes={"interval_s": 60.0, "unhealthy_after": 3}) as client:
        engine.health_status = 503
        client.router.fleet.report_reconnect("w0")
        await eventually(lambda: not usable(client))
        client.router.fleet.report_reconnect("no such worker")


async def test_C06_a_router_that_was_held_up_takes_no_worker_out(engine, caplog):
    async with in_process([engine.url], probes={"interval_s": 0.02, "unhealthy_after": 1}) as client:
        engine.health_gate.clear()
        before = engine.probes
        await eventually(lambda: engine.probes > before)
        leap(30.0)
        engine.health_gate.set()
        await eventually(lambda: engine.probes > before + 3)
        assert usable(client)
        assert not said(caplog, "worker_unhealthy")
