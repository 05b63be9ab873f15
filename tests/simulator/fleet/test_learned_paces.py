"""The router's idea of an engine's speed, against engines whose speed is known, under random queues."""

from array import array
from random import Random

import pytest
from msgspec import structs

from engine_shim.engine.spec import EngineSpec
from router.config.policy import Coefficients
from router.placement.placer import PlacerSettings
from router.placement.stimuli import Outcome, RequestEnded
from router.policy.catalogue import build_policy
from router.policy.prefill import prefill_s
from router.policy.steps import attended_s
from simulator.fleet.rank import SimRank
from simulator.fleet.router_side import RouterSide
from simulator.fleet.simulation import Simulation
from simulator.fleet.times import StepTimes
from simulator.graph.request import BlockRequest, BlockTrace, Trigger, Wait
from wire.ids import RequestId, Target, WorkerId

BLOCK, PAGES = 16, 16_384
CAPACITY = BLOCK * PAGES
COSTS = Coefficients()
TARGET = Target(WorkerId("w"), 0)


class RatioTimes:
    """Takes what the coefficients say, times a ratio for prefill and one for steps, which change at a time."""

    def __init__(self, ratios, *, later=None, change_s=0.0):
        self._ratios, self._later, self._change_s = ratios, later, change_s
        self.simulation = None

    def measure(self, rows):
        is_later = self._later is not None and self.simulation.now_s >= self._change_s
        prefill_ratio, decode_ratio = self._later if is_later else self._ratios
        computed_s = step_s = 0.0
        decoding = [row.sequence.total_tokens for row in rows if row.sequence.is_decoding]
        for row in rows:
            if not row.sequence.is_decoding:
                computed_s += prefill_s(row.end_token - row.sequence.computed_tokens, row.end_token, COSTS)
        if computed_s:
            step_s = prefill_ratio * (COSTS.prefill_step_s + computed_s)
        growth_s = 0.0
        if decoding:
            base_s = COSTS.decode_step_s + COSTS.decode_s_per_request * len(decoding)
            step_s += decode_ratio * (base_s + attended_s(sum(decoding), CAPACITY, COSTS))
            growth_s = decode_ratio * attended_s(len(decoding), CAPACITY, COSTS)
        return StepTimes(step_s, growth_s)


class WholeAnswers(RouterSide):
    """Nothing of an answer is seen before its end."""

    def see_first_token(self, request, now_s):
        pass

    def see_progress(self, request, output_tokens, now_s):
        pass

    def see_end(self, request, cached_tokens, output_tokens, now_s):
        self.placer.handle(
            RequestEnded(
                now_s=now_s,
                request_id=RequestId(request.request_id),
                outcome=Outcome.DONE,
                cached_tokens=cached_tokens,
                output_tokens=output_tokens,
                whole_at_s=now_s,
            )
        )


def make_trace(*, count, gap_s, seed=1, prompt=(300, 6_000), output=(2, 200)):
    """Requests that share nothing, at random times, of random lengths."""
    rng, at_s, requests = Random(seed), 0.0, []
    for number in range(count):
        at_s += rng.expovariate(1 / gap_s)
        blocks = rng.randint(*prompt) // BLOCK
        ids = range(1_000 * number, 1_000 * number + blocks)
        requests.append(
            BlockRequest(
                request_id=str(number), session=None, blocks=array("I", ids), prompt_tokens=blocks * BLOCK,
                output_tokens=int(output[0] * (output[1] / output[0]) ** rng.random()), not_before_s=at_s,
            )
        )  # fmt: skip
    return BlockTrace(BLOCK, tuple(requests))


def make_closed_trace(*, count, clients, prompt=(300, 6_000), output=(2, 200)):
    """Clients that ask again at once: as many requests open as there are clients, from the first to the last."""
    loose = make_trace(count=count, gap_s=1e-3, prompt=prompt, output=output)
    requests = [
        structs.replace(
            request,
            not_before_s=request.not_before_s if place < clients else 0.0,
            waits=(Wait(place - clients, Trigger.COMPLETION, 0.0),) if place >= clients else (),
        )
        for place, request in enumerate(loose.requests)
    ]
    return BlockTrace(BLOCK, tuple(requests))


def learn(trace, ratios, *, side, **changes):
    """Serve a trace by an engine of some speed; what was learned of prefill and of steps, over what is true."""
    times = RatioTimes(ratios, **changes)
    spec = EngineSpec(
        page_tokens=BLOCK, id_tokens=BLOCK, pool_pages=PAGES, prefill_chunk_tokens=8_192, max_running_requests=256,
        max_model_len=1 << 20,
    )  # fmt: skip
    router = side(
        [TARGET], build_policy("cache_affinity"), block_tokens=BLOCK, capacity_tokens=CAPACITY, seed=1,
        settings=PlacerSettings(max_decisions=16),
    )  # fmt: skip
    times.simulation = Simulation(trace, [SimRank(TARGET, spec, times)], router)
    times.simulation.run()
    router.check_settled()
    prefill_ratio, decode_ratio = changes.get("later", ratios)
    return router.placer.prefill_ratio / prefill_ratio, router.placer.decode_ratio / decode_ratio


@pytest.mark.parametrize("side", [RouterSide, WholeAnswers])
@pytest.mark.parametrize("ratio", [0.05, 12.0])
def test_the_true_pace_is_found_under_random_queues(side, ratio):
    prefill, decode = learn(make_trace(count=250, gap_s=0.8 * ratio), (ratio, ratio), side=side)
    assert prefill == pytest.approx(1.0, rel=0.2)
    assert decode == pytest.approx(1.0, rel=0.2)


@pytest.mark.parametrize("side", [RouterSide, WholeAnswers])
@pytest.mark.parametrize("ratios", [(0.25, 1.0), (4.0, 1.0)])
def test_prefill_and_steps_are_told_apart_under_random_queues(side, ratios):
    # A request takes 0.1 s of prefill and 0.4 s of steps, as predicted.
    gap_s = 2 * (0.1 * ratios[0] + 0.4 * ratios[1])
    prefill, decode = learn(make_trace(count=300, gap_s=gap_s), ratios, side=side)
    assert prefill == pytest.approx(1.0, rel=0.5)
    assert decode == pytest.approx(1.0, rel=0.25)


@pytest.mark.parametrize("side", [RouterSide, WholeAnswers])
@pytest.mark.parametrize("ratio", [0.05, 12.0])
def test_of_requests_that_are_never_alone_the_order_of_the_pace_is_learned(side, ratio):
    prefill, decode = learn(make_closed_trace(count=300, clients=6), (ratio, ratio), side=side)
    assert 1 / 3 < prefill < 3.0
    assert 1 / 3 < decode < 3.0


@pytest.mark.parametrize("side", [RouterSide, WholeAnswers])
@pytest.mark.parametrize("later", [(0.25, 0.25), (4.0, 4.0)])
def test_an_engine_that_becomes_faster_or_slower_is_followed(side, later):
    trace = make_trace(count=450, gap_s=3.0)
    prefill, decode = learn(trace, (1.0, 1.0), side=side, later=later, change_s=300.0)
    assert prefill == pytest.approx(1.0, rel=0.3)
    assert decode == pytest.approx(1.0, rel=0.3)
