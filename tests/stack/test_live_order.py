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
#: Most runs.
RUNS = 3
POLICIES = ["round_robin", "session_hash", "overlap_linear", "cache_affinity"]


def measure():
    """One run: its exit code, what it wrote, and its figures."""
    command = [sys.executable, "-m", "simulator.demo", "--check-simulation", "--json", "--noise-ratio", "0.25"]
    fleet = ["--replicas", "2", "--ranks", "4"]
    done = subprocess.run(
        [*command, *fleet, *TRAFFIC], capture_output=True, text=True, env=child_environment({}), check=False
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode, done.stderr, json.loads(done.stdout)


def read_standings(form, name):
    return {standing["policy"]: standing for standing in form["simulation"][name]}


def check_choices(form):
    """What the machine hardly moves: where requests went, and what was cached there."""
    assert [summary["policy"] for summary in form["policies"]] == POLICIES
    assert not any(summary["failed_requests"] for summary in form["policies"])
    measured, simulated = read_standings(form, "measured"), read_standings(form, "simulated")
    assert min(POLICIES, key=lambda name: measured[name]["cached_ratio"]) == "round_robin"
    # Both hash the same names of sessions and ranks.
    assert measured["session_hash"]["busiest_over_mean"] == pytest.approx(
        simulated["session_hash"]["busiest_over_mean"], abs=1e-3
    )


def have_same_order(code, form):
    """Whether the times came in the order of the simulation."""
    measured = read_standings(form, "measured")
    told = {(pair["figure"], pair["verdict"]) for pair in form["simulation"]["pairs"]}
    return (
        code == 0
        and max(POLICIES, key=lambda name: measured[name]["ttft_mean_ms"]) == "round_robin"
        and {("cached_ratio", "same"), ("ttft_mean_ms", "same"), ("e2e_mean_ms", "same")} <= told
    )


def test_policies_over_real_timed_ranks_come_in_the_order_of_the_simulation():
    for _ in range(RUNS):
        code, story, form = measure()
        check_choices(form)
        if have_same_order(code, form):
            return
    pytest.fail(f"no order of {RUNS} runs was that of the simulation; the last one:\n{story}")


def test_a_forward_whose_times_nobody_knows_cannot_be_checked():
    command = [sys.executable, "-m", "simulator.demo", "--check-simulation", "--forward", "torch"]
    done = subprocess.run(command, capture_output=True, text=True, env=child_environment({}), check=False)
    assert done.returncode == 2
    assert "--forward timed" in done.stdout + done.stderr
