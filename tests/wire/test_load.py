"""Load reports in SGLang's form."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.load import MAX_BODY_BYTES, LoadReport, decode_sglang_loads, encode_sglang_loads
from wire.malformed import Malformed

reports = st.builds(
    LoadReport,
    dp_rank=st.integers(0, 15),
    running_requests=st.integers(0, 999),
    waiting_requests=st.integers(0, 999),
    waiting_uncached_tokens=st.integers(0, 10**9),
    used_tokens=st.integers(0, 10**9),
    capacity_tokens=st.none() | st.integers(0, 10**9),
    max_running_requests=st.none() | st.integers(1, 999),
    generated_tokens_per_s=st.none() | st.floats(0, 1e6),
)


@given(st.lists(reports, max_size=4))
def test_reports_read_back_as_written(written):
    body = msgspec.json.encode(encode_sglang_loads(written, timestamp="2026-11-29T00:00:00Z", version="0.1"))
    assert decode_sglang_loads(body) == tuple(written)


def test_foreign_keys_are_ignored_and_absent_ones_have_their_defaults():
    body = b'{"loads":[{"dp_rank":1,"num_running_reqs":2,"memory":{"weight_gb":3}}],"accelerator":"H200"}'
    assert decode_sglang_loads(body) == (LoadReport(dp_rank=1, running_requests=2, waiting_requests=0),)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"loads":3}', b'{"loads":[{"num_running_reqs":-1}]}', b"\xff", b"[" * 100_000]
)
def test_a_body_that_makes_no_sense_is_a_value(body):
    assert decode_sglang_loads(body) == Malformed("loads")


def test_a_body_over_the_limit_is_refused():
    assert decode_sglang_loads(b" " * (MAX_BODY_BYTES + 1)) == Malformed("payload size")
