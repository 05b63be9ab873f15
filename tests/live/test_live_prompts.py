"""Bodies as agents send them, in three APIs, before a real vLLM: what it keeps of each prompt is predicted exactly.

Each body holds something that engines change before their chat template sees it: tool calls and results in every shape,
reasoning, a developer's message, a line that changes with every request. The template shows all of it. Run by
`make test-live`; needs vLLM as `real_engine/README.md` of the shared material installs it.
"""

import json

import pytest
from vllm_fleet import WORDS, Replica, are_healthy, make_model, router_before, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

#: Shows reasoning as templates of reasoning models do, in front of the calls.
CALLS = "{%- if m.get('tool_calls') %}"
REASONING = "{%- if m.get('reasoning_content') %}{{- '<think>' + m['reasoning_content'] + '</think>' }}{%- endif %}"
#: As `run_vllm.sh` has them.
BLOCK_TOKENS = 32
SCHEMAS = {
    "read_file": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    "list": {"properties": {"n": {"type": "integer", "minimum": 0}}},
}


def words(step, count=60):
    return " ".join(WORDS[(step * place) % len(WORDS)] for place in range(1, count))


def text(*texts, kind="text"):
    return [{"type": kind, "text": each} for each in texts]


class Chat:
    """Collects the bodies of one conversation, each with all that was said before it."""

    def __init__(self, member, **fields):
        self.member, self.fields = member, fields
        self.said, self.bodies = [], []

    def say(self, *said):
        self.said += said

    def ask(self, *said, **fields):
        self.say(*said)
        self.bodies.append(json.loads(json.dumps({**self.fields, self.member: self.said, **fields})))


