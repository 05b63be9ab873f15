"""`/v1/chat/completions`: shapes, usage, stops, choices, names and ranks."""

import json

import pytest
from engine_serving import TOY, chat_body, read_events

CHAT = "/v1/chat/completions"


async def test_an_answer_has_text_usage_and_the_rank_that_served(client):
    response = await client.post(CHAT, json=chat_body(return_token_ids=True, model="dovecote-toy"))
    answer = response.json()
    choice = answer["choices"][0]
    assert response.status_code == 200
    assert answer["object"] == "chat.completion"
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] == "length"
    assert len(choice["token_ids"]) == 4
    assert answer["prompt_token_ids"] == TOY.encode(TOY.template.render(chat_body()["messages"]))
    prompt_tokens = len(answer["prompt_token_ids"])
    assert answer["usage"] == {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": 4,
        "total_tokens": prompt_tokens + 4,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert response.headers["x-dovecote-dp-rank"] in ("0", "1")


async def test_a_stream_has_a_role_then_text_then_an_end_then_usage(client):
    body = chat_body(stream=True, stream_options={"include_usage": True}, return_token_ids=True)
    events = read_events(await client.post(CHAT, json=body))
    assert events.pop() == "[DONE]"
    first, *chunks, usage = (json.loads(event) for event in events)
    assert first["choices"] == [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]
    assert first["prompt_token_ids"] == TOY.encode(TOY.template.render(chat_body()["messages"]))
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "length"]
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 4
    assert {chunk["id"] for chunk in (first, *chunks, usage)} == {first["id"]}
    assert {chunk["object"] for chunk in (first, *chunks, usage)} == {"chat.completion.chunk"}


async def test_a_stream_says_the_same_as_a_whole_answer(client):
    whole = (await client.post(CHAT, json=chat_body(max_tokens=40, return_token_ids=True))).json()["choices"][0]
    body = chat_body(max_tokens=40, return_token_ids=True, stream=True)
    chunks = [json.loads(event) for event in read_events(await client.post(CHAT, json=body))[:-1]]
    deltas = [chunk["choices"][0] for chunk in chunks]
    assert "".join(delta["delta"]["content"] for delta in deltas) == whole["message"]["content"]
    assert [token_id for delta in deltas for token_id in delta.get("token_ids", ())] == whole["token_ids"]


async def test_without_include_usage_a_stream_has_no_usage(client):
    events = read_events(await client.post(CHAT, json=chat_body(stream=True)))
    assert not any("usage" in json.loads(event) for event in events[:-1])


async def test_continuous_usage_is_in_every_chunk_of_text(client):
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = read_events(await client.post(CHAT, json=chat_body(stream=True, stream_options=options)))
    usages = [json.loads(event)["usage"]["completion_tokens"] for event in events[1:-1]]
    assert usages == [1, 2, 3, 4, 4]


