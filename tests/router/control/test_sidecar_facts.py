"""What a router takes from a worker's sidecar, and what it does not."""

import pytest

from router.config.fleet import build_fleet_config
from router.control.facts import find_rank_events, read_sidecar_facts
from router.control.health import HealthGate
from router.control.registry import Entry
from router.control.worker import Worker
from router.errors import ConfigError
from wire.ids import Target

URL = "http://10.0.0.7:30100"
MODELS = {"data": [{"id": "served"}, {"id": "lora", "parent": "served"}]}
INFO = {
    "dp_size": 2,
    "page_size": 16,
    "kv_events": {
        "endpoint_host": "0.0.0.0",
        "endpoint_port_base": 7000,
        "topic": "kv",
        "replay_endpoint_host": "0.0.0.0",
        "replay_endpoint_port_base": 7100,
    },
    "sidecar": {"model": "base", "snapshot_url": "http://elsewhere/snapshot/{dp_rank}"},
}


def test_events_and_snapshots_come_from_the_sidecar_and_from_nowhere_else():
    facts = read_sidecar_facts(INFO, MODELS, url=URL)
    found = find_rank_events(facts, 1)
    assert (found.endpoint, found.replay_endpoint) == ("tcp://10.0.0.7:7001", "tcp://10.0.0.7:7101")
    assert found.snapshot_url == "http://10.0.0.7:30100/snapshot/1"


def test_the_namespace_of_the_blocks_is_the_sidecars():
    assert read_sidecar_facts(INFO, MODELS, url=URL).models == ("base", "served", "lora")


@pytest.mark.parametrize(
    ("info", "words"),
    [
        (None, "its sidecar does not answer"),
        ({"kv_events": INFO["kv_events"]}, "that is no sidecar"),
        ({"sidecar": {"model": "base"}}, "publishes no cache events"),
        ("odd", "publishes no cache events"),
    ],
)
def test_without_a_sidecar_that_answers_there_are_no_events_and_the_reason_is_said(info, words):
    facts = read_sidecar_facts(info, MODELS, url=URL)
    assert facts.events is None
    assert words in facts.events_absent


def test_a_worker_may_name_its_sidecar():
    worker = {"url": "http://h:1", "sidecar": "http://h:2/"}
    assert build_fleet_config({"workers": [worker]}, "f").workers[0].sidecar == "http://h:2"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"sidecar": "h:2"}, "needs http"),
        ({"sidecar": "http://h:2", "events": "off"}, "events come from the sidecar"),
    ],
)
def test_a_sidecar_that_cannot_be_meant_is_refused(more, words):
    with pytest.raises(ConfigError, match=words):
        build_fleet_config({"workers": [{"url": "http://h:1"} | more]}, "f")


def test_declared_groups_and_the_name_in_redis_are_the_sidecars():
    declared = [{"kind": "full_attention"}, {"kind": "sliding_window", "window_tokens": 128}]
    info = INFO | {"sidecar": INFO["sidecar"] | {"layout": declared, "redis_name": "dovecote:events:h:1"}}
    facts = read_sidecar_facts(info, MODELS, url=URL)
    assert [group.kind for group in facts.layout.groups] == ["full_attention", "sliding_window"]
    (worker,) = build_fleet_config({"workers": [{"url": "http://10.0.0.7:30000", "sidecar": URL}]}, "test").workers
    known = Worker(Entry(worker), HealthGate(unhealthy_after=3, healthy_after=1))
    known.accept(facts)
    source = known.find_source(Target(known.id, 1))
    assert (source.redis_stream, source.layout) == ("dovecote:events:h:1:1", facts.layout)


@pytest.mark.parametrize(
    "declared",
    [
        "all", [], [{"kind": "unheard of"}], [{"kind": "sliding_window"}], [{"kind": "mamba", "checkpoint_tokens": -1}],
        [{"window_tokens": 3}], [{"kind": "mamba"}] * 99,
    ],
)  # fmt: skip
def test_declared_groups_that_make_no_sense_are_none(declared):
    info = INFO | {"sidecar": INFO["sidecar"] | {"layout": declared}}
    assert read_sidecar_facts(info, MODELS, url=URL).layout is None
