"""How well do we place, beside the best that was measured? `python -m benchmarks.placement --json`.

On the agent traces of `benchmarks.anchors`, at nine points of cache and load each, runs our default policy file and two
baselines in the simulator, and sets them beside what ai-dynamo-runtime 1.6.1 was measured to reach there: its default,
and the mode of its four that has the lowest mean time to first token. A policy with chance in it runs once a seed.
The exit code is 1 where our policy misses a bound: mean time to first token or of the whole answer above the
default's, time to first token not below a baseline's, a rank with more than 1.3 times its share of requests.
"""

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

from msgspec import Struct, to_builtins

from benchmarks.anchors import (
    ROOT,
    TRACES,
    Point,
    add_flags,
    average,
    describe_run,
    find_page,
    list_figures,
    load_trace,
    make_trace,
    pick_points,
    read_points,
    run_policy,
)
from simulator.fleet.report import RunReport

RESULT = Path(__file__).parent / "results" / "placement-0.1.0.json"
POLICY = "examples/policy.yaml"
OURS = "ours"
BASELINES = ("session_hash", "prefix_threshold")
DEFAULT = "default"
#: Modes of the peer that were measured at every point.
PEER_MODES = (DEFAULT, "scale4", "no_active", "round_robin")
#: A run of these does not depend on the seed.
UNSEEDED = frozenset({"session_hash", "round_robin"})
MAX_BUSIEST_SHARE = 1.3
#: A result is kept of so many or more.
SEEDS = 5
#: Aims: of the peer's best mode over all points; below the pooled LRU at these shares of the working set.
AIM_RATIO = 0.80
AIM_REUSE_LOSS = 0.02
AIM_REUSE_PERCENTS = frozenset({80, 150})
#: `| workers | cache | speed | live blocks | infinite | pooled MIN | pooled LRU |`
LRU_ROW = re.compile(
    r"^\| (?P<workers>8|16) \| (?P<cache>\d+)% \| (?P<speed>[\d.]+) \| \d+ \| [\d.]+ \| [\d.]+ \| (?P<lru>[\d.]+) \|"
)


class Cell(Struct, frozen=True):
    """What was published of one point."""

    default: Point
    #: Of the mode with the lowest mean time to first token.
    best: Point
    #: Reuse of one cache as large as all together; None where it was not measured.
    pooled_lru: float | None


def read_cells(page: Path, options: argparse.Namespace) -> list[Cell]:
    """The points, in the order of the page."""
    lru = {}
    for line in page.read_text(encoding="utf-8").splitlines():
        if row := LRU_ROW.match(line):
            lru[int(row["workers"]), int(row["cache"]), float(row["speed"])] = float(row["lru"])
    cells: dict[tuple[int, int, float], list[Point]] = {}
    for point in pick_points(read_points(page, PEER_MODES), options):
        cells.setdefault((point.workers, point.cache_percent, point.speed), []).append(point)
    return [
        Cell(
            next(point for point in points if point.mode == DEFAULT),
            min(points, key=lambda point: point.ttft_ms),
            lru.get(place),
        )
        for place, points in cells.items()
    ]


def summarize(reports: Sequence[RunReport], cell: Cell, cpu_s: float) -> dict[str, Any]:
    """One policy at one point: means over its seeds, their range, ratios to what was published."""
    means = average(reports)
    ratios = {
        f"{name}_to_{beside}": round(means[name] / getattr(point, name), 4)
        for beside, point in (("default", cell.default), ("best", cell.best))
        for name in ("ttft_ms", "ttft_p99_ms", "e2e_ms")
    }
    return {
        **{name: round(value, 4) for name, value in means.items()},
        "ranges": {name: [round(min(of), 4), round(max(of), 4)] for name, of in list_figures(reports).items()},
        "ratios": ratios,
        "reuse_to_pooled_lru": None if cell.pooled_lru is None else round(means["reuse"] - cell.pooled_lru, 4),
        "runs": len(reports),
        "requests_per_cpu_s": round(len(reports) * reports[0].requests / cpu_s),
    }


