"""Two real vLLM replicas on the CPU behind the router: every prediction that nothing raced is exact.

200 conversation turns a model; in the middle one replica is killed and restarted and the other's prefix cache is reset.
Run by `make test-live`; needs vLLM as `real_engine/README.md` of the shared material installs it.
"""

import asyncio
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import aiohttp
import pytest
import yaml

from simulator.demo.processes import Children
from tests.ports import take_ports

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

VLLM = Path(os.environ.get("VLLM_ENV", Path.home() / ".vllm_env"))
SESSIONS, TURNS, AT_ONCE = 20, 10, 4
WORDS = (
    *("please", "tell", "me", "how", "the", "cache", "block", "prefix", "token"),
    *("router", "engine", "request", "answer", "code", "value", "list", "server", "node"),
)
#: Share of the answers that may be raced, and so say nothing.
EXCLUDED_RATIO = 0.05


async def until(condition, what, deadline_s=240.0):
    deadline = time.monotonic() + deadline_s
    while not (value := await condition()):
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        await asyncio.sleep(0.2)
    return value


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


class Conversations:
    """Agent-like sessions over the router; answers go into the history."""

    def __init__(self, http, url):
        self.http, self.url = http, url
        self.limit = asyncio.Semaphore(AT_ONCE)
        self.histories = {
            f"s{number}": [{"role": "system", "content": f"part {number % 4} " + " ".join(WORDS * 12)}]
            for number in range(SESSIONS)
        }
        self.request_ids, self.failures = [], []

    async def take_turn(self, name):
        history = self.histories[name]
        shift = len(history) + int(name[1:])
        text = " ".join(WORDS[(shift * place) % len(WORDS)] for place in range(1, 60))
        history.append({"role": "user", "content": f"{name} {len(history)}: {text}"})
        body = {"model": "tiny", "messages": history, "max_tokens": 12, "temperature": 0, "ignore_eos": True}
        async with (
            self.limit,
            self.http.post(
                f"{self.url}/v1/chat/completions", json=body, headers={"X-Dovecote-Session": name}
            ) as response,
        ):
            answer = await response.json(content_type=None)
            if response.status == 200:
                self.request_ids.append(response.headers["x-request-id"])
                history.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
            else:
                self.failures.append((response.status, answer))

    async def take_turns(self, count):
        async def run(name):
            for _ in range(count):
                await self.take_turn(name)

        await asyncio.gather(*(run(name) for name in self.histories))


@pytest.fixture
def replicas(shared_dir, tmp_path, request):
    scripts = shared_dir / "real_engine"
    if not (VLLM / "bin/vllm").exists():
        pytest.skip(f"needs vLLM at {VLLM} (install_vllm_cpu.sh of the shared material)")
    name = request.param
    make = [VLLM / "bin/python", scripts / "make_tiny_model.py", tmp_path, name]
    subprocess.run(make, check=True, capture_output=True)
    both = [Replica(scripts, tmp_path / name, tmp_path / f"replica{number}.log") for number in range(2)]
    for replica in both:
        replica.start()
    yield both
    for replica in both:
        replica.kill()


async def accuracy_of(http, url, request_ids):
    found = Counter()
    for request_id in request_ids:
        async with http.get(f"{url}/v1/decisions/{request_id}") as response:
            record = await response.json()
        found[record["accuracy"]] += 1
    return found


@pytest.mark.parametrize("replicas", ["qwen3", "gemma3", "qwen3-next"], indirect=True)
async def test_predictions_are_exact_through_a_kill_a_restart_and_a_reset(replicas, tmp_path):
    config = {"workers": [one.as_config() for one in replicas], "tokenizer": {"path": str(replicas[0].model)}}
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump(config))
    async with aiohttp.ClientSession() as http, Children() as children:
        router = await children.start("router", ["router", "serve", "--port", "0", "--config", str(path)], {})
        await router.wait_listening(30.0)

        async def healthy(wanted=2):
            async with http.get(f"{router.url}/v1/workers") as response:
                workers = (await response.json())["workers"]
            return sum(worker["healthy"] for worker in workers) == wanted

        await until(healthy, "both replicas are healthy")
        talk = Conversations(http, router.url)
        await talk.take_turns(TURNS // 2)
        assert talk.failures == []
        replicas[0].kill()
        replicas[0].start()
        await until(lambda: healthy(1), "the killed replica is out")
        await until(healthy, "the killed replica is back")
        async with http.post(f"{replicas[1].url}/reset_prefix_cache") as response:
            assert response.status == 200
        await talk.take_turns(TURNS - TURNS // 2)
        assert talk.failures == []
        classes = await accuracy_of(http, router.url, talk.request_ids)
        excluded = classes.total() - classes["exact"]
        print(f"{dict(classes)}; excluded {excluded} of {classes.total()}")
        assert classes.total() == SESSIONS * TURNS
        # None: nothing had been heard of the rank yet, so nothing was predicted.
        assert set(classes) <= {"exact", "raced", None}
        assert excluded <= EXCLUDED_RATIO * classes.total()
