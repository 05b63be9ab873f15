"""Whatever a client sends, the answer is an error in the OpenAI form and the engine goes on serving."""

import httpx
import msgspec
import pytest
from engine_serving import chat_body, make_service
from hypothesis import given
from hypothesis import strategies as st

from engine_shim.engine.server import ServingLimits, build_app
from engine_shim.engine.server.body import decode_body
from engine_shim.engine.server.errors import ApiError
from engine_shim.engine.server.protocol import ChatRequest, CompletionRequest, GenerateRequest, TokenizeRequest

CHAT, COMPLETIONS, GENERATE, TOKENIZE = "/v1/chat/completions", "/v1/completions", "/generate", "/tokenize"

BAD = [
    (CHAT, chat_body(model="nope"), 404, "model"),
    (CHAT, {}, 400, "messages"),
    (CHAT, {"messages": []}, 400, "messages"),
    (CHAT, {"messages": "hi"}, 400, "messages"),
    (CHAT, {"messages": ["hi"]}, 400, "messages[0]"),
    (CHAT, {"messages": [{"role": "wizard", "content": "x"}]}, 400, "messages"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "messages"),
    (CHAT, chat_body(max_tokens=0), 400, "max_tokens"),
    (CHAT, chat_body(max_tokens=-1), 400, "max_tokens"),
    (CHAT, chat_body(max_tokens="5"), 400, "max_tokens"),
    (CHAT, chat_body(max_tokens=2.5), 400, "max_tokens"),
    (CHAT, chat_body(temperature=-1), 400, "temperature"),
    (CHAT, chat_body(temperature="hot"), 400, "temperature"),
    (CHAT, chat_body(top_p=0), 400, "top_p"),
    (CHAT, chat_body(top_p=1.5), 400, "top_p"),
    (CHAT, chat_body(seed=1 << 63), 400, "seed"),
    (CHAT, chat_body(n=0), 400, "n"),
    (CHAT, chat_body(n=1_000), 400, "n"),
    (CHAT, chat_body(stop=[""]), 400, "stop"),
    (CHAT, chat_body(stop=["x"] * 100), 400, "stop"),
    (CHAT, chat_body(stop=5), 400, "stop"),
    (CHAT, chat_body(stream="yes"), 400, "stream"),
    (CHAT, chat_body(stream_options=[]), 400, "stream_options"),
    (CHAT, chat_body(tools={"name": "f"}), 400, "tools"),
    (CHAT, chat_body(logprobs=True), 400, "logprobs"),
    (CHAT, chat_body(routed_dp_rank=2), 400, "routed_dp_rank"),
    (CHAT, chat_body(routed_dp_rank=-1), 400, "routed_dp_rank"),
    (CHAT, chat_body(data_parallel_rank=9), 400, "data_parallel_rank"),
    (CHAT, chat_body("long " * 2_000), 400, None),
    (CHAT, [], 400, None),
    (CHAT, None, 400, None),
    (COMPLETIONS, {}, 400, "prompt"),
    (COMPLETIONS, {"prompt": []}, 400, "prompt"),
    (COMPLETIONS, {"prompt": ""}, 400, None),
    (COMPLETIONS, {"prompt": [[]]}, 400, None),
    (COMPLETIONS, {"prompt": {"text": "x"}}, 400, "prompt"),
    (COMPLETIONS, {"prompt": ["x", 5]}, 400, "prompt"),
    (COMPLETIONS, {"prompt": [True, 5]}, 400, "prompt"),
    (COMPLETIONS, {"prompt": [1.5]}, 400, "prompt"),
    (COMPLETIONS, {"prompt": ["x"] * 300}, 400, "prompt"),
    (COMPLETIONS, {"prompt": [-1]}, 400, None),
    (COMPLETIONS, {"prompt": [4_096]}, 400, None),
    (COMPLETIONS, {"prompt": [1 << 80]}, 400, None),
    (COMPLETIONS, {"prompt": [7] * 512}, 400, None),
    (COMPLETIONS, {"prompt": "x", "echo": True}, 400, "echo"),
    (COMPLETIONS, {"prompt": "x", "logprobs": 3}, 400, "logprobs"),
    (COMPLETIONS, {"prompt": "x", "best_of": 3}, 400, "best_of"),
    (COMPLETIONS, {"prompt": "x", "suffix": "y"}, 400, "suffix"),
    (GENERATE, {}, 400, "text"),
    (GENERATE, {"text": "x", "input_ids": [1]}, 400, "text"),
    (GENERATE, {"text": "x", "sampling_params": {"max_new_tokens": 0}}, 400, "max_new_tokens"),
    (GENERATE, {"text": "x", "sampling_params": {"temperature": "no"}}, 400, "sampling_params.temperature"),
    (GENERATE, {"text": "x", "rid": ""}, 400, "rid"),
    (GENERATE, {"text": "x", "routed_dp_rank": 77}, 400, "routed_dp_rank"),
    (TOKENIZE, {}, 400, "messages"),
    (TOKENIZE, {"prompt": "x", "messages": []}, 400, "messages"),
    (TOKENIZE, {"prompt": "x", "model": "nope"}, 404, "model"),
    ("/detokenize", {"tokens": [5_000]}, 400, "tokens"),
    ("/detokenize", {"tokens": "x"}, 400, "tokens"),
    ("/abort_request", {}, 400, "rid"),
    ("/v1/kv_hints", {}, 400, "kv_hints"),
    ("/v1/kv_hints", {"protocol_version": "9", "message_id": "m", "actions": []}, 400, "kv_hints"),
]


