"""A real Prometheus scrapes a router and an engine with our configuration and answers every query of the board."""

import asyncio
import json
import shutil
from pathlib import Path

import aiohttp
import pytest
import yaml
from growing_sessions import until

from simulator.demo.processes import Children
from tests.ports import take_port
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "dashboards/prometheus"
#: Queries that have something to say only after a fault.
QUIET = ("errors", "rate_limited", "skipped", "gaps", "replays", "resets", "disagreement", "alert")


def write_config(folder, targets):
    """Our scrape configuration with the addresses of this run, scraping every second."""
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    config["global"]["scrape_interval"] = "1s"
    for job in config["scrape_configs"]:
        job["static_configs"] = [{"targets": [targets[job["job_name"]]]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy(PROMETHEUS / "alerts.yml", folder)


def board_queries():
    boards = [json.loads(path.read_text()) for path in (ROOT / "dashboards/grafana/boards").glob("*.json")]
    return [target["expr"] for board in boards for panel in board["panels"] for target in panel.get("targets", ())]


async def start_fleet(children):
    engine = await children.start("engine", ["engine_shim.engine", "--port", "0", "--forward", "timed"], {})
    await engine.wait_listening(PATIENCE_S)
    router = await children.start("router", ["router", "serve", "--port", "0", "--workers", engine.url], {})
    await router.wait_listening(PATIENCE_S)
    return engine.url, router.url


@pytest.fixture
async def prometheus(tmp_path):
    """Starts Prometheus on given targets; ends it with the test."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("needs a prometheus binary (make test unpacks Debian's)")
    running = []

    async def start(targets):
        write_config(tmp_path, targets)
        port = take_port()
        flags = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
        flags.append(f"--web.listen-address=127.0.0.1:{port}")
        quiet = asyncio.subprocess.DEVNULL
        running.append(await asyncio.create_subprocess_exec(binary, *flags, stdout=quiet, stderr=quiet))
        return f"http://127.0.0.1:{port}"

    yield start
    for process in running:
        process.terminate()
        await process.wait()


async def test_every_query_of_the_board_has_an_answer(prometheus):
    async with Children() as children, aiohttp.ClientSession() as http:
        engine_url, router_url = await start_fleet(children)
        body = {"model": "dovecote-toy", "max_tokens": 4, "messages": [{"role": "user", "content": "hello " * 200}]}
        url = await prometheus(
            {
                "dovecote-router": router_url.removeprefix("http://"),
                "dovecote-engine": engine_url.removeprefix("http://"),
            }
        )

        async def get(path, **params):
            try:
                async with http.get(f"{url}{path}", params=params) as response:
                    return await response.json()
            except (aiohttp.ClientConnectionError, aiohttp.ContentTypeError):  # it is still starting
                return {"status": "starting", "data": {"activeTargets": ()}}

        async def are_up():
            states = [target["health"] for target in (await get("/api/v1/targets"))["data"]["activeTargets"]]
            return len(states) == 2 and set(states) == {"up"}

        async def is_served():
            async with http.post(f"{router_url}/v1/chat/completions", json=body) as response:
                return response.status == 200

        async def answers(query):
            found = await get("/api/v1/query", query=query)
            assert found["status"] == "success", found
            return found["data"]["result"]

        await until(are_up, "both targets are scraped")
        queries = [query.replace("$__rate_interval", "1m") for query in board_queries()]
        assert queries
        for query in queries:

            async def has_answer(query=query):
                return await is_served() and await answers(query)

            if any(word in query for word in QUIET):
                await answers(query)
            else:
                await until(has_answer, f"there is an answer to {query}")
        rules = await get("/api/v1/rules")
        health = {rule["health"] for group in rules["data"]["groups"] for rule in group["rules"]}
        assert "err" not in health
