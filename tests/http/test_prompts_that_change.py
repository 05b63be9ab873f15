"""Tokenizers and engines that change while the router runs are looked at anew."""

import json
import shutil
from pathlib import Path

import msgspec
from aiohttp import web
from fake_engine import FakeEngine, running
from proxy_harness import eventually, in_process

from router.prompt import Prompter, PromptInput
from router.prompt.engine_form import DEFAULT_FORM, ToolForm

TOY = Path(__file__).parents[2] / "engine_shim/engine/tokenizer/toy"
FAST = {"interval_s": 0.03, "unhealthy_after": 3}


class Tokenizing(FakeEngine):
    """Renders as an engine of a given form does."""

    def __init__(self):
        super().__init__()
        self.prompter = Prompter.load(TOY)
        self.form = DEFAULT_FORM

    async def tokenize(self, request):
        body = await request.json()
        known = {"messages", "tools", "continue_final_message", "add_generation_prompt"}
        fields = {name: value for name, value in body.items() if name in known}
        options = body.get("chat_template_kwargs")
        ids = self.prompter.make_ids(PromptInput(template_options=options, **{"tools": None} | fields), self.form)
        return web.json_response({"tokens": ids.tolist()})

    def app(self):
        app = super().app()
        app.router.add_post("/tokenize", self.tokenize)
        return app


async def test_after_an_upgrade_of_all_engines_what_they_do_to_messages_is_found_out_anew():
    async with (
        running(Tokenizing()) as engine,
        in_process([engine.url], probes=FAST, tokenizer={"path": str(TOY)}) as client,
    ):
        worker = client.router.fleet.workers["w0"]
        assert worker.parity == "passed"
        prompter = client.router.prompts.find("toy").prompter
        assert prompter.form.tools is ToolForm.SENT
        engine.form = DEFAULT_FORM.__class__(tools=ToolForm.NAMED)
        worker.requests_since_parity = 1_000
        client.router.fleet.report_reconnect("w0")
        await eventually(lambda: prompter.form.tools is ToolForm.NAMED)
        assert worker.parity == "passed"


async def test_while_another_worker_goes_by_a_form_one_that_differs_earns_no_credit():
    async with (
        running(Tokenizing()) as old,
        running(Tokenizing()) as new,
        in_process([old.url, new.url], probes=FAST, tokenizer={"path": str(TOY)}) as client,
    ):
        fleet = client.router.fleet
        new.form = DEFAULT_FORM.__class__(tools=ToolForm.NAMED)
        fleet.workers["w1"].requests_since_parity = 1_000
        fleet.report_reconnect("w1")
        await eventually(lambda: fleet.workers["w1"].parity == "failed")
        assert fleet.workers["w0"].parity == "passed"
        assert client.router.prompts.find("toy").prompter.form.tools is ToolForm.SENT


async def test_once_all_engines_are_upgraded_what_shows_in_few_conversations_is_found_out_anew():
    async with (
        running(Tokenizing()) as first,
        running(Tokenizing()) as second,
        in_process([first.url, second.url], probes=FAST, tokenizer={"path": str(TOY)}) as client,
    ):
        fleet = client.router.fleet
        prompter = client.router.prompts.find("toy").prompter
        newer = msgspec.structs.replace(prompter.form, drops_attribution=True)

        def upgrade(engine, name):
            engine.form = newer
            fleet.workers[name].requests_since_parity = 1_000
            fleet.report_reconnect(name)

        upgrade(first, "w0")
        await eventually(lambda: fleet.workers["w0"].parity == "partly")
        assert fleet.workers["w0"].no_credit is None
        assert not prompter.form.drops_attribution
        upgrade(second, "w1")
        await eventually(lambda: prompter.form == newer)
        upgrade(first, "w0")
        await eventually(lambda: fleet.workers["w0"].parity == "passed")
        assert fleet.workers["w1"].parity == "passed"


async def test_a_tokenizer_that_comes_later_or_changes_is_loaded_anew(engine, tmp_path):
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "tokenizer.json").write_text("{")
    async with in_process([engine.url], probes=FAST, tokenizer={"path": str(folder)}) as client:
        worker = client.router.fleet.workers["w0"]
        assert "not a tokenizer" in worker.no_credit
        shutil.copytree(TOY, folder, dirs_exist_ok=True)
        await eventually(lambda: client.router.prompts.find("toy") is not None)
        first = client.router.prompts.find("toy").prompter
        config = json.loads((folder / "tokenizer_config.json").read_text())
        config["chat_template"] = config["chat_template"] + "{# another #}"
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        worker.requests_since_parity = 1_000
        client.router.fleet.report_reconnect("w0")
        await eventually(lambda: client.router.prompts.find("toy").prompter is not first)
