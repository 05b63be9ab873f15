"""What each engine of a pair is told; every other byte is the client's."""

import json

import pytest

from router.fleet.rank import RankFacts
from router.fleet.role import Bootstrap, Engine
from router.proxy.legs import bodies
from router.proxy.legs.addressing import address_body, name_headers, reads_name
from router.proxy.legs.sending import read_prefill_usage
from wire.ids import RequestId, Target, WorkerId

BODY = b'{ "model":"m", "messages":[{"role":"user","content":"h\\u00e9"}], "seed":1e2, "x_vendor":1.0 }'


def leg(**changes):
    given = {"bootstrap": Bootstrap("10.0.0.5", 8_998), "rooms": (12,), "rid": "r1", "dp_rank": 3, **changes}
    return bodies.SglangLeg(**given)


def test_an_sglang_leg_keeps_the_clients_bytes_and_adds_the_pairs():
    written = bodies.write_sglang_leg(BODY, leg(prefill_dp_rank=1))
    assert BODY.removeprefix(b"{") in written
    assert json.loads(written) | json.loads(BODY) == json.loads(BODY) | {
        "bootstrap_host": "10.0.0.5", "bootstrap_port": 8_998, "bootstrap_room": 12, "rid": "r1", "routed_dp_rank": 3,
        "disagg_prefill_dp_rank": 1,
    }  # fmt: skip


def test_an_unknown_port_is_null_and_what_is_not_known_is_left_out():
    told = json.loads(bodies.write_sglang_leg(b"{}", leg(bootstrap=Bootstrap("h"), rid=None, dp_rank=None)))
    assert told == {"bootstrap_host": "h", "bootstrap_port": None, "bootstrap_room": 12}


def test_a_batch_has_lists_and_no_name_of_its_own():
    told = json.loads(bodies.write_sglang_leg(BODY, leg(rooms=(5, 8))))
    assert told["bootstrap_room"] == [5, 8]
    assert told["bootstrap_host"] == ["10.0.0.5"] * 2
    assert "rid" not in told


def test_the_routers_own_values_win_over_a_trusted_clients():
    told = json.loads(bodies.write_sglang_leg(b'{"bootstrap_room":1,"rid":"mine"}', leg()))
    assert (told["bootstrap_room"], told["rid"]) == (12, "r1")


def test_C16_the_prefill_copy_asks_for_one_token_whatever_the_client_limited():
    for body in (b'{"model":"m"}', b'{"max_tokens":9}', b'{"max_completion_tokens":9,"min_tokens":4,"n":2}'):
        told = json.loads(bodies.write_vllm_prefill(body))
        assert told["max_tokens"] == 1
        assert told.get("max_completion_tokens", 1) == 1
        assert not {"min_tokens", "n"} & told.keys()
        assert told["kv_transfer_params"]["do_remote_decode"] is True
    assert "max_tokens" not in json.loads(bodies.write_vllm_prefill(b'{"max_output_tokens":9}'))


def test_what_a_prefill_engine_says_goes_on_as_it_stands():
    params = b'{"remote_block_ids":[[1, 2]],  "remote_host":"h\\u00e9", "big":18446744073709551616}'
    answer = b'{"id":"x","kv_transfer_params":' + params + b',"usage":{}}'
    assert bodies.read_transfer_params(answer) == params
    assert b'"kv_transfer_params":' + params in bodies.write_vllm_decode(BODY, params)


@pytest.mark.parametrize(
    "answer", [b"", b"[]", b"{", b'{"id":1}', b'{"kv_transfer_params":null}', b'{"kv_transfer_params":7}', b"\xff"]
)
def test_an_answer_that_says_nothing_of_its_cache_is_an_error(answer):
    with pytest.raises(bodies.NoTransferError, match="kv-transfer-config"):
        bodies.read_transfer_params(answer)


def facts(engine, dp_size):
    return RankFacts(
        target=Target(WorkerId("w"), dp_size - 1), url="http://w", models=("m",), engine=engine, dp_size=dp_size
    )


def test_a_rank_stands_in_the_body_only_where_no_header_is_read():
    for path in ("/generate", "/v1/responses", "/v1/messages", "/v1/embeddings"):
        assert json.loads(address_body(BODY, facts(Engine.SGLANG, 4), path))["routed_dp_rank"] == 3
        assert address_body(BODY, facts(Engine.SGLANG, 1), path) is BODY
        assert address_body(BODY, facts(Engine.VLLM, 4), path) is BODY
        assert address_body(BODY, None, path) is BODY
    assert address_body(BODY, facts(Engine.SGLANG, 4), "/v1/chat/completions") is BODY


def test_a_request_has_a_name_where_it_can_be_aborted_by_one():
    name = RequestId("r1")
    assert name_headers(name) == [(b"x-override-rid", b"r1")]
    assert reads_name(facts(Engine.SGLANG, 1), "/generate")
    assert not reads_name(facts(Engine.SGLANG, 1), "/v1/completions")
    assert not reads_name(facts(Engine.VLLM, 1), "/generate")
    assert not reads_name(None, "/generate")


def test_counts_of_a_prefill_leg_are_read_whole_or_streamed():
    usage = {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}
    assert read_prefill_usage(json.dumps({"usage": usage}).encode()).cached_tokens == 4
    assert read_prefill_usage(b'{"meta_info":{"prompt_tokens":9,"cached_tokens":5}}').cached_tokens == 5
    stream = b'data: {"choices":[],"usage":' + json.dumps(usage).encode() + b"}\n\ndata: [DONE]\n\n"
    assert read_prefill_usage(stream).cached_tokens == 4
    for nothing in (b"", b"{}", b"{", b'{"usage":7}'):
        assert read_prefill_usage(nothing).cached_tokens is None