def make_messages():
    tools = [{"name": name, "input_schema": schema} for name, schema in SCHEMAS.items()]
    tools[0]["description"] = "Reads a file."
    system = text("x-anthropic-billing-header: cc_version=1;", "You are an agent. " + words(3, 120), words(5))
    chat = Chat("messages", system=system, tools=tools, max_tokens=8)
    user, agent = ((lambda content, role=role: {"role": role, "content": content}) for role in ("user", "assistant"))
    use = {"type": "tool_use", "id": "t1", "name": "read_file", "input": {"path": "a/b.py"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": words(9)}
    chat.ask(user(text("Please " + words(7), "and " + words(2))))
    chat.ask(agent([*text("I read."), use]), user([result]))
    uses = [{**use, "id": "t2", "name": "list", "input": {"n": 3}}, {**use, "id": "t3", "name": "list", "input": {}}]
    failed = {**result, "tool_use_id": "t3", "is_error": True, "content": "failed"}
    results = [{**result, "tool_use_id": "t2", "content": text(words(4), "second")}, failed]
    chat.ask(agent(uses), user([*results, *text("go on")]))
    thinking = {"type": "thinking", "thinking": "let me see " + words(6, 20), "signature": "x"}
    chat.ask(agent([thinking, *text("Done.")]), user("Thanks. " + words(8)))
    chat.ask(agent("Well."), user(text("", "é ü 漢字 " + words(11))))
    chat.ask(agent(text("a", "b")), user("last " + words(13)), stream=True)
    chat.ask(agent("y"), user([{"type": "tool_result", "tool_use_id": "t9"}]))
    chat.ask(agent("y"), user("with effort " + words(2)), output_config={"effort": "low"})
    return "/v1/messages", chat.bodies


def make_chat():
    tools = [{"type": "function", "function": {"name": name, "parameters": each}} for name, each in SCHEMAS.items()]
    chat = Chat("messages", tools=tools, max_tokens=8, ignore_eos=True)
    call = {"type": "function", "id": "c1", "function": {"name": "list", "arguments": '{"n": 1}'}}
    malformed = {"id": "c2", "function": {"arguments": '{"n": ', "name": "list"}, "type": "function"}
    system = "x-anthropic-billing-header: cch=1;\nBe good. " + words(3, 150)
    user, tool = ((lambda content, role=role: {"role": role, "content": content}) for role in ("user", "tool"))
    chat.ask({"role": "system", "content": system}, user("Hi " + words(7)))
    thought = {"role": "assistant", "content": "", "reasoning_content": "hm " + words(2, 20), "tool_calls": [call]}
    chat.ask(thought, tool(text("a\n", "b")) | {"tool_call_id": "c1"})
    called = {"role": "assistant", "content": None, "reasoning": "so " + words(4, 20), "tool_calls": [malformed]}
    chat.ask(called, tool("bad") | {"tool_call_id": "c2"})
    answer = {"role": "assistant", "content": "ok", "refusal": None, "annotations": [], "tool_calls": []}
    chat.ask(answer, user("x " + words(5)), reasoning_effort="low")
    chat.ask({"role": "assistant", "content": "ok"}, {"role": "developer", "content": "in French"}, user(words(5)))
    chat.ask({"role": "assistant", "content": "d'accord"}, user(text("x " + words(6), "two")) | {"name": "joe"})
    chat.ask({"role": "assistant", "content": "ok"}, user("y " + words(9)), stream=True)
    return "/v1/chat/completions", chat.bodies


def make_responses():
    tools = [{"type": "function", "name": name, "parameters": schema} for name, schema in SCHEMAS.items()]
    chat = Chat(
        "input", instructions="You are an agent. " + words(3, 150), tools=tools, max_output_tokens=8, store=False
    )

    def agent(*texts):
        content = [part | {"annotations": []} for part in text(*texts, kind="output_text")]
        return {"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": content}

    def call(number, arguments):
        return {"type": "function_call", "call_id": f"c{number}", "name": "list", "arguments": arguments}

    def output(number, content):
        return {"type": "function_call_output", "call_id": f"c{number}", "output": content}

    user = {"role": "user"}
    chat.ask(user | {"content": "Please " + words(7)})
    chat.ask(agent("I read."), call(1, '{"n": 1}'), output(1, words(9)))
    chat.ask(call(2, "{}"), call(3, '{"n":1}'), output(2, "x"), output(3, words(4)))
    chat.ask({"role": "assistant", "content": "Done."}, user | {"content": text(words(8), "two", kind="input_text")})
    chat.ask(agent("one", "two"), user | {"content": "é 漢 " + words(6)}, stream=True)
    chat.ask(agent("w"), {"role": "developer", "content": "be brief"}, user | {"content": "z " + words(5)})
    reasoning = {"type": "reasoning", "id": "r", "summary": []}
    reasoning["content"] = text("hm " + words(4, 20), kind="reasoning_text")
    chat.ask(reasoning, call(4, "{}"), output(4, text("a", words(2), kind="input_text")))
    chat.ask(reasoning, agent("v"), user | {"content": "with effort " + words(2)}, reasoning={"effort": "low"})
    bodies = [
        *chat.bodies,
        {"input": "a text alone " + words(5, 90)},
        {"input": "a text alone " + words(5, 90) + " more"},
    ]
    return "/v1/responses", bodies


@pytest.fixture
def replica(shared_dir, tmp_path):
    scripts = shared_dir / "real_engine"
    model = make_model(scripts, tmp_path, "qwen3")
    template = model / "chat_template.jinja"
    template.write_text(template.read_text().replace(CALLS, REASONING + CALLS))
    options = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    one = Replica(scripts, model, tmp_path / "replica.log", options=options)
    one.start()
    yield one
    one.kill()


async def ask(http, url, path, body):
    """The request's id, once its answer is read."""
    async with http.post(f"{url}{path}", json={"model": "tiny", **body}) as response:
        assert response.status == 200, await response.text()
        await response.read()
        return response.headers["x-request-id"]


async def test_prompts_of_every_api_are_those_of_the_engine(replica, tmp_path):
    config = {"workers": [replica.as_config()], "tokenizer": {"path": str(replica.model)}}
    async with router_before(config, tmp_path) as (http, router):

        async def settled(request_id):
            async with http.get(f"{router.url}/v1/decisions/{request_id}") as response:
                record = await response.json()
            return record if record["accuracy"] is not None else None

        async def is_held(api, body):
            """Whether the engine told of all whole blocks of a prompt, as the router names them."""
            async with http.post(
                f"{router.url}/v1/explain", params={"path": api}, json={"model": "tiny", **body}
            ) as told:
                decision = (await told.json())["decision"]
            whole_tokens = (decision["prompt_tokens"] - 1) // BLOCK_TOKENS * BLOCK_TOKENS
            return decision["predicted_cached_tokens"] == whole_tokens

        await until(lambda: are_healthy(http, router, 1), "the replica is healthy")
        for api, bodies in (make_messages(), make_chat(), make_responses()):
            records = []
            for body in bodies:
                request_id = await ask(http, router.url, api, body)
                records.append(await until(lambda name=request_id: settled(name), f"{request_id} is judged", 5.0))
                # What the next one finds is then told by events, and raced by none.
                await until(
                    lambda body=body, api=api: is_held(api, body), f"the blocks of {request_id} are known", 30.0
                )
            seen = [(record["decision"]["credit"], record["accuracy"]) for record in records]
            print(api, [record["actual_cached_tokens"] for record in records])
            assert seen == [("exact", "exact")] * len(bodies), api
