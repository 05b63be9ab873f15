"""What the proxy tells of answers that come whole, so that the pace of their engine is learned."""

import json

import pytest
from fake_engine import WHOLE, answering

USAGE = {"prompt_tokens": 9, "completion_tokens": 400, "total_tokens": 409}
#: Far quicker than 400 steps take.
ANSWER = json.dumps(WHOLE | {"usage": USAGE}).encode()


async def test_an_engine_that_answers_whole_is_learned_to_be_quick(client, engine):
    engine.script = answering(200, ANSWER)
    assert (await client.chat()).status_code == 200
    assert client.router.placer.decode_ratio < 0.5


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
