"""The demo's outcome as one JSON object. Pure."""

from collections.abc import Sequence

import msgspec

from simulator.demo.check import CheckResult
from simulator.demo.plan import DemoPlan
from simulator.demo.report import Summary

#: Of the plan; its sessions are long and are told by their number.
PLAN_FIELDS = (
    "source", "forward", "replicas", "ranks", "seed", "requests", "page_tokens", "pool_pages", "max_model_len",
    "chunk_tokens", "pace",
)  # fmt: skip


def describe_as_json(plan: DemoPlan, summaries: Sequence[Summary], result: CheckResult | None) -> str:
    """What was run, each policy's figures, and the comparison with the simulation where there is one."""
    form: dict[str, object] = {
        "plan": {"sessions": len(plan.sessions)} | {name: getattr(plan, name) for name in PLAN_FIELDS},
        "policies": summaries,
    }
    if result is not None:
        form["simulation"] = {
            "agrees": result.agreement.holds,
            "measured": result.live,
            "simulated": result.simulated,
            "spreads": result.spreads,
            "noise_ratio": result.noise_ratio,
            "pairs": result.agreement.pairs,
        }
    return msgspec.json.format(msgspec.json.encode(form)).decode()
