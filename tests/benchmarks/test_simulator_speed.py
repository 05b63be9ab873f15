"""The simulator's speed and memory are measured on the real corpus; a quick run has every row, and no aim is sham."""

import json
import subprocess
import sys

import pytest

from benchmarks.anchors import ROOT
from benchmarks.simulator import Case, Measured, find_corpus, make_rows
from simulator.fleet.report import RunReport, Spread

SPREAD = Spread(1.0, 1.0, 1.0, 1.0)
REPORT = RunReport(
    policy="p", requests=3_000, reuse_ratio=0.5, ttft=SPREAD, e2e=SPREAD, tpot_mean_ms=1.0, busiest_share=1.0,
    idlest_share=1.0, busy_ratio=0.5, exact_predictions_ratio=1.0, retracted_requests=0, evicted_blocks=0, span_s=9.0,
)  # fmt: skip


@pytest.mark.parametrize(("cpu_s", "mib", "met"), [(3.0, 1_024, (True, True)), (3.1, 1_025, (False, False))])
def test_speed_and_memory_at_64_ranks_have_aims_that_can_be_missed(cpu_s, mib, met):
    runs = [Measured(3_000, cpu_s, 0.1, mib << 20, REPORT)]
    speed, memory = make_rows(Case(64, 1, 1.0), "our policy", runs)
    assert (speed.met, memory.met) == met
    assert all(row.aim is None for row in make_rows(Case(8, 1, 1.0), "our policy", runs))


def test_without_the_corpus_it_says_what_it_needs(tmp_path):
    with pytest.raises(SystemExit, match="needs the shared material"):
        find_corpus(tmp_path)


@pytest.mark.shared
@pytest.mark.timeout(900)
def test_a_quick_run_shows_both_fleets_under_every_policy(shared_dir):
    command = [sys.executable, "-m", "benchmarks.simulator", "--quick", "--json", "--shared", str(shared_dir)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    result = json.loads(done.stdout)
    whats = [row["what"] for row in result["rows"]]
    assert len(set(whats)) == len(whats) == 2 * 3 * 2
    assert all(row["value"] > 0 for row in result["rows"])
    assert {run["case"]["ranks"] for run in result["details"]["runs"]} == {8, 64}
