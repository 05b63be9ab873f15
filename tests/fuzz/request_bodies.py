"""A client's body: checked, forwarded, named, rendered; what is refused is refused in words."""

import json
from pathlib import Path

import msgspec
from guided import fuzz, instrumented

with instrumented():
    from router.errors import DovecoteError
    from router.prompt import Prompter, Unrenderable
    from router.prompt.anthropic_form import MessagesForm
    from router.prompt.native import look_over
    from router.prompt.responses_form import ResponsesForm
    from router.proxy.api import Api
    from router.proxy.body import INTERNAL_FIELDS, ROUTED_FIELDS, RequestBody
    from router.proxy.bounds import Bounds, check_bounds
    from router.proxy.converted import convert, is_converted
    from router.proxy.kept import MAX_ID_CHARS
    from router.proxy.known_chats import KnownChats
    from router.sessions.identity import find_session

TOY = Path(__file__).parents[2] / "engine_shim/engine/tokenizer/toy"
PROMPTER = Prompter.load(TOY)
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
CHAT = {
    "model": "m",
    "stream": True,
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "metadata": {"user_id": "u"},
}
PLAIN = {"prompt": "text", "n": 2, "max_tokens": 5, "stream_options": {}, "cache_salt": "s", "routed_dp_rank": 1}
IDS = {
    "prompt": [1, 2, 3, 4, 5, 6, 7, 8],
    "features": {"mm_hashes": {"image": ["a"]}, "mm_placeholders": {"image": [{"offset": 1, "length": 3}]}},
}
STATEFUL = {
    "model": "m",
    "instructions": "s",
    "input": [{"role": "user", "content": "hi"}],
    "previous_response_id": "resp_1",
    "max_output_tokens": 5,
}
SESSION = {"prompt": "text", "session_params": {"id": "s", "rid": None, "offset": 0}}
MESSAGES = {
    "model": "m",
    "max_tokens": 5,
    "system": [{"type": "text", "text": "s"}],
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]},
    ],
    "tools": [{"name": "f", "input_schema": {}}],
}
GENERATE = {"text": ["a", "b"], "sampling_params": {"n": 2, "max_new_tokens": 3}, "stream": True, "model": "m"}
CHATS = KnownChats()
APIS = {str(place).encode(): api for place, api in enumerate(Api)}
BODIES = (CHAT, PLAIN, IDS, STATEFUL, SESSION, MESSAGES, GENERATE)
SEEDS = [flag + json.dumps(body).encode() for flag in APIS for body in BODIES]


def check(data: bytes) -> None:
    """A body is refused with an error of ours, or forwarded as valid JSON without the fields that are the router's."""
    api, text = APIS.get(data[:1], Api.RESPONSE), data[1:]
    for member in (look_over(text) or {}).values():
        msgspec.json.decode(member)
    try:
        body = RequestBody(text, api=api)
        forwarded, _ = body.to_forward()
        find_session({}, body.identity)
        assert body.choices >= 1
        assert body.pin is None or len(body.pin) <= MAX_ID_CHARS + len("response:")
        assert body.max_output_tokens is None or body.max_output_tokens >= 1
        check_bounds(body, Bounds())
        for form in (*MessagesForm, None) if is_converted(api) else ():
            PROMPTER.prepare(convert(body, ResponsesForm.VLLM if form and api is Api.RESPONSE else form, CHATS))
        prompt = PROMPTER.prepare(body.prompt_input)
    except DovecoteError:
        return
    # Text in members that the router does not read is the engine's to look over.
    sent = json.loads(forwarded.decode("utf-8", "replace"))
    assert isinstance(sent, dict)
    assert not {*ROUTED_FIELDS, *INTERNAL_FIELDS} & {name for name, value in sent.items() if value is not None}
    if not isinstance(prompt, Unrenderable):
        assert prompt.token_count >= len(prompt.token_ids)
        Prompter.find_chain(prompt, block_tokens=4, model="m")


if __name__ == "__main__":
    fuzz(check, SEEDS)
