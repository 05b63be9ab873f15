"""`/v1/completions` and `/generate`: every form of a prompt, whole and streamed."""

import json

from engine_serving import TOY, read_events

COMPLETIONS = "/v1/completions"


async def complete(client, **body):
    response = await client.post(COMPLETIONS, json={"max_tokens": 3, "return_token_ids": True} | body)
    assert response.status_code == 200, response.text
    return response.json()


async def generate(client, **body):
    response = await client.post("/generate", json={"sampling_params": {"max_new_tokens": 3}} | body)
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_text_and_its_ids_are_the_same_prompt(client):
    by_text = await complete(client, prompt="once upon a time", routed_dp_rank=0)
    by_ids = await complete(client, prompt=TOY.encode("once upon a time"), routed_dp_rank=0)
    assert by_text["choices"] == by_ids["choices"]
    assert by_text["object"] == "text_completion"
    assert by_text["choices"][0]["prompt_token_ids"] == TOY.encode("once upon a time")
    assert by_ids["usage"]["prompt_tokens_details"]["cached_tokens"] % 4 == 0


async def test_several_prompts_are_answered_in_their_order(client):
    alone = [(await complete(client, prompt=text))["choices"][0]["text"] for text in ("first one", "second one")]
    together = await complete(client, prompt=["first one", "second one"])
    assert [choice["text"] for choice in together["choices"]] == alone
    assert together["usage"]["prompt_tokens"] == len(TOY.encode("first one")) + len(TOY.encode("second one"))
    assert together["usage"]["completion_tokens"] == 6


async def test_lists_of_ids_and_choices_multiply(client):
    answer = await complete(client, prompt=[[10, 11, 12], [13, 14]], n=2, temperature=1.0, seed=1)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    prompts = [choice["prompt_token_ids"] for choice in answer["choices"]]
    assert prompts == [[10, 11, 12], [10, 11, 12], [13, 14], [13, 14]]
    assert answer["usage"]["prompt_tokens"] == 5


async def test_a_completion_without_a_limit_has_sixteen_tokens(client):
    response = await client.post(COMPLETIONS, json={"prompt": "hi"})
    assert response.json()["usage"]["completion_tokens"] == 16


async def test_a_streamed_completion_says_the_same_as_a_whole_one(client):
    whole = (await complete(client, prompt="tell me", max_tokens=20))["choices"][0]
    body = {"prompt": "tell me", "max_tokens": 20, "stream": True, "return_token_ids": True}
    events = read_events(await client.post(COMPLETIONS, json=body))
    assert events.pop() == "[DONE]"
    chunks = [json.loads(event)["choices"][0] for event in events]
    assert chunks[0]["prompt_token_ids"] == whole["prompt_token_ids"]
    assert "".join(chunk["text"] for chunk in chunks) == whole["text"]
    assert [token_id for chunk in chunks for token_id in chunk["token_ids"]] == whole["token_ids"]
    assert chunks[-1]["finish_reason"] == "length"


async def test_a_streamed_completion_tells_usage_when_asked(client):
    body = {"prompt": "tell me", "max_tokens": 2, "stream": True, "stream_options": {"include_usage": True}}
    events = read_events(await client.post(COMPLETIONS, json=body))
    assert json.loads(events[-2])["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


async def test_generate_tells_ids_cached_tokens_and_rank(client):
    answers = [await generate(client, text="once upon a time there was", routed_dp_rank=1, rid="r1") for _ in range(2)]
    meta = answers[1]["meta_info"]
    prompt_tokens = len(TOY.encode("once upon a time there was"))
    assert meta == {
        "id": "r1",
        "finish_reason": {"type": "length", "length": 3},
        "prompt_tokens": prompt_tokens,
        "completion_tokens": 3,
        "cached_tokens": (prompt_tokens - 1) // 4 * 4,
        "dp_rank": 1,
    }
    assert answers[0]["output_ids"] == answers[1]["output_ids"]
    assert answers[0]["text"] == answers[1]["text"]


async def test_generate_takes_ids_and_answers_a_batch_with_a_list(client):
    one = await generate(client, input_ids=[5, 6, 7])
    several = await generate(client, input_ids=[[5, 6, 7], [8, 9]])
    of_one = await generate(client, text=["a"])
    assert one["output_ids"] == several[0]["output_ids"]
    assert (len(several), len(of_one)) == (2, 1)


async def test_a_streamed_generate_repeats_the_whole_text_in_each_chunk(client):
    whole = await generate(client, input_ids=[5, 6, 7])
    body = {"input_ids": [5, 6, 7], "stream": True, "sampling_params": {"max_new_tokens": 3}}
    events = read_events(await client.post("/generate", json=body))
    assert events.pop() == "[DONE]"
    chunks = [json.loads(event) for event in events]
    assert [chunk["output_ids"] for chunk in chunks] == [whole["output_ids"][:count] for count in (1, 2, 3)]
    assert chunks[-1] == whole | {"meta_info": chunks[-1]["meta_info"]}
    assert [chunk["meta_info"]["finish_reason"] for chunk in chunks[:2]] == [None, None]


async def test_generate_stops_at_a_stop_string(client):
    whole = await generate(client, input_ids=[5, 6, 7], sampling_params={"max_new_tokens": 20})
    stop = whole["text"][5:8]
    answer = await generate(client, input_ids=[5, 6, 7], sampling_params={"max_new_tokens": 20, "stop": stop})
    assert answer["text"] == whole["text"][: whole["text"].index(stop)]
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
