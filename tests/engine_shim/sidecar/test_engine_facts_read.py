"""What a sidecar makes of an engine's answers, odd ones included."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_shim.sidecar.engine_facts import EngineFacts, read_engine, read_vllm_loads

URL = "http://10.0.0.7:8000"
SOURCES = {"0": {"endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:6557", "topic": "kv"}}
MODELS = {"data": [{"id": "lora", "parent": "base"}, {"id": "base"}]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)


def test_the_base_model_comes_before_its_adapters():
    assert read_engine(None, MODELS, SOURCES, None, url=URL).models == ("base", "lora")


def test_an_engine_that_connects_finds_the_sidecar_bound():
    sources = {"0": {"endpoint": "tcp://10.0.0.9:5557"}}
    facts = read_engine(None, MODELS, sources, None, url=URL)
    assert [(source.endpoint, source.binds) for source in facts.sources] == [("tcp://10.0.0.9:5557", True)]


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ((None, MODELS, None, None), "publishes no cache events"),
        ((None, {"data": []}, SOURCES, None), "names no model"),
        (({"dp_size": 2}, MODELS, SOURCES, None), "event sockets of 1"),
        (({"dp_size": 0}, MODELS, SOURCES, None), "its dp_size is '0'"),
    ],
)
def test_an_engine_that_cannot_be_mirrored_is_said_so_in_words(answers, words):
    assert words in read_engine(*answers, url=URL)


def test_an_engine_with_eagle_drafts_has_keys_of_token_pairs():
    assert read_engine({"speculative_algorithm": "EAGLE3"}, MODELS, SOURCES, None, url=URL).is_bigram
    assert not read_engine(None, MODELS, SOURCES, None, url=URL).is_bigram


@given(JSON, JSON, JSON, st.none() | st.text(max_size=60))
def test_whatever_an_engine_answers_nothing_raises(info, models, sources, metrics):
    assert isinstance(read_engine(info, models, sources, metrics, url=URL), str | EngineFacts)


@given(st.text(max_size=200) | st.from_regex(r"vllm:num_requests_running\{engine=\"[0-9a]\"\} [0-9naif.e+-]{1,6}"))
def test_loads_of_any_metrics_page_are_one_a_rank(page):
    facts = read_engine(None, MODELS, SOURCES, None, url=URL)
    (report,) = read_vllm_loads(page, facts)
    assert report.running_requests >= 0
