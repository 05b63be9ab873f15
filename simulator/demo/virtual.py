"""The demo's fleet in virtual time: the same router, ranks, caches, times of the engine and requests, simulated."""

from collections.abc import Sequence
from random import Random

import msgspec

from engine_shim.engine.forward.timed import CostModel
from engine_shim.engine.spec import EngineSpec
from router.config.failures import ProbesConfig
from router.placement.instructions import Instruction
from simulator.demo.plan import DemoPlan, name_worker
from simulator.fleet.policies import parse_policy
from simulator.fleet.rank import SimRank
from simulator.fleet.report import RunReport, summarize
from simulator.fleet.router_side import RouterSide
from simulator.fleet.simulation import Simulation
from simulator.fleet.timed_times import TimedTimes
from simulator.graph.request import BlockRequest, BlockTrace, Wait
from wire.ids import Target, WorkerId


class LimitedRouter(RouterSide):
    """A router whose clients say how long an answer they want, as the demo's do."""

    def place(self, request: BlockRequest, now_s: float, max_output_tokens: int | None = None) -> Instruction:
        """Where the request goes, with its own limit."""
        limits = (request.output_tokens, max_output_tokens)
        return super().place(request, now_s, min(limit for limit in limits if limit is not None))


def simulate_plan(plan: DemoPlan, trace: BlockTrace, policy: str) -> RunReport:
    """Serve the trace with a fleet like the plan's.

    Raises:
        RefusedError: The fleet cannot serve it.
    """
    targets = [
        Target(WorkerId(name_worker(worker)), rank) for worker in range(plan.replicas) for rank in range(plan.ranks)
    ]
    spec, times = engine_spec(plan), TimedTimes(cost_model(plan))
    ranks = [SimRank(target, spec, times) for target in targets]
    router = LimitedRouter(
        targets,
        parse_policy(policy),
        block_tokens=plan.page_tokens,
        capacity_tokens=spec.capacity_tokens,
        seed=0,
    )
    served = Simulation(trace, ranks, router, report_interval_s=ProbesConfig().interval_s).run()
    router.check_settled()
    return summarize(policy, trace, served, ranks)


def engine_spec(plan: DemoPlan) -> EngineSpec:
    """A rank of the fleet, which knows its prompts by blocks."""
    return EngineSpec(
        page_tokens=plan.page_tokens,
        id_tokens=plan.page_tokens,
        pool_pages=plan.pool_pages,
        max_model_len=plan.max_model_len,
        prefill_chunk_tokens=plan.chunk_tokens,
    )


def cost_model(plan: DemoPlan) -> CostModel:
    """What the fleet's timed forward sleeps."""
    return CostModel(prefill_token_s=1 / plan.pace.prefill_tokens_per_s, decode_step_s=1e-3 * plan.pace.decode_step_ms)


def jitter(trace: BlockTrace, longest_s: float, rng: Random) -> BlockTrace:
    """The trace with every start and pause a little longer, by chance, as a network and a busy machine make it."""

    def lengthen(waits: Sequence[Wait]) -> tuple[Wait, ...]:
        return tuple(msgspec.structs.replace(wait, pause_s=wait.pause_s + longest_s * rng.random()) for wait in waits)

    requests = (
        msgspec.structs.replace(
            request,
            not_before_s=request.not_before_s + longest_s * rng.random(),
            waits=lengthen(request.waits),
        )
        for request in trace.requests
    )
    return BlockTrace(trace.block_tokens, tuple(requests))
