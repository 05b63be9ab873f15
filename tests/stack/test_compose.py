"""The commands of docker-compose.yml as processes: hosts and ports mapped to loopback, one real request through.

What only containers can show (image build, Grafana, Prometheus) is not tried here; that every metric of the board
and of the alerts stands on these processes' pages is.
"""

import asyncio
import json
import re
from pathlib import Path

import aiohttp
import pytest
import yaml
from growing_sessions import until

from simulator.demo.processes import Children
from simulator.demo.scrape import MetricsPage
from tests.waiting import LOADING_S, PATIENCE_S

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[2]
MODULES = {"engine": ["engine_shim.engine"], "serve": ["router", "serve"]}
METRIC = re.compile(r"\bdovecote_[a-z0-9_]+\b")
#: Metrics that appear with their first event of the kind, which this run may not have.
ON_FIRST_USE = {
    "dovecote_router_prediction_disagreement",
    "dovecote_router_errors_total",
    "dovecote_router_rate_limited_total",
    "dovecote_router_upstream_errors_total",
    "dovecote_router_events_skipped_total",
}
PROMPT = "the quick brown fox jumps over the lazy dog and runs through the wood " * 12


def mapped(command, urls):
    """A service's command with its sockets on loopback: free ports, and the other services where they really are."""
    arguments = [*MODULES[command[0]], *command[1:]]
    for flag, value in {
        "--host": "127.0.0.1",
        "--port": "0",
        "--kv-events-port-base": "0",
        "--replay-port-base": "0",
    }.items():
        if flag in arguments:
            arguments[arguments.index(flag) + 1] = value
    return [urls.get(argument, argument) for argument in arguments]


async def page(http, url):
    async with http.get(f"{url}/metrics") as response:
        return MetricsPage(await response.text())


async def ask(http, url):
    body = {"model": "dovecote-toy", "max_tokens": 4, "messages": [{"role": "user", "content": PROMPT}]}
    async with http.post(f"{url}/v1/chat/completions", json=body, headers={"X-Dovecote-Session": "s"}) as response:
        return response.status, await response.json()


async def start_fleet(children, services):
    """All engines, then the router; the addresses by service."""
    names = [name for name in services if name.startswith("engine")]
    started = {name: await children.start(name, mapped(services[name]["command"], {}), {}) for name in names}
    await asyncio.gather(*(child.wait_listening(LOADING_S) for child in started.values()))
    urls = {f"http://{name}:30000": child.url for name, child in started.items()}
    router = await children.start("router", mapped(services["router"]["command"], urls), {})
    await router.wait_listening(PATIENCE_S)
    return {**{name: child.url for name, child in started.items()}, "router": router.url}


def asked_metrics():
    boards = [json.loads(path.read_text()) for path in (ROOT / "dashboards/grafana/boards").glob("*.json")]
    queries = [target["expr"] for board in boards for panel in board["panels"] for target in panel["targets"]]
    rules = (ROOT / "dashboards/prometheus/alerts.yml").read_text()
    return set(METRIC.findall(" ".join([*queries, rules])))


async def test_the_compose_commands_serve_a_request_whose_repetition_is_cached_and_counted():
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    async with Children() as children, aiohttp.ClientSession() as http:
        urls = await start_fleet(children, services)

        async def is_healthy():
            return (await page(http, urls["router"])).total("dovecote_router_worker_healthy") == 2

        await until(is_healthy, "both engines are healthy")
        status, first = await ask(http, urls["router"])
        assert status == 200
        assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        _, second = await ask(http, urls["router"])
        assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
        assert second["choices"][0]["message"]["content"] == first["choices"][0]["message"]["content"]
        pages = [await page(http, url) for url in urls.values()]
        missing = asked_metrics() - set().union(*(one.names() for one in pages))
        assert missing <= ON_FIRST_USE
        assert pages[-1].total("dovecote_router_placements_total") == 2