def judge(cell: Cell, policies: dict[str, dict[str, Any]]) -> dict[str, bool]:
    """Whether our policy keeps each bound; a baseline that did not run has none."""
    ours = policies[OURS]
    verdicts = {
        "ttft_at_most_default": ours["ttft_ms"] <= cell.default.ttft_ms,
        "e2e_at_most_default": ours["e2e_ms"] <= cell.default.e2e_ms,
        "busiest_at_most_1.3": ours["busiest_share"] <= MAX_BUSIEST_SHARE,
    }
    for name in BASELINES:
        if name in policies:
            verdicts[f"ttft_below_{name}"] = ours["ttft_ms"] < policies[name]["ttft_ms"]
    return verdicts


def judge_aims(cell: Cell, ours: dict[str, Any]) -> dict[str, bool]:
    """The same of what is aimed for and fails nothing."""
    aims = {"ttft_at_most_best": ours["ttft_ms"] <= cell.best.ttft_ms}
    if cell.default.cache_percent in AIM_REUSE_PERCENTS and ours["reuse_to_pooled_lru"] is not None:
        aims["reuse_near_pooled_lru"] = ours["reuse_to_pooled_lru"] >= -AIM_REUSE_LOSS
    return aims


def summarize_all(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means of our ratios to the peer's best mode, over the points of each trace and over all."""
    groups = {name: [row for row in rows if row["trace"] == name] for name in TRACES}
    means = {
        group: {
            f"{kind}_{name}_to_best": round(mean([row["policies"][OURS]["ratios"][f"{name}_to_best"] for row in of]), 4)
            for name in ("ttft_ms", "ttft_p99_ms", "e2e_ms")
            for kind, mean in _MEANS.items()
        }
        for group, of in {**groups, "all": list(rows)}.items()
        if of
    }
    return {
        "means": means,
        "bounds_missed": sum(not kept for row in rows for kept in row["verdicts"].values()),
        "aims_missed": sum(not kept for row in rows for kept in row["aims"].values()),
        "ratio_aims_met": all(
            means[group][f"{kind}_{name}_to_best"] <= AIM_RATIO
            for group in means
            for kind in _MEANS
            for name in ("ttft_ms", "ttft_p99_ms")
        ),
    }


_MEANS: dict[str, Callable[[Iterable[float]], float]] = {"geometric": geometric_mean, "arithmetic": fmean}


def run_cells(
    cells: Sequence[Cell], paths: dict[str, Path], options: argparse.Namespace
) -> Iterator[tuple[Cell, dict[str, dict[str, Any]]]]:
    """Each point as its runs are done, in the order of the page."""
    with ProcessPoolExecutor(options.jobs) as pool:
        pending = [(cell, _submit(pool, cell, paths[cell.default.trace], options)) for cell in cells]
        for cell, runs in pending:
            policies = {}
            for name, futures in runs.items():
                results = [future.result() for future in futures]
                reports, cpu_s = [report for report, _ in results], sum(cpu_s for _, cpu_s in results)
                policies[name] = summarize(reports, cell, cpu_s)
            yield cell, policies


_Run = Future[tuple[RunReport, float]]


def _submit(pool: ProcessPoolExecutor, cell: Cell, path: Path, options: argparse.Namespace) -> dict[str, list[_Run]]:
    runs = {}
    for name in options.policies:
        text = options.policy if name == OURS else name
        seeds = 1 if text in UNSEEDED else options.seeds
        runs[name] = [pool.submit(run_policy, path, cell.default, text, seed) for seed in range(1, seeds + 1)]
    return runs


def make_row(cell: Cell, policies: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One point with everything that is known of it."""
    place = cell.default
    has_ours = OURS in policies
    return {
        "trace": place.trace,
        "workers": place.workers,
        "cache_percent": place.cache_percent,
        "cache_blocks": place.cache_blocks,
        "speed": place.speed,
        "published": to_builtins(cell),
        "policies": policies,
        "verdicts": judge(cell, policies) if has_ours else {},
        "aims": judge_aims(cell, policies[OURS]) if has_ours else {},
    }


def print_row(cell: Cell, row: dict[str, Any]) -> None:
    """A point: what was published, each policy, what was missed."""
    default, best = cell.default, cell.best
    lru = "" if cell.pooled_lru is None else f"; pooled LRU {cell.pooled_lru:.3f}"
    _say(
        f"{default.trace} {default.cache_percent}% speed {default.speed:g}: default TTFT {default.ttft_ms:.0f} "
        f"p99 {default.ttft_p99_ms:.0f} e2e {default.e2e_ms:.0f} reuse {default.reuse:.3f}; best {best.mode} "
        f"TTFT {best.ttft_ms:.0f} p99 {best.ttft_p99_ms:.0f} e2e {best.e2e_ms:.0f} reuse {best.reuse:.3f}{lru}"
    )
    for name, figures in row["policies"].items():
        ratios, (low_ms, high_ms) = figures["ratios"], figures["ranges"]["ttft_ms"]
        _say(
            f"  {name:16} TTFT {figures['ttft_ms']:7.1f} [{low_ms:.1f}, {high_ms:.1f}] "
            f"x{ratios['ttft_ms_to_default']:.2f} default x{ratios['ttft_ms_to_best']:.2f} best   "
            f"p99 {figures['ttft_p99_ms']:6.0f} x{ratios['ttft_p99_ms_to_best']:.2f} best   "
            f"e2e {figures['e2e_ms']:6.0f} x{ratios['e2e_ms_to_default']:.3f} default   "
            f"reuse {figures['reuse']:.3f}   busiest {figures['busiest_share']:.2f}   "
            f"{figures['requests_per_cpu_s']} requests/s"
        )
    missed = [f"MISSED {name}" for name, kept in row["verdicts"].items() if not kept]
    missed += [f"aim missed: {name}" for name, kept in row["aims"].items() if not kept]
    if row["verdicts"]:
        _say("  " + ("; ".join(missed) or "all bounds and aims kept"))


def print_summary(summary: dict[str, Any]) -> None:
    """The means, and how many bounds were missed."""
    for group, means in summary["means"].items():
        ttft, p99 = (
            "/".join(f"{means[f'{kind}_{name}_to_best']:.3f}" for kind in _MEANS) for name in ("ttft_ms", "ttft_p99_ms")
        )
        _say(f"{group:4} TTFT x{ttft}, p99 x{p99} of the best mode (geometric/arithmetic mean; aim {AIM_RATIO:.2f})")
    _say(f"{summary['bounds_missed']} bounds and {summary['aims_missed']} aims of single points missed")


def is_whole(rows: Sequence[dict[str, Any]], options: argparse.Namespace) -> bool:
    """Whether everything ran, with our policy file: only such a result is kept."""
    is_default = Path(options.policy).resolve() == ROOT / POLICY and options.seeds >= SEEDS
    return is_default and len(rows) == 9 * len(TRACES) and {OURS, *BASELINES} <= set(options.policies)


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def parse_options() -> argparse.Namespace:
    """Flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_flags(parser, RESULT)
    parser.add_argument("--policy", default=str(ROOT / POLICY), help=f"file of our policy; {POLICY}")
    parser.add_argument(
        "--policies", nargs="+", default=[OURS, *BASELINES], help=f"{OURS}, or any that `dovecote simulate` takes"
    )
    return parser.parse_args()


def main() -> int:
    """Run, print, keep."""
    options = parse_options()
    run = {**describe_run(options), "policy": Path(options.policy).read_text(encoding="utf-8")}
    cells = read_cells(find_page(options.shared), options)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        traces = sorted({cell.default.trace for cell in cells})
        paths = {name: make_trace(name, options.shared, Path(folder)) for name in traces}
        for path in paths.values():
            load_trace(path)
        for cell, policies in run_cells(cells, paths, options):
            rows.append(make_row(cell, policies))
            print_row(cell, rows[-1])
    if not rows or OURS not in options.policies:
        return 0 if rows else 1
    summary = summarize_all(rows)
    print_summary(summary)
    if options.json:
        text = json.dumps({"run": run, "summary": summary, "points": rows}, indent=1)
        print(text)
        if is_whole(rows, options):
            RESULT.write_text(text + "\n", encoding="utf-8")
    return 1 if summary["bounds_missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
