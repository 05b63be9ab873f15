"""A rank in runs of like steps does what it does step by step, and keeps the model's time."""

from array import array
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_shim.engine.admission.request import EngineRequest, SamplingParams
from engine_shim.engine.spec import EngineSpec
from simulator.fleet.dynamo_times import DynamoTimes
from simulator.fleet.physical_times import Hardware, Model, PhysicalTimes
from simulator.fleet.rank import SimRank
from simulator.fleet.times import StepTimes
from wire.dialects import decode_batch
from wire.ids import Target

PAGE = 8


def make_rank(*, pages=64, chunk=64, times=None, **fields):
    spec = EngineSpec(
        page_tokens=PAGE, id_tokens=PAGE, pool_pages=pages, prefill_chunk_tokens=chunk, decode_shares_chunk=True,
        max_model_len=1 << 20, **fields,
    )  # fmt: skip
    times = times or DynamoTimes(capacity_tokens=spec.capacity_tokens, speedup_ratio=1.0)
    return SimRank(Target("w", 0), spec, times)


def request(name, ids, *, out=5, prompt_tokens=None):
    return EngineRequest(
        request_id=name, prompt_ids=array("I", ids), prompt_tokens=prompt_tokens,
        sampling=SamplingParams(max_new_tokens=out, seed=0),
    )  # fmt: skip


def serve(rank, arrivals, *, single_steps=False):
    """Serve requests at their times; what came out, when, and every event."""
    if single_steps:
        rank._admission.count_like_steps = lambda _: 1
    arrivals, told, events = sorted(arrivals, key=lambda each: each[0]), [], []

    def hear(frames):
        events.extend(decode_batch(frames[2]).events if frames else ())

    while arrivals or rank.ends_s is not None:
        now_s = min(arrivals[0][0] if arrivals else inf, inf if rank.ends_s is None else rank.ends_s)
        if rank.ends_s == now_s:
            told += [
                (output.request_id, output.output_tokens, output.cached_tokens, output.finish_reason, round(now_s, 9))
                for output in rank.finish()
            ]
        while arrivals and arrivals[0][0] == now_s:
            assert rank.submit(arrivals.pop(0)[1], now_s) is None
        if rank.ends_s is None:
            rank.begin(now_s)
            hear(rank.publish(now_s))
    rank.check_invariants()
    return told, events


def ends(told):
    return [each for each in told if each[3] is not None]


def firsts(told):
    seen = {}
    for name, *rest in told:
        seen.setdefault(name, rest[-1])
    return seen


def test_a_prompt_is_prefilled_in_chunks_and_decoded_in_one_run_to_the_end_of_its_page():
    rank = make_rank(times=PhysicalTimes())
    told, _ = serve(rank, [(0.0, request("a", range(16), out=20))])
    assert [count for _, count, *_ in told] == [1, 9, 17, 20]


def test_what_was_prefilled_is_reused_but_for_the_last_block():
    told, _ = serve(make_rank(), [(0.0, request("a", range(4), out=1)), (9.0, request("b", range(4), out=1))])
    assert [cached for _, _, cached, *_ in told] == [0, 3 * PAGE]


def test_generated_blocks_take_room_and_are_nobody_elses():
    rank = make_rank(pages=8)
    told, _ = serve(rank, [(0.0, request("a", [1], out=3 * PAGE)), (9.0, request("b", [1, 2, 3, 4], out=1))])
    assert ends(told)[1][2] == PAGE
    assert rank.counters.generated_tokens == 3 * PAGE + 1
    assert rank.evicted_pages == 0


def test_a_begun_block_of_a_prompt_is_never_found_again():
    partial = request("a", [1, 2], prompt_tokens=2 * PAGE + 3, out=PAGE)
    told, _ = serve(make_rank(), [(0.0, partial), (9.0, request("b", [1, 2], prompt_tokens=2 * PAGE + 3, out=1))])
    assert ends(told)[1][2] == 2 * PAGE


def test_a_request_that_arrives_waits_for_the_step_under_way_and_no_longer():
    def arrive(at_s):
        return firsts(serve(make_rank(), [(0.0, request("a", [1], out=9)), (at_s, request("b", [2], out=1))])[0])["b"]

    alone = serve(make_rank(), [(0.0, request("a", [1], out=9))], single_steps=True)[0]
    boundaries = [at_s for *_, at_s in alone]
    inside, at_edge = arrive((boundaries[2] + boundaries[3]) / 2), arrive(boundaries[3])
    assert inside == at_edge > boundaries[3]


