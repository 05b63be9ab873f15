"""What a second policy adds to a decision: `python -m benchmarks.shadow [--json] [--quick]`.

Turns of agent sessions as in `benchmarks.decision`, in CPU time of `Placer.handle`, with and without a policy that
scores the same requests; the two take turns, each before a fleet of its own. The costs of `cache_affinity` are
compiled, any other policy looks at every rank in Python. Nothing keeps the second policy to its share of the time here.
"""

import sys
from statistics import median

from benchmarks.decision import Traffic
from benchmarks.rows import Row, make_row
from benchmarks.run_facts import describe_run, finish, make_parser, progress
from benchmarks.timing import describe_times
from router.config.policy import PolicyConfig, PolicyName, ShadowConfig
from router.policy.catalogue import build_policies

SHADOWS = (PolicyName.CACHE_AFFINITY, PolicyName.OVERLAP_LINEAR, PolicyName.ROUND_ROBIN)


def measure_us(ranks: int, turns: int, shadow: PolicyName | None) -> float:
    """Median of the CPU microseconds that a turn's decision takes."""
    traffic = Traffic(ranks)
    traffic.settle()
    config = PolicyConfig(shadow=None if shadow is None else ShadowConfig(name=shadow))
    traffic.placer.change_policy(*build_policies(config))
    traffic.run(turns // 4, 0.0)
    traffic.turn_s.clear()
    traffic.run(turns, 0.0)
    return 1e3 * describe_times(traffic.turn_s)["p50_ms"]


def main() -> int:
    """Measure, print, keep."""
    options = make_parser(__doc__, repeats=5).parse_args()
    rows: list[Row] = []
    for ranks in (8, 64) if options.quick else (8, 64, 512):
        taken: dict[PolicyName | None, list[float]] = {}
        for _ in range(options.repeats):
            progress(f"{ranks} ranks")
            for shadow in (None, *SHADOWS):
                taken.setdefault(shadow, []).append(measure_us(ranks, 50 if options.quick else 400, shadow))
        alone_us = median(taken[None])
        rows += [
            make_row(
                f"decision over {ranks} ranks beside {shadow.value}", taken[shadow], "us", reference="without it",
                reference_value=alone_us,
            )
            for shadow in SHADOWS
        ]  # fmt: skip
    return finish("shadow", options, describe_run(options), rows, {})


if __name__ == "__main__":
    sys.exit(main())
