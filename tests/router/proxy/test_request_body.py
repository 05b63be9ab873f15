"""Bodies are checked once, with an error that says what is wrong, and forwarded as received."""

import json

import pytest

from router.errors import BodyTooLargeError, RequestError
from router.proxy.api import Api
from router.proxy.body import RequestBody
from router.proxy.client import AsgiClient, ClientGoneError
from router.proxy.converted import convert
from router.proxy.known_chats import KnownChats

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def chat(**more):
    return RequestBody(json.dumps(CHAT | more).encode(), api=Api.CHAT)


def channel(*messages):
    queue = list(messages)

    async def receive():
        return queue.pop(0)

    return receive


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"model": "m", "messages": [',
        b"[1]",
        b"null",
        b'"text"',
        b"\xef\xbb\xbf{}",
        b'{"messages": NaN}',
        b'{"messages": [], "a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"[" * 100_000,
        b'{"messages": [], "messages": []}',
        b'{"messages": [],  "n" : 1,  "n" : 2 }',
        b'{"messages": "text"}',
        b'{"messages": [], "model": 5}',
        b'{"messages": [], "stream": "yes"}',
        b"{}",
        b'{"messages": null}',
        b'{"messages": [{"role": "user", "content": "\xff"}]}',
        b"\x00\x01\x02",
    ],
)
def test_C17_broken_bodies_are_request_errors(data):
    with pytest.raises(RequestError) as caught:
        RequestBody(data, api=Api.CHAT).prompt_input.read_messages()
    assert caught.value.status_code == 400


def test_C10_half_a_surrogate_pair_is_a_request_error_and_a_whole_pair_passes():
    with pytest.raises(RequestError):
        RequestBody(b'{"messages":[{"role":"user","content":"\\ud83d"}]}', api=Api.CHAT).prompt_input.read_messages()
    data = b'{"messages":[{"role":"user","content":"\\ud83d\\udc26"}]}'
    assert RequestBody(data, api=Api.CHAT).to_forward() == (data, False)


def test_a_completion_needs_a_prompt():
    with pytest.raises(RequestError, match="prompt"):
        RequestBody(b'{"model":"m"}', api=Api.COMPLETION)
    assert RequestBody(b'{"prompt":"a"}', api=Api.COMPLETION).prompt_input.prompt == "a"


def test_C15_a_minimal_body_is_forwarded_as_received():
    data = json.dumps(CHAT).encode()
    assert RequestBody(data, api=Api.CHAT).to_forward() == (data, False)


def test_a_stream_asks_for_usage_once():
    data, drops = chat(stream=True).to_forward()
    assert drops
    assert json.loads(data) == CHAT | {"stream": True, "stream_options": {"include_usage": True}}
    assert chat(stream=True, stream_options={"include_usage": True}).to_forward()[1] is False


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": None, "other": 1}])
def test_stream_options_of_the_client_are_kept_beside(options):
    data, drops = chat(stream=True, stream_options=options).to_forward()
    assert drops
    assert json.loads(data)["stream_options"] == (options or {}) | {"include_usage": True}


def test_stream_options_of_a_wrong_kind_are_the_workers_to_refuse():
    body = chat(stream=True, stream_options="yes")
    assert body.to_forward() == (body.data, False)


@pytest.mark.parametrize("holder", ["vllm_xargs", "sampling_params", "extra_body", "nvext"])
@pytest.mark.parametrize("name", ["kv_transfer_params", "bootstrap_room", "routed_dp_rank"])
def test_G03_they_are_refused_wherever_an_engine_may_read_them(holder, name):
    for nested in ({name: 1}, {"deep": [{"er": {name: None}}]}):
        with pytest.raises(RequestError, match=name) as refused:
            chat(**{holder: nested})
        assert refused.value.param == f"{holder}.{name}"
    assert chat(**{holder: {"top_k": 3, "note": name}}).to_forward()[1] is False


def test_a_trusted_clients_fields_pass_as_they_are():
    data = json.dumps(CHAT | {"kv_hints": {"actions": []}, "routed_dp_rank": 1, "vllm_xargs": {"kv_hints": 1}}).encode()
    assert RequestBody(data, api=Api.CHAT, is_trusted=True).to_forward() == (data, False)


def test_G03_fields_of_prefill_and_decode_pairing_are_refused():
    for name in ("bootstrap_host", "bootstrap_room", "kv_transfer_params", "disagg_prefill_dp_rank", "kv_hints"):
        with pytest.raises(RequestError, match=name):
            chat(**{name: 1})


def test_G04_rank_fields_of_the_client_are_cut():
    data, _ = chat(routed_dp_rank=1, data_parallel_rank=2, bootstrap_host=None, seed=3).to_forward()
    assert json.loads(data) == CHAT | {"seed": 3}


def test_choices_count_all_answers():
    assert chat().choices == 1
    assert chat(n=3).choices == 3
    assert chat(n="many").choices == 1
    assert RequestBody(b'{"prompt":["a","b"],"n":2}', api=Api.COMPLETION).choices == 4
    assert RequestBody(b'{"prompt":[1,2]}', api=Api.COMPLETION).choices == 1


def test_the_longest_output_is_the_clients_lowest_limit():
    assert chat(max_tokens=7).max_output_tokens == 7
    assert chat(max_completion_tokens=9, max_tokens=100_000).max_output_tokens == 9
    assert chat(max_tokens=-1).max_output_tokens is None


def test_only_small_members_are_looked_at_for_a_session():
    body = chat(session_id="s", metadata={"user_id": "u"}, user="x" * 10_000)
    assert body.identity == {"session_id": "s", "metadata": {"user_id": "u"}}


async def test_C14_a_body_up_to_the_limit_is_received_and_one_byte_more_is_not():
    piece = {"type": "http.request", "body": b"12345", "more_body": True}
    last = {"type": "http.request", "body": b"67890"}
    assert await AsgiClient(channel(piece, last), None).receive_body(10) == b"1234567890"
    with pytest.raises(BodyTooLargeError):
        await AsgiClient(channel(piece, last), None).receive_body(9)


async def test_a_client_that_leaves_while_sending_is_noticed():
    messages = {"type": "http.request", "body": b"1", "more_body": True}, {"type": "http.disconnect"}
    with pytest.raises(ClientGoneError):
        await AsgiClient(channel(*messages), None).receive_body(10)


def respond(**more):
    return RequestBody(json.dumps({"model": "m", "input": "hi"} | more).encode(), api=Api.RESPONSE)


def test_the_state_that_a_body_names_has_one_name_whatever_its_kind():
    assert respond(previous_response_id="resp_1").pin == "response:resp_1"
    assert chat(session_params={"id": "resp_1"}).pin == "session:resp_1"
    for none in (chat(), chat(previous_response_id="resp_1"), chat(session_params={"rid": "x"}), respond()):
        assert none.pin is None
    assert chat(session_id="s", session_params=None).pin is None


def test_what_a_response_is_made_of_is_read_where_it_stands():
    body = respond(instructions="be short", max_output_tokens=7, n=3, stream=True)
    assert convert(body, None, KnownChats()).read_text() == (b'["be short","hi"]',)
    assert (body.max_output_tokens, body.choices) == (7, 1)
    assert body.to_forward() == (body.data, False)


def test_only_a_response_that_may_be_kept_is_kept():
    assert respond().keeps_response
    assert respond(store=True).keeps_response
    assert not respond(store=False).keeps_response
    assert not chat(store=True).keeps_response
