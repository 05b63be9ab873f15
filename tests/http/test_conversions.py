"""Which chat an engine makes of a body is told by how long it says the prompt is."""

import json
from pathlib import Path

import pytest
from aiohttp import web
from api_engine import MESSAGE, ApiEngine
from fake_engine import running
from proxy_harness import in_process, value

from router.control.parity import BATTERY
from router.prompt import Prompter, PromptInput
from router.prompt.anthropic_form import MessagesForm, convert_messages
from router.prompt.engine_form import DEFAULT_FORM

TOY = Path(__file__).parents[2] / "engine_shim/engine/tokenizer/toy"
MESSAGES = {"model": "toy", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}


class CountingEngine(ApiEngine):
    """Renders messages as SGLang does and says how long that was, with ids that the router can check."""

    def __init__(self, form):
        super().__init__()
        self.form = form
        self.prompter = Prompter.load(TOY)
        self.script = count_like_the_form

    async def tokenize(self, request):
        asked = await request.json()
        case = next(case for case in BATTERY if case.to_body(asked["model"]) == asked)
        ids = self.prompter.tokenizer.encode(self.prompter.render(case.to_input(), DEFAULT_FORM))
        return web.json_response({"tokens": list(ids)})

    def add_routes(self, router):
        super().add_routes(router)
        router.add_post("/tokenize", self.tokenize)


async def count_like_the_form(engine, _request, body):
    fields = json.loads(body)
    if engine.form is None:
        tokens = 1
    else:
        chat = convert_messages(fields.get("system"), fields["messages"], engine.form)
        tokens = len(engine.prompter.prepare(PromptInput(messages=chat)).token_ids)
    usage = {"input_tokens": tokens - 1, "output_tokens": 3, "cache_read_input_tokens": 1}
    return web.json_response(MESSAGE | {"usage": usage})


@pytest.mark.parametrize("form", [MessagesForm.VLLM, MessagesForm.SGLANG, None])
async def test_the_conversion_in_use_is_the_one_whose_lengths_are_the_engines(form):
    body = MESSAGES | {"system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    async with (
        running(CountingEngine(form)) as engine,
        in_process([engine.url], tokenizer={"path": str(TOY)}) as client,
    ):
        for _ in range(5):
            assert (await client.post("/v1/messages", json=body)).status_code == 200
        assert client.router._app._parts.conversions.choose("toy", "/v1/messages") == form
        # Lengths of a chat that is none of those: after each was tried nothing is known, and nothing is claimed.
        uncredited = value(client.router, "uncredited_prompts_total", reason="conversion")
        assert uncredited == (2 if form is None else 0)


async def test_what_changes_a_prompt_in_an_engines_own_way_earns_no_exact_credit():
    async with (
        running(CountingEngine(MessagesForm.VLLM)) as engine,
        in_process([engine.url], tokenizer={"path": str(TOY)}) as client,
    ):
        for fields, reason in (
            ({"thinking": {"type": "disabled"}}, "opaque_field"),
            ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "conversion"),
            ({"thinking": {"type": "enabled", "budget_tokens": 5}}, None),
        ):
            told = (await client.post("/v1/explain", params={"path": "/v1/messages"}, json=MESSAGES | fields)).json()
            assert told["uncredited"] == reason
