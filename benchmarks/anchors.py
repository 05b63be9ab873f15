"""Does the simulator reproduce what ai-dynamo-runtime 1.6.1 was measured to do? `python -m benchmarks.anchors`.

Makes the two agent traces by the published recipe (and checks that they are those), runs round robin and Dynamo's rule
at two weights with the `dynamo-1.6` engine model at nine points each, and sets every figure beside the published one.
Reuse must be within 0.02 and mean time to first token within 10%, at every point; else the exit code is 1. Simulated
times do not depend on the machine. Needs the shared material (`DOVECOTE_SHARED`, by default beside the repository).
"""

import argparse
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from msgspec import Struct

from simulator.fleet.models import FleetPlan
from simulator.fleet.policies import parse_policy
from simulator.fleet.report import RunReport
from simulator.fleet.run import RunSettings, simulate
from simulator.graph.reader import read_trace
from simulator.graph.request import BlockTrace

ROOT = Path(__file__).parents[1]
RESULT = Path(__file__).parent / "results" / "anchors-0.1.0.json"
#: Trace: sessions, arrivals a second, workers, beginning of its SHA-256.
TRACES = {"d8": (165, 0.14, 8, "dfffc5c6fdd4bcf9"), "d16": (330, 0.28, 16, "f0918b3a7a0f28c2")}
RECIPE = ("--format", "agentic", "--max-context", "160000", "--max-requests", "40", "--gap-cap", "60", "--seed", "3")
MODES = {
    "round_robin": "round_robin",
    "default": "overlap_linear",
    "scale4": "overlap_linear:prefill_load_scale=4",
}
MAX_REUSE_ERROR = 0.02
MAX_TTFT_ERROR_RATIO = 0.10
#: `| workers | cache% (blocks) | speed | mode | reuse ... | TTFT mean / p50 / p90 / p99 | queue | TPOT | e2e ... |`
ROW = re.compile(
    r"^\| (?P<workers>8|16) \| (?P<cache>\d+)% \((?P<blocks>\d+)\) \| (?P<speed>[\d.]+) \| (?P<mode>\w+) "
    r"\| (?P<reuse>[\d.]+)[^|]*\| (?P<ttft>[\d./ ]+) \| [^|]+ \| (?P<tpot>[\d.]+) \| (?P<e2e>[\d./ ]+) "
    r"\| [^|]+ \| (?P<share>[\d.]+) / [\d.]+ \|"
)


class Point(Struct, frozen=True):
    """One published row."""

    trace: str
    workers: int
    cache_percent: int
    cache_blocks: int
    speed: float
    mode: str
    reuse: float
    ttft_ms: float
    ttft_p99_ms: float
    tpot_ms: float
    e2e_ms: float
    busiest_share: float


def read_points(page: Path, modes: Collection[str] = tuple(MODES)) -> Iterator[Point]:
    """The published rows of some modes; the first of a kind counts, later ones are tuning runs."""
    seen = set()
    for line in page.read_text(encoding="utf-8").splitlines():
        row = ROW.match(line)
        if row is None or row["mode"] not in modes:
            continue
        key = (row["workers"], row["blocks"], row["speed"], row["mode"])
        if key in seen:
            continue
        seen.add(key)
        ttft, e2e = ([float(part) for part in row[name].split("/")] for name in ("ttft", "e2e"))
        workers = int(row["workers"])
        yield Point(
            "d8" if workers == 8 else "d16", workers, int(row["cache"]), int(row["blocks"]), float(row["speed"]),
            row["mode"], float(row["reuse"]), ttft[0], ttft[3], float(row["tpot"]), e2e[0], float(row["share"]),
        )  # fmt: skip


def make_trace(name: str, shared: Path, folder: Path) -> Path:
    """The trace by its recipe.

    Raises:
        SystemExit: It is not the published one.
    """
    sessions, rate, _, prefix = TRACES[name]
    out = folder / f"{name}.jsonl"
    corpus = shared / "traces" / "weka_claude_code.dev.jsonl.xz"
    script = shared / "peers" / "weka_to_mooncake.py"
    command = [sys.executable, str(script), str(corpus), "--out", str(out)]
    command += ["--sessions", str(sessions), "--rate", str(rate), *RECIPE]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    digest = hashlib.sha256(out.read_bytes()).hexdigest()
    if not digest.startswith(prefix):
        sys.exit(f"{name}: the trace is {digest[:16]}, the published one {prefix}")
    return out


@cache
def load_trace(path: Path) -> BlockTrace:
    """The trace, once a process."""
    return read_trace(path)


def run_policy(path: Path, point: Point, policy: str, seed: int) -> tuple[RunReport, float]:
    """One run on the fleet of a point, and the CPU seconds it took; the seed is that of the router's ties."""
    plan = FleetPlan(workers=point.workers, cache_blocks=point.cache_blocks, speedup_ratio=point.speed)
    trace = load_trace(path)
    begun_s = time.process_time()
    report = simulate(trace, plan, parse_policy(policy), settings=RunSettings(seed=seed))
    return report, time.process_time() - begun_s


def average(reports: Sequence[RunReport]) -> dict[str, float]:
    """The figures that are compared, as means over the seeds; named as in `Point`."""
    return {name: fmean(values) for name, values in list_figures(reports).items()}


def list_figures(reports: Sequence[RunReport]) -> dict[str, list[float]]:
    """The same, one for each seed."""
    return {
        "reuse": [report.reuse_ratio for report in reports],
        "ttft_ms": [report.ttft.mean_ms for report in reports],
        "ttft_p99_ms": [report.ttft.p99_ms for report in reports],
        "tpot_ms": [report.tpot_mean_ms for report in reports],
        "e2e_ms": [report.e2e.mean_ms for report in reports],
        "busiest_share": [report.busiest_share for report in reports],
    }


