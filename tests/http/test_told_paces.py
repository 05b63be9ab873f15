"""What the proxy tells of answers that come whole, so that the pace of their engine is learned."""

import json

import pytest
from fake_engine import MODEL, WHOLE, answering

USAGE = {"prompt_tokens": 9, "completion_tokens": 400, "total_tokens": 409}
#: Far quicker than 400 steps take.
ANSWER = json.dumps(WHOLE | {"usage": USAGE}).encode()


async def test_an_engine_that_answers_whole_is_learned_to_be_quick(client, engine):
    engine.script = answering(200, ANSWER)
    assert (await client.chat()).status_code == 200
    assert client.router.placer.decode_ratio < 0.5


@pytest.mark.parametrize(("prompts", "is_learned"), [(1, True), (2, False)])
async def test_the_first_output_of_several_prompts_is_not_the_end_of_their_prefill(client, engine, prompts, is_learned):
    body = {"model": MODEL, "prompt": ["word " * 8_000] * prompts, "stream": True}
    async with client.stream("POST", "/v1/completions", json=body) as response:
        assert response.status_code == 200
        await response.aread()
    assert (client.router.placer.prefill_ratio < 1.0) == is_learned


@pytest.mark.parametrize(
    ("status", "body", "fields"),
    [
        (200, ANSWER, {"n": 2}),
        (500, ANSWER, {}),
        (200, json.dumps(WHOLE | {"usage": None}).encode(), {}),
        (200, json.dumps({"error": {"message": "no", "code": 500}, "usage": USAGE}).encode(), {}),
    ],
)
async def test_several_answers_and_bad_ones_teach_nothing(client, engine, status, body, fields):
    engine.script = answering(status, body)
    await client.chat(**fields)
    assert (client.router.placer.prefill_ratio, client.router.placer.decode_ratio) == (1.0, 1.0)
