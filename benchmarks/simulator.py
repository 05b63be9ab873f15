"""How fast does the simulator serve recorded agent sessions, and in how much memory? `python -m benchmarks.simulator`.

Plays sessions of the Weka corpus on 8 and on 64 ranks, each run in a process of its own on one core. The figure is
requests a CPU second, the trace read already; the trace is read again in each process, which counts for its memory.
Needs the shared material (`DOVECOTE_SHARED`, by default beside the repository).
"""

import multiprocessing
import os
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from msgspec import Struct, structs, to_builtins

from benchmarks.rows import Aim, Row, make_row
from benchmarks.run_facts import ROOT, describe_run, finish, make_parser, progress
from simulator.fleet.models import FleetPlan
from simulator.fleet.policies import parse_policy
from simulator.fleet.report import RunReport
from simulator.fleet.run import simulate
from simulator.graph.reader import read_trace
from simulator.graph.weka import WekaSampling

CORPUS = "weka_claude_code.dev.jsonl.xz"
#: As `dovecote simulate` draws them, and as the published traces were made.
SAMPLING = WekaSampling(max_prompt_tokens=160_000, max_requests=40, max_pause_s=60.0, seed=3)
CACHE_BLOCKS = 6_172
SPEED = 4.25
POLICIES = {"our policy": str(ROOT / "examples" / "policy.yaml"), "overlap_linear": "overlap_linear"}
#: What nothing is reused under, so that the most blocks come and go.
HARDEST = {"round_robin": "round_robin"}
MIB = 1 << 20


class Case(Struct, frozen=True):
    """A fleet and the traffic that it gets."""

    ranks: int
    sessions: int
    arrivals_per_s: float


CASES = (Case(8, 165, 0.14), Case(64, 1_320, 1.12))
QUICK_CASES = (Case(8, 12, 0.14), Case(64, 24, 1.12))


class Measured(Struct, frozen=True):
    """One run."""

    requests: int
    cpu_s: float
    #: To read the corpus and draw the sessions.
    read_cpu_s: float
    peak_rss_bytes: int
    report: RunReport


def run_case(corpus: Path, case: Case, policy: str) -> Measured:
    """Read, simulate, measure. Its process does nothing else, before or after."""
    begun_s = time.process_time()
    trace = read_trace(
        corpus, sampling=structs.replace(SAMPLING, sessions=case.sessions, arrivals_per_s=case.arrivals_per_s)
    )
    read_s = time.process_time()
    plan = FleetPlan(workers=case.ranks, cache_blocks=CACHE_BLOCKS, speedup_ratio=SPEED)
    report = simulate(trace, plan, parse_policy(policy))
    cpu_s = time.process_time() - read_s
    peak_rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024
    return Measured(report.requests, cpu_s, read_s - begun_s, peak_rss_bytes, report)


def measure(corpus: Path, case: Case, policy: str, repeats: int) -> list[Measured]:
    """Each repeat in a new process that inherits no memory of this one."""
    context = multiprocessing.get_context("spawn")
    runs = []
    for _ in range(repeats):
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            runs.append(pool.submit(run_case, corpus, case, policy).result())
    return runs


def make_rows(case: Case, name: str, runs: list[Measured]) -> list[Row]:
    """Speed and memory of one case under one policy."""
    is_aimed = case.ranks == 64
    what = f"{runs[0].requests:,} requests on {case.ranks} ranks, {name}"
    return [
        make_row(
            what,
            [run.requests / run.cpu_s for run in runs],
            "requests/s",
            more_is_better=True,
            aim=Aim(at_least=1_000.0) if is_aimed and name not in HARDEST else None,
        ),
        make_row(
            f"{what}: peak memory",
            [run.peak_rss_bytes / MIB for run in runs],
            "MiB",
            aim=Aim(at_most=1_024.0) if is_aimed else None,
        ),
    ]


def find_corpus(shared: Path) -> Path:
    """The recorded sessions.

    Raises:
        SystemExit: They are not there.
    """
    corpus = shared / "traces" / CORPUS
    if not corpus.is_file():
        sys.exit(f"needs the shared material: {corpus} is not there (--shared, or DOVECOTE_SHARED)")
    return corpus


def main() -> int:
    """Measure, print, keep."""
    parser = make_parser(__doc__, repeats=3)
    parser.add_argument("--shared", type=Path, default=Path(os.environ.get("DOVECOTE_SHARED", ROOT.parent / "shared")))
    options = parser.parse_args()
    corpus = find_corpus(options.shared)
    repeats = 1 if options.quick else options.repeats
    run = describe_run(options, cache_blocks=CACHE_BLOCKS, speed=SPEED)
    rows: list[Row] = []
    details: list[dict[str, Any]] = []
    for case in QUICK_CASES if options.quick else CASES:
        for name, policy in {**POLICIES, **HARDEST}.items():
            progress(f"{case.ranks} ranks, {name}")
            runs = measure(corpus, case, policy, repeats)
            rows += make_rows(case, name, runs)
            told = structs.replace(runs[0].report, policy=name)
            details.append({"case": to_builtins(case), "read_cpu_s": runs[0].read_cpu_s, "report": to_builtins(told)})
    return finish("simulator", options, run, rows, {"runs": details})


if __name__ == "__main__":
    sys.exit(main())
