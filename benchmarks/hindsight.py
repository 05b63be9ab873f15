"""Could placement do better at ample cache? Plans made in hindsight, played: `python -m benchmarks.hindsight --json`.

Where the cache is ample, two bounds pull apart: sessions that never move wait least for their first token, and a load
that is evened out at each turn ends soonest. `plans/d8-150.json` holds a worker for each request of trace d8 at 150% of
the working set, found by annealing with the whole future known. Each is played in the simulator on the trace itself and
on traces that differ a little: session starts moved by up to a second, pauses longer or shorter by 5%. Beside them
stand our policy file as it is and with less weight on decoding, and the bounds: session_hash's mean time to first
token, and the published default's mean end-to-end time.
"""

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import msgspec

from benchmarks.anchors import (
    ROOT,
    Point,
    add_flags,
    describe_run,
    find_page,
    load_trace,
    make_trace,
    pick_points,
    read_points,
)
from router.config.policy import Coefficients
from router.policy.base import Choice, PlacementQuery, Policy, RankView, build_table
from simulator.fleet.models import FleetPlan
from simulator.fleet.policies import parse_policy
from simulator.fleet.run import RunSettings, simulate
from simulator.graph.request import BlockRequest, BlockTrace, Wait

RESULT = Path(__file__).parent / "results" / "hindsight-0.1.0.json"
PLANS = Path(__file__).parent / "plans" / "d8-150.json"
TRACE, CACHE_PERCENT = "d8", 150
#: How traces differ from the one that the plans were made for: starts of sessions, seconds; logarithm of pauses.
CHANGES = {"as planned": (0.0, 0.0), "starts within 1 s": (1.0, 0.0), "pauses within 5%": (0.0, 0.05)}
#: Sessions that never move; there is no chance in it.
STICKY = "session_hash"
#: Weights of term `decode` that our policy is run with beside its own.
DECODE_WEIGHTS = (0.35, 0.2)


class Played:
    """A policy that does what a plan says, whatever it finds."""

    name = "hindsight"

    def __init__(self, trace: BlockTrace, plan: str) -> None:
        if len(plan) != len(trace.requests):
            raise ValueError(f"a plan for {len(plan)} requests, a trace of {len(trace.requests)}")
        self.coefficients = Coefficients()
        self._workers = {
            request.request_id: f"worker-{worker}" for request, worker in zip(trace.requests, plan, strict=True)
        }

    def choose(self, query: PlacementQuery, ranks: Sequence[RankView], seed: int) -> Choice:  # noqa: ARG002
        """The planned worker."""
        planned = self._workers[query.request_id]
        target = next(rank.target for rank in ranks if rank.target.worker == planned)
        return Choice(target=target, costs=build_table(query, ranks, [0.0] * len(ranks)), reason="planned")


def change(trace: BlockTrace, starts_s: float, log_pauses: float, seed: int) -> BlockTrace:
    """The trace with its sessions' starts and its pauses moved a little."""
    rng = Random(seed)
    starts = {session: rng.uniform(-starts_s, starts_s) for session in {r.session: None for r in trace.requests}}

    def move(request: BlockRequest) -> BlockRequest:
        begins_s = request.not_before_s
        if not request.waits:
            begins_s = max(0.0, begins_s + starts[request.session])
        waits = tuple(
            Wait(wait.place, wait.trigger, wait.pause_s * math.exp(rng.gauss(0.0, log_pauses)))
            for wait in request.waits
        )
        return msgspec.structs.replace(request, not_before_s=begins_s, waits=waits)

    return BlockTrace(trace.block_tokens, tuple(map(move, trace.requests)))


def run_point(
    trace: BlockTrace, point: Point, plan: str, policies: dict[str, str], seeds: int
) -> Iterator[dict[str, Any]]:
    """Every policy, then the plan on each kind of trace."""
    for name, policy in policies.items():
        count = 1 if name == STICKY else seeds
        runs = [_run(trace, point, parse_policy(policy), seed) for seed in range(1, count + 1)]
        yield _row(point, name, "as planned", runs)
    for name, (starts_s, log_pauses) in CHANGES.items():
        count = 1 if not starts_s and not log_pauses else seeds
        traces = [change(trace, starts_s, log_pauses, seed) for seed in range(count)]
        yield _row(point, "hindsight", name, [_run(each, point, Played(each, plan), 1) for each in traces])


def _run(trace: BlockTrace, point: Point, policy: Policy, seed: int) -> tuple[float, float]:
    fleet = FleetPlan(workers=point.workers, cache_blocks=point.cache_blocks, speedup_ratio=point.speed)
    report = simulate(trace, fleet, policy, settings=RunSettings(seed=seed))
    return report.ttft.mean_ms, report.e2e.mean_ms


def _row(point: Point, policy: str, played_on: str, runs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    ttfts_ms, e2es_ms = zip(*runs, strict=True)
    row = {"speed": point.speed, "policy": policy, "trace": played_on, "runs": len(runs)}
    return row | {"ttft_ms": round(fmean(ttfts_ms), 2), "e2e_ms": round(fmean(e2es_ms), 1)}


def judge(rows: Sequence[dict[str, Any]], points: Sequence[Point]) -> list[dict[str, Any]]:
    """Each row with whether it keeps both bounds of its point."""
    defaults = {point.speed: point.e2e_ms for point in points}
    sticky = {row["speed"]: row["ttft_ms"] for row in rows if row["policy"] == STICKY}
    return [
        row
        | {"bounds": {"ttft_ms": sticky[row["speed"]], "e2e_ms": defaults[row["speed"]]}}
        | {"keeps_both": row["ttft_ms"] < sticky[row["speed"]] and row["e2e_ms"] <= defaults[row["speed"]]}
        for row in rows
    ]


def _write_policies(folder: Path) -> dict[str, str]:
    """Names and files of what runs beside the plans."""
    ours = msgspec.yaml.decode((ROOT / "examples" / "policy.yaml").read_bytes())
    policies = {STICKY: STICKY, "ours": str(ROOT / "examples" / "policy.yaml")}
    for weight in DECODE_WEIGHTS:
        path = folder / f"decode-{weight}.yaml"
        path.write_bytes(msgspec.yaml.encode({**ours, "weights": {**ours["weights"], "decode": weight}}))
        policies[f"ours, decode {weight}"] = str(path)
    return policies


def main() -> int:
    """Run, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_flags(parser, RESULT)
    options = parser.parse_args()
    options.traces, options.caches = [TRACE], [CACHE_PERCENT]
    points = pick_points(read_points(find_page(options.shared), ("default",)), options)
    plans = msgspec.json.decode(PLANS.read_bytes(), type=dict[str, str])
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        trace = load_trace(make_trace(TRACE, options.shared, Path(folder)))
        policies = _write_policies(Path(folder))
        for point in points:
            for row in run_point(trace, point, plans[f"{point.speed:g}"], policies, options.seeds):
                rows.append(row)
                print(*row.values(), flush=True)
    result = {"benchmark": "hindsight", "run": describe_run(options), "rows": judge(rows, points)}
    if options.json:
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
