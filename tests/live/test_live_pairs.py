"""A real vLLM prefill/decode pair behind the router: streams, clients that leave, a prefill engine that dies.

The cache goes from one engine to the other over NixlConnector in host memory. Run by `make test-live`; needs vLLM and
nixl as `real_engine/README.md` and `run_pd.sh` of the shared material install them.
"""

import asyncio
import json
import re
import time

import pytest
from vllm_fleet import VLLM, WORDS, Replica, are_healthy, make_model, router_before, until

from tests.ports import take_port

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

CONNECTOR = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"}
#: On a busy machine this pair's hand-over itself takes 20 s now and then, with the router or without.
HANDOFF_S, PREFILL_S = 45.0, 60.0
STREAMS = 12


def make_engine(scripts, model, log):
    environment = {
        "UCX_TLS": "tcp,sm,self", "UCX_NET_DEVICES": "lo", "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(take_port(run=4)),
    }  # fmt: skip
    options = ("--kv-transfer-config", json.dumps(CONNECTOR), "--enable-prompt-tokens-details")
    return Replica(scripts, model, log, options=options, environment=environment)


@pytest.fixture
def engines(shared_dir, tmp_path):
    """A prefill engine and a decode engine."""
    scripts = shared_dir / "real_engine"
    model = make_model(scripts, tmp_path, "qwen3")
    if not list(VLLM.glob("lib/python3*/site-packages/nixl*")):
        pytest.skip(f"needs nixl at {VLLM} (see run_pd.sh of the shared material)")
    both = [make_engine(scripts, model, tmp_path / f"{name}.log") for name in ("prefill", "decode")]
    for engine in both:
        engine.start()
    yield both
    for engine in both:
        if engine.process.poll() is None:
            engine.kill()


def body_of(number, **fields):
    text = " ".join(WORDS[(number * place) % len(WORDS)] for place in range(1, 220))
    messages = [{"role": "user", "content": f"{number}: {text}"}]
    return {"model": "tiny", "messages": messages, "temperature": 0, "max_tokens": 16, "ignore_eos": True} | fields


async def read_stream(http, url, body):
    """Text of a streamed answer, its headers, and whether it came to its end; of an error all that was sent."""
    async with http.post(f"{url}/v1/chat/completions", json=body | {"stream": True}) as response:
        raw = await response.text()
    events = [line.removeprefix("data: ") for line in raw.splitlines() if line.startswith("data: ")]
    is_whole = response.status == 200 and events[-1:] == ["[DONE]"]
    if not is_whole:
        return response, raw, False
    chunks = [json.loads(event) for event in events[:-1]]
    if "error" in chunks[-1]:
        # vLLM ends a stream that failed in its hands with an error event, and then its usual last word.
        return response, raw, False
    text = "".join(choice["delta"].get("content") or "" for each in chunks for choice in each["choices"])
    return response, text, True


async def count_open(http, engine):
    """Requests that run or wait there, by its own account."""
    async with http.get(f"{engine.url}/metrics") as response:
        page = await response.text()
    return sum(float(value) for value in re.findall(r"(?m)^vllm:num_requests_(?:running|waiting){.*} (\S+)$", page))


async def test_a_real_pair_serves_streams_and_survives_leaving_clients_and_a_killed_prefill_engine(engines, tmp_path):
    prefill, decode = engines
    config = {
        "workers": [prefill.as_config() | {"role": "prefill"}, decode.as_config() | {"role": "decode"}],
        "tokenizer": {"path": str(prefill.model)},
        "timeouts": {"handoff_s": HANDOFF_S, "prefill_s": PREFILL_S},
    }
    async with router_before(config, tmp_path) as (http, router):
        await until(lambda: are_healthy(http, router), "both engines are healthy")
        await serve_streams(http, router.url, prefill, decode)
        await leave(http, router.url, engines)
        await kill_prefill(http, router.url, prefill)


async def serve_streams(http, url, prefill, decode):
    """Each answer is the one that the decode engine gives alone, and the prefill engine reuses what it has."""
    for turn in range(2):
        answers = await asyncio.gather(*(read_stream(http, url, body_of(number)) for number in range(STREAMS)))
        for number, (response, text, is_whole) in enumerate(answers):
            assert is_whole, text
            assert response.headers["x-dovecote-worker"] == f"replica-{decode.port}"
            if not turn:
                _, alone, _ = await read_stream(http, decode.url, body_of(number))
                assert text == alone
        records = []
        for response, _, _ in answers:
            async with http.get(f"{url}/v1/decisions/{response.headers['x-request-id']}") as found:
                records.append(await found.json())
        assert {record["decision"]["prefill"]["worker"] for record in records} == {f"replica-{prefill.port}"}
        reused = [record["actual_cached_tokens"] for record in records]
        print(f"turn {turn}: reused {reused}, {sorted({str(record['accuracy']) for record in records})}")
        if turn:
            assert min(reused) > 0
            assert {record["accuracy"] for record in records} <= {"exact", "raced"}


async def leave(http, url, engines):
    """A client that goes leaves no request running on either engine, streamed or not."""
    for stream in (True, False):
        body = body_of(77 + stream, stream=stream, max_tokens=3_000)
        if stream:
            async with http.post(f"{url}/v1/chat/completions", json=body) as response:
                await response.content.readany()
        else:
            call = asyncio.create_task(http.post(f"{url}/v1/chat/completions", json=body).__aenter__())

            async def runs():
                return await count_open(http, engines[1]) > 0

            await until(runs, "the decode engine has the request", HANDOFF_S)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        left_at = time.monotonic()

        async def idle():
            return sum([await count_open(http, engine) for engine in engines]) == 0

        await until(idle, "both engines are idle", 5.0)
        print(f"stream={stream}: idle {time.monotonic() - left_at:.2f} s after the client left")


async def kill_prefill(http, url, prefill):
    """Every request under way ends whole or with a clear error within the limits, and later ones say what is wrong."""
    async with http.post(f"{url}/v1/chat/completions", json=body_of(99, stream=True, max_tokens=600)) as generating:
        await generating.content.readany()
        calls = [asyncio.create_task(read_stream(http, url, body_of(100 + n, max_tokens=400))) for n in range(STREAMS)]
        await asyncio.sleep(0.3)
        prefill.kill()
        killed_at = time.monotonic()
        # What generates has what it needs.
        assert (await generating.text()).rstrip().endswith("[DONE]")
    answers = await asyncio.gather(*calls)
    took_s = time.monotonic() - killed_at
    assert took_s < HANDOFF_S + 10.0
    broken = [(response, text) for response, text, is_whole in answers if not is_whole]
    for response, text in broken:
        last = text.rstrip().removesuffix("data: [DONE]")
        error = json.loads(last.rsplit("data: ", 1)[-1])["error"]
        assert response.status in {200, 502, 503, 504}
        assert error["message"]
    print(f"killed: {len(answers) - len(broken)} whole, {len(broken)} errors, all over after {took_s:.1f} s")
    started_at = time.monotonic()
    response, text, is_whole = await read_stream(http, url, body_of(200))
    assert not is_whole
    assert response.status in {502, 503, 504}
    print(f"after the kill: {response.status} {text.strip()[:160]} in {time.monotonic() - started_at:.2f} s")
