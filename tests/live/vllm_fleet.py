"""Real vLLM replicas on the CPU and a router in front of them, for the tests of this folder.

vLLM is where `real_engine/README.md` of the shared material installs it; who has none skips.
"""

import asyncio
import os
import signal
import subprocess
import time
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml

from simulator.demo.processes import Children
from tests.ports import take_ports

VLLM = Path(os.environ.get("VLLM_ENV", Path.home() / ".vllm_env"))
WORDS = (
    *("please", "tell", "me", "how", "the", "cache", "block", "prefix", "token"),
    *("router", "engine", "request", "answer", "code", "value", "list", "server", "node"),
)


async def until(condition, what, deadline_s=240.0):
    deadline = time.monotonic() + deadline_s
    while not (value := await condition()):
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        await asyncio.sleep(0.2)
    return value


def make_model(scripts, folder, name):
    """A tiny model's folder."""
    if not (VLLM / "bin/vllm").exists():
        pytest.skip(f"needs vLLM at {VLLM} (install_vllm_cpu.sh of the shared material)")
    make = [VLLM / "bin/python", scripts / "make_tiny_model.py", folder, name]
    subprocess.run(make, check=True, capture_output=True)
    return folder / name


@asynccontextmanager
async def router_before(config, folder):
    """A client's session and a router of this configuration, once it listens."""
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(config))
    async with aiohttp.ClientSession() as http, Children() as children:
        router = await children.start("router", ["router", "serve", "--port", "0", "--config", str(path)], {})
        await router.wait_listening(30.0)
        yield http, router


async def are_healthy(http, router, wanted=2):
    """Whether just so many workers are healthy."""
    async with http.get(f"{router.url}/v1/workers") as response:
        workers = (await response.json())["workers"]
    return sum(worker["healthy"] for worker in workers) == wanted


class Replica:
    """One vLLM server that connects its event socket to the router."""

    def __init__(self, scripts, model, log, *, options=(), environment=None):
        self.scripts, self.model, self.log = scripts, model, log
        self.options, self.environment = options, environment or {}
        self.port, self.event_port, self.replay_port = take_ports(3)
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self):
        environment = {
            **os.environ,
            **self.environment,
            "VENV": str(VLLM),
            "REPLAY_PORT": str(self.replay_port),
            "TOPIC": "kv",
        }
        command = ["bash", self.scripts / "run_vllm.sh", self.model, str(self.port), str(self.event_port)]
        command += ["--num-gpu-blocks-override", "2048", *self.options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def as_config(self):
        events = {
            "endpoint": f"tcp://127.0.0.1:{self.event_port}",
            "binds": True,
            "replay_endpoint": f"tcp://127.0.0.1:{self.replay_port}",
            "topic": "kv",
        }
        return {"url": self.url, "id": f"replica-{self.port}", "events": events}
