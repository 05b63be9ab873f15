"""What a request asks for is bounded by what its engine would do, however it is spelled."""

import json

import pytest

from router.errors import RequestError
from router.proxy.api import Api
from router.proxy.body import RequestBody
from router.proxy.bounds import Bounds, check_bounds

BOUNDS = Bounds(choices=4, prompts=3, answers=8, logprobs=20, output_tokens=1_000)
CHAT = {"model": "m", "messages": []}


def check(api, body):
    check_bounds(RequestBody(json.dumps(body).encode(), api=api), BOUNDS)


def refuses(api, body, param):
    with pytest.raises(RequestError) as caught:
        check(api, body)
    return caught.value.status_code == 400 and caught.value.param == param


@pytest.mark.parametrize("name", ["n", "best_of"])
@pytest.mark.parametrize("value", [5, 5.0, "5", 1e30, 10**400])
def test_G08_more_answers_than_the_bound_are_refused_however_they_are_spelled(name, value):
    assert refuses(Api.CHAT, CHAT | {name: value}, name)
    check(Api.CHAT, CHAT | {name: 4})


@pytest.mark.parametrize("name", ["logprobs", "top_logprobs", "prompt_logprobs", "top_logprobs_num"])
@pytest.mark.parametrize("value", [21, -1, "-1", 151_936, -0.5])
def test_G08_log_probabilities_of_the_whole_vocabulary_are_refused_under_every_name(name, value):
    assert refuses(Api.CHAT, CHAT | {name: value}, name)
    for good in (20, 0, True, None, "word"):
        check(Api.CHAT, CHAT | {name: good})


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "min_tokens"])
def test_G08_answers_longer_than_the_bound_are_refused_and_odd_ones_left_to_the_engine(name):
    assert refuses(Api.CHAT, CHAT | {name: 1_001}, name)
    for value in (1_000, -1, 0):
        check(Api.CHAT, CHAT | {name: value})


def test_G08_bounds_hold_where_sampling_stands_in_an_object_of_its_own():
    body = {"text": "x", "sampling_params": {"n": 5}}
    assert refuses(Api.GENERATE, body, "sampling_params.n")
    assert refuses(Api.GENERATE, {"text": "x", "sampling_params": [{}, {"n": 5}]}, "sampling_params.n")
    assert refuses(Api.GENERATE, {"text": "x", "top_logprobs_num": 21}, "top_logprobs_num")


def test_G08_prompts_documents_and_items_are_counted_and_ids_are_not():
    assert refuses(Api.COMPLETION, {"model": "m", "prompt": ["a"] * 4}, "prompt")
    assert refuses(Api.GENERATE, {"input_ids": [[1], [2], [3], [4]]}, "input_ids")
    assert refuses(Api.RERANK, {"model": "m", "query": "q", "documents": ["a"] * 4}, "documents")
    assert refuses(Api.EMBEDDING, {"model": "m", "input": ["a"] * 4}, "input")
    check(Api.COMPLETION, {"model": "m", "prompt": list(range(100))})
    check(Api.EMBEDDING, {"model": "m", "input": [-1.5] * 100})
    check(Api.COMPLETION, {"model": "m", "prompt": []})


def test_G08_answers_over_all_prompts_are_bounded_too():
    assert refuses(Api.COMPLETION, {"model": "m", "prompt": ["a", "b", "c"], "n": 3}, "n")


@pytest.mark.parametrize("name", ["kv_transfer_params", "bootstrap_host", "routed_dp_rank"])
@pytest.mark.parametrize("holder", ["sampling_params", "vllm_xargs", "extra_args", "extra_body", "custom_params"])
def test_G03_fields_of_the_router_are_refused_where_they_hide_in_an_object(holder, name):
    assert refuses(Api.CHAT, CHAT | {holder: {name: 1}}, f"{holder}.{name}")
    check(Api.CHAT, CHAT | {holder: {"other": 1}})
    check(Api.CHAT, CHAT | {holder: "text"})
