"""One run from its plan: a fleet, a router with a policy, a trace."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from router.placement.placer import PlacerSettings
from router.policy.base import Policy
from simulator.fleet.models import FleetPlan
from simulator.fleet.report import RunReport, summarize
from simulator.fleet.router_side import RouterSide
from simulator.fleet.simulation import Simulation
from simulator.graph.request import BlockTrace


class RunSettings(Struct, frozen=True, kw_only=True):
    """What does not belong to fleet, policy or trace."""

    #: Seed of the router: ties, random choices.
    seed: int = 1
    #: How often the router reads the load of all ranks; None never.
    report_interval_s: float | None = None
    #: Decisions kept; a run looks at none.
    max_decisions: int = 16


#: Objects made before the garbage collector looks at the new ones; a run makes next to no cycles.
COLLECT_AFTER_OBJECTS = 200_000


@contextmanager
def _rare_collections() -> Iterator[None]:
    """The garbage collector runs less often meanwhile; around a whole run, so that its values are gone at the end."""
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@_rare_collections()
def simulate(
    trace: BlockTrace, plan: FleetPlan, policy: Policy, *, name: str | None = None, settings: RunSettings | None = None
) -> RunReport:
    """Serve the whole trace and report.

    Raises:
        RefusedError: The fleet cannot serve it.
    """
    chosen = settings or RunSettings()
    ranks = plan.make_ranks(trace.block_tokens)
    router = RouterSide(
        plan.targets(),
        policy,
        block_tokens=trace.block_tokens,
        capacity_tokens=plan.cache_blocks * trace.block_tokens,
        seed=chosen.seed,
        settings=PlacerSettings(max_decisions=chosen.max_decisions),
    )
    simulation = Simulation(
        trace,
        ranks,
        router,
        report_interval_s=chosen.report_interval_s,
    )
    served = simulation.run()
    router.check_settled()
    for rank in ranks:
        rank.check_invariants()
    return summarize(name or policy.name, trace, served, ranks)
