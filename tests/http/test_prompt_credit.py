"""What a prompt's credit rests on, end to end: exact ids while they agree, chunks of text where there are none."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from fake_engine import USAGE, WHOLE, FakeEngine, running
from proxy_harness import eventually, in_process, value

from router.control.parity import BATTERY, PARITY_EVERY_REQUESTS
from router.prompt import Prompter
from router.prompt.engine_form import DEFAULT_FORM

TOY = Path(__file__).parents[2] / "engine_shim/engine/tokenizer/toy"
LONG = "a long question about many things " * 200


class Tokenizing(FakeEngine):
    """Answers `/tokenize` as the router would, or one off."""

    def __init__(self):
        super().__init__()
        self.shift = 0
        self.prompter = Prompter.load(TOY)

    async def tokenize(self, request):
        asked = await request.json()
        case = next(case for case in BATTERY if case.to_body(asked["model"]) == asked)
        ids = self.prompter.tokenizer.encode(self.prompter.render(case.to_input(), DEFAULT_FORM))
        return web.json_response({"tokens": [token + self.shift for token in ids]})

    def app(self):
        app = super().app()
        app.router.add_post("/tokenize", self.tokenize)
        return app


async def worker(client, name="w0"):
    entries = (await client.get("/v1/workers")).json()["workers"]
    return next(entry for entry in entries if entry["id"] == name)


async def serve_until_compared(client):
    """The last of so many requests that ids are compared anew."""
    for _ in range(PARITY_EVERY_REQUESTS - 1):
        client.router.fleet.count_placed("w0")
    await client.chat()


async def test_ids_that_differ_later_cost_the_credit_until_they_agree_again():
    async with running(Tokenizing()) as engine, in_process([engine.url], tokenizer={"path": str(TOY)}) as client:
        fleet = client.router.fleet
        assert (await worker(client))["parity"] == "passed"
        engine.shift = 1
        await serve_until_compared(client)
        await eventually(lambda: fleet.workers["w0"].parity == "failed")
        entry = await worker(client)
        assert entry["cache_credit"] == "none"
        assert "parity failed" in entry["no_cache_credit"]
        assert value(client.router, "worker_parity", worker="w0", parity="failed") == 1
        engine.shift = 0
        await serve_until_compared(client)
        await eventually(lambda: fleet.workers["w0"].parity == "passed")
        assert "parity" not in ((await worker(client))["no_cache_credit"] or "")


def answering(cached_tokens):
    async def script(_engine, _request, _body):
        usage = USAGE | {"prompt_tokens": 1_700, "prompt_tokens_details": {"cached_tokens": cached_tokens}}
        return web.json_response(WHOLE | {"usage": usage})

    return script


@pytest.mark.parametrize("session", [{}, {"prompt_cache_key": "s"}])
async def test_without_a_tokenizer_a_prompt_goes_where_its_text_was_and_is_labelled_approximate(session):
    engines = running(FakeEngine()), running(FakeEngine())
    async with engines[0] as first, engines[1] as second, in_process([first.url, second.url]) as client:
        messages, served = [{"role": "user", "content": LONG}], []
        for turn in range(4):
            for engine in (first, second):
                engine.script = answering(0 if turn == 0 else 1_600)
            answer = await client.chat(messages=messages, **session)
            served.append(answer.headers["x-dovecote-worker"])
            messages = [*messages, {"role": "assistant", "content": "abc"}, {"role": "user", "content": f"{turn}"}]
        assert len(set(served)) == 1
        newest = (await client.get("/v1/decisions")).json()["decisions"][0]
        assert newest["decision"]["credit"] == "approximate"
        assert newest["decision"]["predicted_cached_tokens"] > 1_000
        assert newest["accuracy"] == "approximate"
        assert (await worker(client))["cache_credit"] == "approximate"
        assert value(client.router, "predictions_total", accuracy="approximate") == 4
        assert value(client.router, "predictions_total", accuracy="exact") == 0
        assert value(client.router, "predicted_cached_tokens_total", worker=served[0], dp_rank="0") == 0


async def test_requests_that_name_no_session_keep_to_the_one_their_text_goes_on_from():
    async with running(FakeEngine()) as engine, in_process([engine.url]) as client:
        messages = [{"role": "user", "content": LONG}]
        for _ in range(2):
            await client.chat(messages=messages)
            messages = [*messages, {"role": "assistant", "content": "abc"}, {"role": "user", "content": LONG}]
        decisions = (await client.get("/v1/decisions")).json()["decisions"]
        sessions = {entry["decision"]["session"] for entry in decisions}
        assert len(sessions) == 1
        assert sessions.pop().startswith("chain-")


async def test_long_prompts_are_prepared_while_others_are_answered():
    async with running(FakeEngine()) as engine, in_process([engine.url], tokenizer={"path": str(TOY)}) as client:
        long = client.chat(messages=[{"role": "user", "content": LONG * 40}])
        answers = await asyncio.gather(long, *(client.chat() for _ in range(5)))
        assert {answer.status_code for answer in answers} == {200}
