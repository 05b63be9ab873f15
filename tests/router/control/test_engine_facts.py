"""What engines say of themselves, in every shape they say it, and what they cannot make the router believe."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.config.workers import WorkerConfig
from router.control.facts import (
    ContradictionError,
    EventPorts,
    RankEvents,
    WorkerFacts,
    check_facts,
    find_rank_events,
    read_facts,
    shift_port,
)
from router.control.health import HealthGate
from router.control.registry import Entry
from router.control.worker import Worker
from router.fleet.role import Bootstrap, Engine, Role

URL = "http://10.0.0.7:30000"
MODELS = {"data": [{"id": "base", "parent": None}, {"id": "lora", "parent": "base"}]}
SGLANG = {
    "served_model_name": "base",
    "tokenizer_path": "/models/base",
    "page_size": 1,
    "dp_size": 2,
    "max_total_num_tokens": 4_096,
    "version": "0.5",
    "kv_events": {
        "publisher": "zmq",
        "endpoint_host": "*",
        "endpoint_port_base": 5557,
        "topic": "kv",
        "block_size": 16,
        "dp_size": 2,
        "replay_endpoint_host": "10.0.0.9",
        "replay_endpoint_port_base": 6557,
    },
}


def test_sglang_tells_its_ranks_sockets_and_block_size():
    facts = read_facts(SGLANG, MODELS, None, url=URL)
    assert facts.models == ("base", "lora")
    assert facts.adapters == {"lora": "base"}
    assert (facts.dp_size, facts.block_tokens, facts.capacity_tokens) == (2, 16, 4_096)
    assert find_rank_events(facts, 1) == RankEvents("tcp://10.0.0.7:5558", "tcp://10.0.0.9:6558", "kv")


@pytest.mark.parametrize("host", ["*", "0.0.0.0", "::", "", None])
def test_a_wildcard_host_is_the_workers_own(host):
    facts = read_facts({"kv_events": {"endpoint_host": host, "endpoint_port_base": 1}}, MODELS, None, url=URL)
    assert facts.events == EventPorts("10.0.0.7", 1)


@pytest.mark.parametrize("topic", [None, 5, ["kv"], "t" * 5_000_000])
def test_a_topic_that_no_socket_should_be_given_means_everything(topic):
    facts = read_facts({"kv_events": {"endpoint_port_base": 1, "topic": topic}}, MODELS, None, url=URL)
    assert facts.events == EventPorts("10.0.0.7", 1)
    facts = read_facts(None, MODELS, {"0": {"endpoint": "tcp://*:5557", "topic": topic}}, url=URL)
    assert find_rank_events(facts, 0) == RankEvents("tcp://10.0.0.7:5557", None, "")


def test_vllm_lists_its_ranks_by_number():
    entry = {"publisher": "zmq", "replay_endpoint": "tcp://*:6557", "topic": "kv@h@m"}
    sources = {"1": entry | {"endpoint": "tcp://10.0.0.9:5558"}, "0": entry | {"endpoint": "tcp://*:5557"}}
    facts = read_facts(None, MODELS, sources, url=URL)
    assert facts.dp_size == 2
    # A wildcard is bound by the engine, any other address is one that it connects to.
    assert find_rank_events(facts, 0) == RankEvents("tcp://10.0.0.7:5557", "tcp://10.0.0.7:6557", "kv@h@m")
    assert find_rank_events(facts, 1) == RankEvents("tcp://10.0.0.9:5558", "tcp://10.0.0.7:6557", "kv@h@m", binds=True)
    assert find_rank_events(facts, 2) is None


def test_vllm_ranks_without_an_address_have_no_events():
    for sources in ({}, [], {"0": {"endpoint": None}}, {"1": {"endpoint": "tcp://*:1"}}):
        facts = read_facts(None, MODELS, sources, url=URL)
        assert facts.events is None
        assert "kv_event_sources" in facts.events_absent


@pytest.mark.parametrize(
    ("info", "words"),
    [
        ({"kv_events": None}, "publishes no cache events"),
        ({"kv_events": {"endpoint_port_base": "x"}}, "endpoint_port_base"),
    ],
)
def test_why_there_are_no_events_is_said_in_words(info, words):
    facts = read_facts(info, MODELS, None, url=URL)
    assert facts.events is None
    assert words in facts.events_absent


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [("EAGLE", True), ("eagle3", True), ("FROZEN_KV_MTP", True), ("NGRAM", False), (None, False), (7, False)],
)
def test_A19_keys_of_token_pairs_are_known_by_the_drafts_an_engine_runs(algorithm, expected):
    facts = read_facts(SGLANG | {"speculative_algorithm": algorithm}, MODELS, None, url=URL)
    assert facts.is_bigram is expected
    assert facts.events is not None


@pytest.mark.parametrize(
    ("key", "told", "configured", "words"),
    [
        ("dp_size", 2, 4, "dp_size is 4 in the configuration and 2 by its own account"),
        ("role", Role.DECODE, "prefill", "role is prefill in the configuration and decode by its own account"),
        ("engine", Engine.VLLM, "sglang", "engine is sglang in the configuration and vllm by its own account"),
        ("bootstrap_port", 8_998, 9_000, "bootstrap_port is 9000 in the configuration and 8998 by its own account"),
    ],
)
def test_a_contradiction_is_refused_with_both_values(key, told, configured, words):
    facts = WorkerFacts(models=("m",), **({"dp_size": 2} | {key: told}))
    check_facts(facts, WorkerConfig(url=URL))
    check_facts(facts, WorkerConfig(url=URL, **{key: told}))
    with pytest.raises(ContradictionError, match=words):
        check_facts(facts, WorkerConfig(url=URL, **{key: configured}))
    worker = Worker(
        Entry(WorkerConfig(url=URL, id="w", **{key: configured})), HealthGate(unhealthy_after=1, healthy_after=1)
    )
    worker.accept(facts)
    assert words in worker.refused
    assert not worker.is_usable


@pytest.mark.parametrize(
    ("info", "owner", "role", "engine"),
    [
        ({"disaggregation_mode": "prefill"}, "sglang", Role.PREFILL, Engine.SGLANG),
        ({"disaggregation_mode": "decode"}, None, Role.DECODE, Engine.SGLANG),
        ({"disaggregation_mode": "null"}, None, Role.AGGREGATED, Engine.SGLANG),
        ({"disaggregation_mode": None}, None, Role.AGGREGATED, Engine.SGLANG),
        ({"disaggregation_mode": "both"}, "other", None, Engine.SGLANG),
        ({"disaggregation_mode": ["prefill"]}, None, None, Engine.SGLANG),
        (None, "vllm", None, Engine.VLLM),
        ({"vllm_config": {}}, None, None, Engine.VLLM),
        (None, None, None, None),
        (None, 7, None, None),
    ],
)
def test_role_and_engine_are_read_where_an_engine_says_them(info, owner, role, engine):
    models = {"data": [{"id": "base", "owned_by": owner}]}
    facts = read_facts(info, models, None, url=URL)
    assert (facts.role, facts.engine) == (role, engine)


def worker_of(facts, **config):
    worker = Worker(Entry(WorkerConfig(url=URL, id="w", **config)), HealthGate(unhealthy_after=1, healthy_after=1))
    worker.gate.record(ok=True)
    worker.accept(facts)
    return worker


def test_a_worker_whose_role_needs_a_known_engine_is_refused_without_one():
    assert "engine: sglang or engine: vllm" in worker_of(WorkerFacts(models=("m",)), role="prefill").refused
    assert worker_of(WorkerFacts(models=("m",)), role="prefill", engine="vllm").refused is None
    assert worker_of(WorkerFacts(models=("m",))).refused is None


def test_only_an_sglang_prefill_worker_has_a_bootstrap_address():
    facts = WorkerFacts(models=("m",), dp_size=2, role=Role.PREFILL, engine=Engine.SGLANG, bootstrap_port=8_998)
    (rank, _) = worker_of(facts).to_rank_facts(None)
    assert (rank.role, rank.dp_size, rank.bootstrap) == (Role.PREFILL, 2, Bootstrap("10.0.0.7", 8_998))
    (rank, _) = worker_of(facts, bootstrap_host="10.1.0.7").to_rank_facts(None)
    assert rank.bootstrap == Bootstrap("10.1.0.7", 8_998)
    told = WorkerFacts(models=("m",), engine=Engine.VLLM)
    assert [rank.bootstrap for rank in worker_of(told, role="prefill").to_rank_facts(None)] == [None]
    assert [rank.role for rank in worker_of(WorkerFacts(models=("m",))).to_rank_facts(None)] == [Role.AGGREGATED]


@pytest.mark.parametrize("told", [0, -1, 1 << 31, "2", 2.0, True, [1]], ids=repr)
@pytest.mark.parametrize("at", ["info", "kv_events"])
def test_a_dp_size_that_is_no_count_is_refused_and_never_read_as_one_rank(told, at):
    info = SGLANG | ({"dp_size": told} if at == "info" else {"kv_events": SGLANG["kv_events"] | {"dp_size": told}})
    facts = read_facts(info, MODELS, None, url=URL)
    assert "dp_size" in facts.problem
    worker = Worker(Entry(WorkerConfig(id="w", url=URL)), HealthGate(unhealthy_after=1, healthy_after=1))
    worker.accept(facts)
    assert worker.refused == f"worker w: {facts.problem}"
    worker.accept(read_facts(SGLANG, MODELS, None, url=URL))
    assert worker.refused is None


def test_a_start_mark_differs_after_a_restart():
    first = read_facts({"start_time_s": 1.0}, MODELS, None, url=URL)
    second = read_facts({"start_time_s": 2.0}, MODELS, None, url=URL)
    assert first.start_mark != second.start_mark


def test_addresses_of_later_ranks_are_ports_above():
    assert shift_port("tcp://h:5557", 3) == "tcp://h:5560"
    assert shift_port("inproc://x", 0) == "inproc://x"
    assert shift_port("inproc://x", 2) == "inproc://x_dp2"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["data", "id", "parent", "kv_events", "dp_size", "endpoint", "0", "1", *SGLANG["kv_events"]]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(info=JSON, models=JSON, sources=JSON)
def test_no_answer_of_an_engine_raises(info, models, sources):
    facts = read_facts(info, models, sources, url=URL)
    assert 1 <= facts.dp_size <= 1_024
    for rank in range(3):
        find_rank_events(facts, rank)


def test_a_replay_buffer_that_keeps_nothing_is_none():
    block = SGLANG["kv_events"] | {"replay_endpoint_port_base": 5_600}
    assert read_facts({"kv_events": block}, MODELS, None, url=URL).events.replay_port_base == 5_600
    block |= {"replay_buffer_steps": 0}
    assert read_facts({"kv_events": block}, MODELS, None, url=URL).events.replay_port_base is None
