"""Where the router's own process is at its limits, no worker is blamed."""

import logging
import os
import resource
from contextlib import contextmanager

import httpx
import pytest
from proxy_harness import in_process, value

from router.control.engine_client import EngineClient, OwnLimitError

#: So few numbers of files that no socket of a test has one of them; more than any poll here looks at.
FEW = 12


@contextmanager
def no_more_sockets():
    """This process can open no further file, whatever is closed meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fillers = [os.open(os.devnull, os.O_RDONLY)]
    while fillers[-1] < FEW:
        fillers.append(os.open(os.devnull, os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)


async def test_a_router_out_of_sockets_says_so_and_keeps_its_workers(engine):
    async with in_process([engine.url]) as client:
        with no_more_sockets():
            response = await client.chat()
        assert (response.status_code, response.json()["error"]["code"]) == (503, "out_of_sockets")
        assert response.headers["retry-after"]
        assert client.router.fleet.find_health() == {"w0": True}
        assert value(client.router, "errors_total", reason="out_of_sockets") == 1
        assert value(client.router, "requests_total", outcome="rejected") == 1
        assert (await client.chat()).status_code == 200


async def test_probes_that_could_not_be_made_are_no_fault_of_a_worker(engine, caplog):
    caplog.set_level(logging.WARNING)
    async with in_process([engine.url], probes={"interval_s": 60.0, "unhealthy_after": 2}) as client:
        fleet = client.router.fleet
        # One that has no connection to go on with.
        await fleet._client.aclose()
        fleet._client = httpx.AsyncClient(trust_env=False)
        with no_more_sockets():
            for _ in range(4):
                await fleet._probe(fleet.workers["w0"], 1)
        assert sum("probe_skipped" in record.getMessage() for record in caplog.records) == 4
        assert fleet.find_health() == {"w0": True}
        await fleet._probe(fleet.workers["w0"], 1)
        assert (await client.chat()).status_code == 200


async def test_every_question_to_a_worker_tells_our_limits_from_its_faults(engine):
    async with httpx.AsyncClient(trust_env=False) as http:
        client = EngineClient(http, engine.url, 1.0)
        with no_more_sockets():
            for ask in (client.probe, client.read_facts, client.read_loads):
                with pytest.raises(OwnLimitError):
                    await ask()
        assert await client.probe() is None
    async with httpx.AsyncClient(trust_env=False) as http:
        assert "ConnectError" in await EngineClient(http, "http://127.0.0.9:1", 1.0).probe()
