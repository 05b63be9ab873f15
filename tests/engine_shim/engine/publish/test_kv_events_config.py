"""`--kv-events-config`: SGLang's JSON is understood, what cannot work is refused with the key's name."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_shim.engine.publish import Endpoint, EventSockets, KvEventsConfigError, parse_kv_events_config


def test_a_full_configuration_is_read():
    text = json.dumps(
        {
            "publisher": "zmq",
            "endpoint": "tcp://*:5557",
            "replay_endpoint": "tcp://*:5657",
            "buffer_steps": 50,
            "hwm": 7,
            "max_queue_size": 1,
            "topic": "kv",
        }
    )
    assert parse_kv_events_config(text) == EventSockets(
        live=Endpoint("*", 5557), replay=Endpoint("*", 5657), topic="kv", buffer_steps=50, hwm_messages=7
    )


def test_the_default_publisher_publishes_nothing():
    assert parse_kv_events_config("{}") is None
    assert parse_kv_events_config('{"publisher": "null"}') is None
    assert parse_kv_events_config('{"publisher": "zmq", "enable_kv_cache_events": false}') is None


@pytest.mark.parametrize(
    ("endpoint", "connects"),
    [("tcp://*:1", False), ("tcp://0.0.0.0:1", False), ("tcp://[::]:1", False), ("tcp://10.0.0.1:1", True)],
)
def test_a_concrete_host_is_connected_to_and_a_wildcard_bound(endpoint, connects):
    sockets = parse_kv_events_config(json.dumps({"publisher": "zmq", "endpoint": endpoint}))
    assert sockets.live_connects is connects
    assert sockets.replay is None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "kv-events-config"),
        ("[]", "kv-events-config"),
        ('{"publisher": "kafka"}', "publisher"),
        ('{"publisher": "zmq", "buffer_step": 5}', "buffer_step"),
        ('{"publisher": "zmq", "buffer_steps": 0}', "buffer_steps"),
        ('{"publisher": "zmq", "buffer_steps": "many"}', "buffer_steps"),
        ('{"publisher": "zmq", "hwm": -1}', "hwm"),
        ('{"publisher": "zmq", "endpoint": "ipc:///tmp/x"}', "endpoint"),
        ('{"publisher": "zmq", "endpoint": "tcp://*"}', "endpoint"),
        ('{"publisher": "zmq", "endpoint": "tcp://*:70000"}', "endpoint"),
        ('{"publisher": "zmq", "replay_endpoint": "tcp://:5"}', "replay_endpoint"),
    ],
)
def test_what_cannot_work_is_refused_with_the_name_of_the_key(text, named):
    with pytest.raises(KvEventsConfigError, match=named):
        parse_kv_events_config(text)


@given(st.text())
def test_any_text_is_read_or_refused(text):
    try:
        parse_kv_events_config(text)
    except KvEventsConfigError:
        return


def test_addresses_count_ports_up_with_the_rank_and_bracket_ipv6():
    assert Endpoint("127.0.0.1", 5557).address(3) == "tcp://127.0.0.1:5560"
    assert Endpoint("::1", 5557).address() == "tcp://[::1]:5557"
