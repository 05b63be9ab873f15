"""The model of the timed forward takes, in virtual time, just what the timed forward sleeps."""

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_shim.engine.admission.request import EngineRequest, SamplingParams
from engine_shim.engine.engine import Engine
from engine_shim.engine.forward.timed import CostModel, TimedForward
from engine_shim.engine.spec import EngineSpec
from simulator.fleet.rank import SimRank
from simulator.fleet.timed_times import TimedTimes
from wire.ids import Target

PAGE = 4
COSTS = CostModel(
    prefill_token_s=0.5, prefill_pair_s=0.25, decode_step_s=16.0, decode_row_s=2.0, decode_context_token_s=1.0,
    time_scale=0.5,
)  # fmt: skip


def make_spec(id_tokens):
    return EngineSpec(
        page_tokens=PAGE, pool_pages=64, prefill_chunk_tokens=10, vocabulary_tokens=100, id_tokens=id_tokens
    )


def sampling(output_tokens):
    return SamplingParams(max_new_tokens=output_tokens, seed=0, temperature=0.0, ignore_eos=True)


def time_engine(prompts):
    """When each request ends on a real engine whose forward tells its sleeps instead of sleeping."""
    slept = []
    engine = Engine(make_spec(1), TimedForward(COSTS, spec=make_spec(1), sleep=slept.append), dp_rank=0)
    for place, (blocks, output_tokens) in enumerate(prompts):
        ids = [block * PAGE + offset for block in blocks for offset in range(PAGE)]
        request = EngineRequest(request_id=str(place), prompt_ids=array("I", ids), sampling=sampling(output_tokens))
        assert engine.submit(request) is None
    ends = {}
    while len(ends) < len(prompts):
        for output in engine.step(0.0).outputs:
            if output.finish_reason:
                ends[output.request_id] = (sum(slept), output.cached_tokens)
    return ends


def time_rank(prompts):
    """The same in virtual time."""
    rank = SimRank(Target("w", 0), make_spec(PAGE), TimedTimes(COSTS))
    for place, (blocks, output_tokens) in enumerate(prompts):
        ids = array("I", [hash(tuple(blocks[: end + 1])) % (1 << 31) for end in range(len(blocks))])
        request = EngineRequest(request_id=str(place), prompt_ids=ids, sampling=sampling(output_tokens))
        assert rank.submit(request, 0.0) is None
    ends = {}
    now_s = 0.0
    while len(ends) < len(prompts):
        rank.begin(now_s)
        now_s = rank.ends_s
        for output in rank.finish():
            if output.finish_reason:
                ends[output.request_id] = (now_s, output.cached_tokens)
    return ends


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=5), st.integers(1, 9)), min_size=1, max_size=4)
)
@settings(max_examples=60)
def test_requests_end_when_the_sleeps_of_a_real_engine_are_over(prompts):
    real, virtual = time_engine(prompts), time_rank(prompts)
    assert {name: cached for name, (_, cached) in real.items()} == {
        name: cached for name, (_, cached) in virtual.items()
    }
    for name, (end_s, _) in real.items():
        assert virtual[name][0] == pytest.approx(end_s)
