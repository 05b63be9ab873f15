"""Four policies over eight timed ranks of real engines behind the real router, and the same requests simulated.

Engines are slow beside what they cost the machine, so that times are theirs. Still a busy machine moves times, and
with them what policies that look at load choose: only figures that are far apart are told apart.
"""

import json
import subprocess
import sys

import pytest

from simulator.demo.processes import child_environment

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

TRAFFIC = ["--sessions", "24", "--turns", "4", "--time-ratio", "0.002", "--seed", "4"]
POLICIES = ["round_robin", "session_hash", "overlap_linear", "cache_affinity"]


def test_policies_over_real_timed_ranks_come_in_the_order_of_the_simulation():
    command = [sys.executable, "-m", "simulator.demo", "--check-simulation", "--json", "--noise-ratio", "0.25"]
    fleet = ["--replicas", "2", "--ranks", "4"]
    done = subprocess.run(
        [*command, *fleet, *TRAFFIC], capture_output=True, text=True, env=child_environment({}), check=False
    )
    assert done.returncode == 0, done.stderr
    form = json.loads(done.stdout)
    assert [summary["policy"] for summary in form["policies"]] == POLICIES
    assert not any(summary["failed_requests"] for summary in form["policies"])
    measured, simulated = (
        {standing["policy"]: standing for standing in form["simulation"][name]} for name in ("measured", "simulated")
    )
    assert min(POLICIES, key=lambda name: measured[name]["cached_ratio"]) == "round_robin"
    assert max(POLICIES, key=lambda name: measured[name]["ttft_mean_ms"]) == "round_robin"
    # Both hash the same names of sessions and ranks.
    assert measured["session_hash"]["busiest_over_mean"] == pytest.approx(
        simulated["session_hash"]["busiest_over_mean"], abs=1e-3
    )
    told = {(pair["figure"], pair["verdict"]) for pair in form["simulation"]["pairs"]}
    assert {("cached_ratio", "same"), ("ttft_mean_ms", "same"), ("e2e_mean_ms", "same")} <= told


def test_a_forward_whose_times_nobody_knows_cannot_be_checked():
    command = [sys.executable, "-m", "simulator.demo", "--check-simulation", "--forward", "torch"]
    done = subprocess.run(command, capture_output=True, text=True, env=child_environment({}), check=False)
    assert done.returncode == 2
    assert "--forward timed" in done.stdout + done.stderr