@given(
    arrivals=st.lists(
        st.tuples(st.integers(0, 40), st.lists(st.integers(0, 2), min_size=1, max_size=5), st.integers(1, 30)),
        min_size=1,
        max_size=7,
    ),
    pages=st.integers(9, 24),
)
@settings(max_examples=60)
def test_runs_of_like_steps_end_like_single_steps(arrivals, pages):
    planned = [
        (at / 100, request(str(place), [10 * depth + name for depth, name in enumerate(ids)], out=out))
        for place, (at, ids, out) in enumerate(arrivals)
    ]
    long, events = serve(make_rank(pages=pages), list(planned))
    short, same_events = serve(make_rank(pages=pages), list(planned), single_steps=True)
    assert ends(long) == ends(short)
    assert firsts(long) == firsts(short)
    assert events == same_events


def test_a_sum_of_steps_is_their_sum():
    times = StepTimes(3.0, 0.5, 0.25)
    steps = [3.0 + 0.5 * place + 0.25 * place * place for place in range(10)]
    assert [times.sum_s(count) for count in range(11)] == [sum(steps[:count]) for count in range(11)]
    assert [times.count_begun(elapsed_s, 3) for elapsed_s in (0.0, 3.0, 3.1, 6.75, 6.8, 99.0)] == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(("tokens", "expected_ms"), [(8_192, 169.1), (16_384, 338.3)])
def test_the_dynamo_model_takes_the_measured_time_for_a_prefill(tokens, expected_ms):
    spec = EngineSpec(page_tokens=64, id_tokens=64, pool_pages=6_172, prefill_chunk_tokens=8_192, max_model_len=1 << 20)
    rank = SimRank(Target("w", 0), spec, DynamoTimes(capacity_tokens=spec.capacity_tokens, speedup_ratio=1.0))
    told, _ = serve(rank, [(0.0, request("a", range(tokens // 64), out=1))])
    assert told[0][-1] * 1e3 == pytest.approx(expected_ms, abs=0.1)


def test_the_physical_model_follows_arithmetic_and_bytes():
    times = PhysicalTimes(Model(), Hardware(), gpus=1)
    assert Model().kv_token_bytes == 192 * 1024
    one, two = times.prefill_s(1_000, 1_000), times.prefill_s(1_000, 101_000)
    assert one == pytest.approx(1_000 * 64e9 / (0.7 * 793e12), rel=0.2)
    assert two - one == pytest.approx(1_000 * 100_000 * 4 * 64 * 128 * 48 / 430e12, rel=1e-6)


class Row:
    """A planned row as far as an engine model looks at one."""

    def __init__(self, *, total, computed=None, prompt=16, output=8):
        self.sequence = self
        self.samples, self.end_token = True, total
        self.prompt_tokens, self.total_tokens, self.output_tokens = prompt, total, output
        self.computed_tokens = total - 1 if computed is None else computed


def test_occupancy_counts_up_to_a_full_cache_and_the_formula_holds_until_it_is_reached():
    times = DynamoTimes(capacity_tokens=1_000, speedup_ratio=1.0)
    full_s = 1e-3 * (5.74 + 54.01 - 25.74)
    assert times.measure([Row(total=600), Row(total=500)]) == StepTimes(full_s)
    nearly = times.measure([Row(total=600), Row(total=395)])
    assert nearly.steps == 3
    for place in range(3):
        later = times.measure([Row(total=600 + place), Row(total=395 + place)])
        assert nearly.sum_s(place + 1) - nearly.sum_s(place) == pytest.approx(later.first_s)


def test_a_second_prefill_of_a_request_has_its_decode_part():
    times = DynamoTimes(capacity_tokens=1_000, speedup_ratio=1.0)
    first, second = (times.measure([Row(total=24, computed=0, output=output)]).first_s for output in (0, 8))
    share = 24 / 1_000
    assert second - first == pytest.approx(1e-3 * (5.74 + 54.01 * share - 25.74 * share * share))


def test_several_prefills_in_one_step_count_by_their_mean_lengths_in_whole_tokens():
    times = DynamoTimes(capacity_tokens=10_000, speedup_ratio=1.0)
    rows = [Row(total=1_000, computed=101, prompt=1_000, output=0), Row(total=500, computed=0, prompt=500, output=0)]
    new_tokens = 2 * (750 - 50)
    expected_ms = 4.209989e-7 * new_tokens**2 + 1.518344e-2 * new_tokens + 16.50142
    assert times.measure(rows).first_s * 1e3 == pytest.approx(expected_ms, rel=1e-12)
