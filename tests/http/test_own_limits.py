"""Where the router's own process is at its limits, no worker is blamed."""

import os
import resource
from contextlib import contextmanager
from pathlib import Path

from proxy_harness import in_process, value


@contextmanager
def no_more_sockets():
    """This process can open no further file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    fillers = [os.open(os.devnull, os.O_RDONLY)]
    while fillers[-1] < highest:
        fillers.append(os.open(os.devnull, os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (fillers[-1] + 1, hard))
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