def check_error(response, status, param):
    error = response.json()["error"]
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (status, param)
    assert error["message"]


@pytest.mark.parametrize(("path", "body", "status", "param"), BAD, ids=lambda value: str(value)[:40])
async def test_bad_input_is_refused_with_the_field_at_fault(client, path, body, status, param):
    check_error(await client.post(path, json=body), status, param)
    assert (await client.post(CHAT, json=chat_body())).status_code == 200


@pytest.mark.parametrize(("path", "body", "status", "param"), [case for case in BAD if isinstance(case[1], dict)][:12])
async def test_a_refused_stream_is_plain_json_too(client, path, body, status, param):
    check_error(await client.post(path, json={"stream": True} | body), status, param)


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"messages": [}', b"\xff\xfe", b'"\xc3', b"[" * 100_000, b'{"a": ' * 50_000, b"NaN"]
)
async def test_a_body_that_is_no_json_is_refused(client, body):
    check_error(await client.post(CHAT, content=body), 400, None)


async def test_lone_surrogates_are_refused_or_read_but_never_break_the_server(client):
    body = b'{"messages": [{"role": "user", "content": "\\ud800"}], "max_tokens": 1}'
    assert (await client.post(CHAT, content=body)).status_code in (200, 400)


@pytest.mark.parametrize("rank", ["x", "-1", "2", "1.0", "", "\u00b2".encode(), "9" * 30])
async def test_a_rank_header_that_names_no_rank_is_refused(client, rank):
    response = await client.post(CHAT, json=chat_body(), headers={"X-Data-Parallel-Rank": rank})
    check_error(response, 400, "X-Data-Parallel-Rank")


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nowhere", 404), ("GET", CHAT, 405)])
async def test_routes_that_do_not_exist_answer_in_the_same_form(client, method, path, status):
    check_error(await client.request(method, path), status, None)


async def test_a_body_over_the_limit_is_refused_before_and_while_it_is_read(gate):
    app = build_app(make_service(gate, limits=ServingLimits(body_bytes=2_000)))

    async def in_pieces():
        for _ in range(30):
            yield b" " * 100

    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://e") as client:
        check_error(await client.post(CHAT, json=chat_body("x" * 3_000)), 413, None)
        check_error(await client.post(CHAT, content=in_pieces()), 413, None)
        assert (await client.post(CHAT, json=chat_body())).status_code == 200


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(
    ["messages", "prompt", "text", "input_ids", "stop", "n", "max_tokens", "sampling_params", "rid"]
)


@given(st.dictionaries(fields, json_values, max_size=4))
def test_any_json_is_decoded_or_refused(body):
    for request_type in (ChatRequest, CompletionRequest, GenerateRequest, TokenizeRequest):
        try:
            decode_body(msgspec.json.encode(body), request_type)
        except ApiError as error:
            assert error.status == 400  # noqa: PT017
