"""Load as engines tell it besides `/v1/loads`: SGLang's load socket, vLLM's page and count."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.load import LoadReport, decode_load_stat, decode_sglang_loads, decode_vllm_count, decode_vllm_metrics
from wire.malformed import Malformed

#: A `LoadStat` of SGLang, as its own encoder writes it.
RECORDED = bytes.fromhex("96a84c6f6164537461740703cd0400cd200002")
PAGE = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 0.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="1000"} 1.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 12.0
python_gc_objects_collected_total{generation="0"} 1.0
"""


def test_a_recorded_message_of_the_load_socket_is_read():
    report = decode_load_stat([b"load", bytes(8), RECORDED], dp_rank=0)
    assert report == LoadReport(
        dp_rank=2, running_requests=7, waiting_requests=3, used_tokens=1_024, capacity_tokens=8_192
    )


def test_a_message_that_names_no_rank_is_of_the_socket_it_came_from():
    payload = msgspec.msgpack.encode(["LoadStat", 1, 0, 0, 0, None])
    assert decode_load_stat([b"load", bytes(8), payload], dp_rank=5).dp_rank == 5


@given(st.lists(st.binary(max_size=40), max_size=4))
def test_messages_of_any_shape_never_raise(frames):
    assert isinstance(decode_load_stat(frames, dp_rank=0), LoadReport | Malformed)


def test_vllms_page_gives_a_report_for_each_engine():
    first, second = decode_vllm_metrics(PAGE)
    assert first == LoadReport(
        dp_rank=0, running_requests=3, waiting_requests=2, used_tokens=4_000, capacity_tokens=16_000
    )
    assert (second.dp_rank, second.running_requests, second.capacity_tokens) == (1, 0, None)


@pytest.mark.parametrize(
    "page",
    [b"", b"\xff\xfe", b"vllm:num_requests_running NaN\n", b'vllm:num_requests_running{engine="x"} 1\n',
     b'vllm:num_requests_running{engine="99999"} 1\n', b"vllm:num_requests_running -1\n",
     b"vllm:num_requests_running{\n"],
)  # fmt: skip
def test_pages_without_a_figure_that_can_be_meant_are_malformed(page):
    assert isinstance(decode_vllm_metrics(page), Malformed)


@given(st.binary(max_size=200))
def test_pages_and_counts_of_any_bytes_never_raise(body):
    assert isinstance(decode_vllm_metrics(b"vllm:num_requests_running" + body), tuple | Malformed)
    assert isinstance(decode_vllm_count(body), tuple | Malformed)


def test_a_count_is_of_the_whole_server():
    assert decode_vllm_count(b'{"server_load": 4}') == (LoadReport(dp_rank=0, running_requests=4, waiting_requests=0),)


@pytest.mark.parametrize(
    ("made", "taken", "age_s"),
    [
        ("2026-11-30T08:00:10+00:00", 1_796_025_608.0, 2.0),
        (1_000.0, 990.0, 10.0),
        (1_000.0, 1_010.0, 0.0),
        (1_000.0, None, 0.0),
        ("garbage", 990.0, 0.0),
        (10_000.0, 1.0, 0.0),
    ],
)
def test_a_reports_age_is_told_by_the_engines_own_clock(made, taken, age_s):
    entry = {"dp_rank": 0, "num_running_reqs": 1} | ({} if taken is None else {"timestamp": taken})
    (report,) = decode_sglang_loads(msgspec.json.encode({"timestamp": made, "loads": [entry]}))
    assert report.age_s == pytest.approx(age_s)
