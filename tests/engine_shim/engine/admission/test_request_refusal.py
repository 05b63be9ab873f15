"""Which requests are refused, and what their sender is told."""

import math
import re

import pytest

from engine_shim.engine.admission.refuse import find_refusal
from engine_shim.engine.admission.request import EngineRequest, RefusalReason, SamplingParams
from engine_shim.engine.spec import EngineSpec, ModelSpec

SPEC = EngineSpec(page_tokens=4, pool_pages=4, max_model_len=100, vocabulary_tokens=50)


def refuse(prompt_ids=(1, 2), spec=SPEC, **sampling):
    params = SamplingParams(**{"max_new_tokens": 1, **sampling})
    return find_refusal(EngineRequest(request_id="r", prompt_ids=tuple(prompt_ids), sampling=params), spec)


def test_a_prompt_that_leaves_room_for_one_token_is_taken():
    assert refuse(range(15)) is None
    assert refuse([0, 49], temperature=2.0, top_p=0.1, max_new_tokens=10**9) is None


@pytest.mark.parametrize(
    ("prompt", "reason", "words"),
    [
        ((), RefusalReason.EMPTY_PROMPT, "at least 1"),
        (range(16), RefusalReason.LARGER_THAN_POOL, "16 tokens.*4 pages holds 16"),
        ([1] * 100, RefusalReason.PROMPT_TOO_LONG, "100 tokens; at most 99"),
        ((1, 50), RefusalReason.OUT_OF_VOCABULARY, "50 is not in 0..49"),
        ((1, -1, 50), RefusalReason.OUT_OF_VOCABULARY, "-1 is not in 0..49"),
    ],
)
def test_a_prompt_that_can_never_be_served_is_refused_in_words(prompt, reason, words):
    refusal = refuse(prompt)
    assert refusal.reason == reason
    assert re.search(words, refusal.message)


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens=0 must be at least 1"),
        ({"temperature": -0.1}, "temperature=-0.1 must be"),
        ({"temperature": math.nan}, "temperature=nan must be a finite number"),
        ({"temperature": math.inf}, "temperature=inf must be a finite number"),
        ({"top_p": 0.0}, "top_p=0.0 must be above 0"),
        ({"top_p": 1.01}, "top_p=1.01 must be above 0 and at most 1"),
        ({"top_p": math.nan}, "top_p=nan must be"),
    ],
)
def test_sampling_values_out_of_range_are_refused_by_name(sampling, words):
    refusal = refuse(**sampling)
    assert refusal.reason == RefusalReason.BAD_SAMPLING
    assert words in refusal.message


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("page_tokens=0", {"page_tokens": 0}),
        ("pool_pages=0", {"pool_pages": 0}),
        ("max_running_requests=0", {"max_running_requests": 0}),
        ("max_waiting_requests=-1", {"max_waiting_requests": -1}),
        ("prefill_chunk_tokens=0", {"prefill_chunk_tokens": 0}),
        ("vocabulary_tokens=0", {"vocabulary_tokens": 0}),
        ("max_model_len=1", {"max_model_len": 1}),
        ("eos_token_ids: 4096", {"eos_token_ids": (4096,)}),
        ("layers=0", {"model": ModelSpec(layers=0)}),
        ("query_heads=3 must be a multiple of kv_heads=2", {"model": ModelSpec(query_heads=3, kv_heads=2)}),
        ("head_dim=7", {"model": ModelSpec(head_dim=7)}),
    ],
)
def test_a_spec_that_makes_no_engine_names_its_field(name, fields):
    with pytest.raises(ValueError, match=name):
        EngineSpec(**fields).validate()


def test_a_sequence_is_limited_by_the_smaller_of_model_and_pool():
    assert SPEC.sequence_limit_tokens == SPEC.capacity_tokens == 16
    assert EngineSpec(max_model_len=100).sequence_limit_tokens == 100
