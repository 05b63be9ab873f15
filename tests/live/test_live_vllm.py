"""Two real vLLM replicas on the CPU behind the router: every prediction that nothing raced is exact.

200 conversation turns a model; in the middle one replica is killed and restarted and the other's prefix cache is reset.
Run by `make test-live`; needs vLLM as `real_engine/README.md` of the shared material installs it.
"""

import asyncio
from collections import Counter

import pytest
from vllm_fleet import WORDS, Replica, are_healthy, make_model, router_before, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

SESSIONS, TURNS, AT_ONCE = 20, 10, 4
#: Share of the answers that may be raced, and so say nothing.
EXCLUDED_RATIO = 0.05


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
    model = make_model(scripts, tmp_path, request.param)
    both = [Replica(scripts, model, tmp_path / f"replica{number}.log") for number in range(2)]
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
    async with router_before(config, tmp_path) as (http, router):
        await until(lambda: are_healthy(http, router), "both replicas are healthy")
        talk = Conversations(http, router.url)
        await talk.take_turns(TURNS // 2)
        assert talk.failures == []
        replicas[0].kill()
        replicas[0].start()
        await until(lambda: are_healthy(http, router, 1), "the killed replica is out")
        await until(lambda: are_healthy(http, router), "the killed replica is back")
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