def compare(point: Point, reports: Sequence[RunReport], cpu_s: float) -> dict[str, Any]:
    """Ours, averaged over the seeds, beside the published."""
    ours = average(reports)
    published = {name: getattr(point, name) for name in ours}
    reuse_error = ours["reuse"] - point.reuse
    ttft_error_ratio = ours["ttft_ms"] / point.ttft_ms - 1.0
    return {
        "trace": point.trace,
        "workers": point.workers,
        "cache_percent": point.cache_percent,
        "cache_blocks": point.cache_blocks,
        "speed": point.speed,
        "mode": point.mode,
        "ours": {name: round(value, 4) for name, value in ours.items()},
        "published": published,
        "reuse_error": round(reuse_error, 4),
        "ttft_error_ratio": round(ttft_error_ratio, 4),
        "e2e_error_ratio": round(ours["e2e_ms"] / point.e2e_ms - 1.0, 4),
        "is_within": abs(reuse_error) <= MAX_REUSE_ERROR and abs(ttft_error_ratio) <= MAX_TTFT_ERROR_RATIO,
        "runs": len(reports),
        "requests_per_cpu_s": round(len(reports) * reports[0].requests / cpu_s),
    }


def run_all(points: Sequence[Point], paths: dict[str, Path], seeds: int, jobs: int) -> Iterator[dict[str, Any]]:
    """Every point, in the order of the page."""
    with ProcessPoolExecutor(jobs) as pool:
        pending = [
            [
                pool.submit(run_policy, paths[point.trace], point, MODES[point.mode], seed)
                for seed in range(1, _count_runs(point, seeds) + 1)
            ]
            for point in points
        ]
        for point, futures in zip(points, pending, strict=True):
            results = [future.result() for future in futures]
            yield compare(point, [report for report, _ in results], sum(cpu_s for _, cpu_s in results))


def _count_runs(point: Point, seeds: int) -> int:
    """Round robin has no chance in it."""
    return 1 if point.mode == "round_robin" else seeds


def print_row(row: dict[str, Any]) -> None:
    """One point, ours / published."""
    ours, published = row["ours"], row["published"]
    where = f"{row['trace']:4}{row['cache_percent']:4}% {row['speed']:5} {row['mode']:12}"
    print(
        f"{where} reuse {ours['reuse']:.3f} / {published['reuse']:.3f} ({row['reuse_error']:+.3f})  "
        f"TTFT {ours['ttft_ms']:6.0f} / {published['ttft_ms']:6.0f} ({row['ttft_error_ratio']:+.1%})  "
        f"e2e {ours['e2e_ms']:6.0f} / {published['e2e_ms']:6.0f} ({row['e2e_error_ratio']:+.1%})  "
        f"{'ok' if row['is_within'] else 'OFF'}",
        file=sys.stderr,
        flush=True,
    )


def describe_run(options: argparse.Namespace) -> dict[str, Any]:
    """Where the figures are from."""
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "commit": git.stdout.strip() or None,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "seeds": options.seeds,
        "load_before": round(os.getloadavg()[0], 2),
    }


def parse_options() -> argparse.Namespace:
    """Flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_flags(parser, RESULT)
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    return parser.parse_args()


def add_flags(parser: argparse.ArgumentParser, result: Path) -> None:
    """Those of every benchmark that stands beside the published page."""
    parser.add_argument("--json", action="store_true", help=f"print JSON, and keep it in {result.name} when all ran")
    shared = os.environ.get("DOVECOTE_SHARED", str(ROOT.parent / "shared"))
    parser.add_argument("--shared", type=Path, default=Path(shared))
    parser.add_argument("--traces", nargs="+", choices=list(TRACES), default=list(TRACES))
    parser.add_argument("--speeds", nargs="+", type=float, help="only these")
    parser.add_argument("--caches", nargs="+", type=int, help="only these percentages")
    parser.add_argument("--seeds", type=int, default=5, help="runs of what has chance in it; the means count")
    parser.add_argument("--jobs", type=int, default=1, help="processes")


def find_page(shared: Path) -> Path:
    """The published page.

    Raises:
        SystemExit: It is not there.
    """
    page = shared / "reference" / "placement-anchors.md"
    if not page.is_file():
        sys.exit(f"needs the shared material: {page} is not there (--shared, or DOVECOTE_SHARED)")
    return page


def pick_points(points: Iterable[Point], options: argparse.Namespace) -> list[Point]:
    """Those that the flags leave."""
    return [
        point
        for point in points
        if point.trace in options.traces
        and (not options.speeds or point.speed in options.speeds)
        and (not options.caches or point.cache_percent in options.caches)
    ]


def main() -> int:
    """Run, print, keep."""
    options = parse_options()
    page = find_page(options.shared)
    points = pick_points(read_points(page, options.modes), options)
    run = describe_run(options)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: make_trace(name, options.shared, Path(folder)) for name in options.traces}
        for row in run_all(points, paths, options.seeds, options.jobs):
            print_row(row)
            rows.append(row)
    off = sum(not row["is_within"] for row in rows)
    limits = {"reuse": MAX_REUSE_ERROR, "ttft_ratio": MAX_TTFT_ERROR_RATIO}
    text = json.dumps({"run": run, "limits": limits, "points_off": off, "points": rows}, indent=1)
    print(f"{len(rows) - off} of {len(rows)} points within the limits", file=sys.stderr)
    if options.json:
        print(text)
        if len(rows) == len(TRACES) * len(MODES) * 9:
            RESULT.write_text(text + "\n", encoding="utf-8")
    return 1 if off or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