async def test_a_repeated_prompt_on_its_rank_is_cached_up_to_the_last_token(client):
    body = chat_body("the same words again and again, twice", return_token_ids=True, routed_dp_rank=1)
    answers = [(await client.post(CHAT, json=body)).json() for _ in range(2)]
    cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]
    page_tokens = 4
    assert cached == [0, (answers[0]["usage"]["prompt_tokens"] - 1) // page_tokens * page_tokens]
    assert answers[0]["choices"] == answers[1]["choices"]


async def test_prompts_of_different_salts_share_nothing(client):
    bodies = [chat_body("shared words", routed_dp_rank=0, cache_salt=salt) for salt in ("a", "b", "a")]
    cached = [
        (await client.post(CHAT, json=body)).json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        for body in bodies
    ]
    assert cached[:2] == [0, 0]
    assert cached[2] > 0


async def test_an_answer_ends_before_a_stop_string(client):
    whole = (await client.post(CHAT, json=chat_body(max_tokens=30))).json()["choices"][0]["message"]["content"]
    stop = whole[len(whole) // 2 :][:2]
    choice = (await client.post(CHAT, json=chat_body(max_tokens=30, stop=[stop, "never so"]))).json()["choices"][0]
    assert choice["message"]["content"] == whole[: whole.index(stop)]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)


async def test_a_stop_string_ends_a_stream_too(client):
    whole = (await client.post(CHAT, json=chat_body(max_tokens=30))).json()["choices"][0]["message"]["content"]
    stop = whole[len(whole) // 2 :][:2]
    events = read_events(await client.post(CHAT, json=chat_body(max_tokens=30, stop=stop, stream=True)))
    chunks = [json.loads(event)["choices"][0] for event in events[:-1]]
    assert "".join(chunk["delta"]["content"] for chunk in chunks) == whole[: whole.index(stop)]
    assert chunks[-1]["finish_reason"] == "stop"


async def test_a_stop_token_ends_an_answer_and_is_no_text(client):
    whole = (await client.post(CHAT, json=chat_body(max_tokens=10, return_token_ids=True))).json()["choices"][0]
    stop_id = whole["token_ids"][3]
    body = chat_body(max_tokens=10, stop_token_ids=[stop_id], return_token_ids=True)
    choice = (await client.post(CHAT, json=body)).json()["choices"][0]
    assert choice["token_ids"] == whole["token_ids"][: whole["token_ids"].index(stop_id) + 1]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop_id)
    assert whole["message"]["content"].startswith(choice["message"]["content"])


async def test_several_choices_have_their_own_text_and_one_prompt_in_usage(client):
    body = chat_body(n=3, temperature=1.0, seed=5, max_tokens=8)
    answers = [(await client.post(CHAT, json=body)).json() for _ in range(2)]
    texts = [choice["message"]["content"] for choice in answers[0]["choices"]]
    assert [choice["index"] for choice in answers[0]["choices"]] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert texts == [choice["message"]["content"] for choice in answers[1]["choices"]]
    prompt_tokens = len(TOY.encode(TOY.template.render(chat_body()["messages"])))
    assert answers[0]["usage"]["prompt_tokens"] == prompt_tokens
    assert answers[0]["usage"]["completion_tokens"] == 24


async def test_streamed_choices_are_told_apart_by_their_index(client):
    events = read_events(await client.post(CHAT, json=chat_body(n=2, stream=True, max_tokens=5)))
    chunks = [json.loads(event)["choices"][0] for event in events[:-1]]
    for index in (0, 1):
        own = [chunk for chunk in chunks if chunk["index"] == index]
        assert [chunk["finish_reason"] for chunk in own] == [None] * 5 + ["length"]


async def test_tools_are_rendered_into_the_prompt(client):
    tools = [{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}]
    body = chat_body(tools=tools, tool_choice="auto", return_token_ids=True)
    answer = (await client.post(CHAT, json=body)).json()
    assert "read_file" in TOY.decode(answer["prompt_token_ids"])


async def test_max_completion_tokens_goes_before_max_tokens(client):
    answer = (await client.post(CHAT, json=chat_body(max_completion_tokens=2))).json()
    assert answer["usage"]["completion_tokens"] == 2


async def test_fields_given_as_null_mean_their_defaults(client):
    names = ("stream", "n", "stop", "temperature", "top_p", "seed", "tools", "stream_options", "routed_dp_rank")
    response = await client.post(CHAT, json=chat_body(**dict.fromkeys(names)))
    assert response.status_code == 200


async def test_an_answer_stops_where_the_context_ends(client):
    prompt_ids = [9] * 505
    answer = (await client.post("/v1/completions", json={"prompt": prompt_ids, "max_tokens": 100})).json()
    assert answer["usage"]["completion_tokens"] == 7
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_a_request_keeps_its_own_name(client):
    response = await client.post(CHAT, json=chat_body(), headers={"X-Request-Id": "turn-7"})
    assert response.json()["id"] == "chatcmpl-turn-7"
    assert response.headers["x-request-id"] == "turn-7"


@pytest.mark.parametrize("name", ["", "x" * 257, "na\u00efve".encode()])
async def test_a_name_that_is_no_name_is_replaced(client, name):
    response = await client.post(CHAT, json=chat_body(), headers={"X-Request-Id": name})
    assert response.headers["x-request-id"].isalnum()
    assert len(response.headers["x-request-id"]) == 32


async def test_a_stream_that_fails_at_once_is_a_plain_error(client):
    response = await client.post(CHAT, json=chat_body(stream=True, model="nope"))
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/json"


async def test_long_prompts_are_tokenized_off_the_loop_and_give_the_same_ids(client):
    content = "word " * 1_200
    long = await client.post("/tokenize", json={"messages": [{"role": "user", "content": content}]})
    assert long.json()["tokens"] == TOY.encode(TOY.template.render([{"role": "user", "content": content}]))
