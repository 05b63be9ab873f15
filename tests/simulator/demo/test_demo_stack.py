"""The demo as a user starts it: few sessions, timed forward, real router and engines."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.demo.processes import child_environment
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.stack

SMALL = [
    "--forward", "timed", "--replicas", "2", "--ranks", "2", "--sessions", "6", "--turns", "4",
    "--prompt-ratio", "0.015", "--time-ratio", "0.001",
]  # fmt: skip
#: Its first policy takes the better part of a minute, so that whoever comes in the middle does, however late.
LONG = [*SMALL, "--turns", "40", "--time-ratio", "1"]


def start(*arguments, **extra_env):
    return subprocess.Popen(
        [sys.executable, "-m", "simulator.demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**child_environment(extra_env), "COLUMNS": "120"},
    )


def children_of(pid):
    """Pids of the direct children of a process, as Linux tells them."""
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    if not listed.exists():
        pytest.skip("needs /proc/PID/task/TID/children to see that no child is left")
    return [int(word) for word in listed.read_text().split()]


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for_children(process, count):
    wait_until(lambda: len(children_of(process.pid)) >= count or process.poll() is not None, f"{count} children")
    return children_of(process.pid)


def cells(text, label):
    (line,) = [line for line in text.splitlines() if label in line]
    return [cell.strip() for cell in re.split("[│┃|]", line) if cell.strip()][1:]


def test_the_demo_prints_one_table_where_affinity_has_more_cached_and_explains_a_decision():
    process = start(*SMALL)
    text, _ = process.communicate()
    assert process.returncode == 0, text
    without, with_affinity = (float(cell) for cell in cells(text, "cached-token ratio"))
    assert with_affinity > without
    assert cells(text, "failed requests") == ["0", "0"]
    predicted, actual = cells(text, "cached tokens predicted"), cells(text, "cached tokens actual")
    assert all(int(cell.replace(",", "")) > 0 for cell in [*predicted, *actual])
    assert re.search(r"metrics page: +http://127\.0\.0\.1:\d+/metrics", text)
    assert re.search(r"one decision: +http://127\.0\.0\.1:\d+/v1/decisions/\S+", text)
    assert re.search(r"reason: +\S+", text)
    # The most frequent one comes first; which others there are depends on how late the machine reads events.
    assert cells(text, "predictions")[1].startswith("exact ")


def assert_interrupted(process, children):
    text, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, text
    assert children
    assert not any(is_running(pid) for pid in children)
    assert "stopping all processes" in text


def test_an_interrupt_while_engines_start_leaves_no_child_and_exit_code_130():
    process = start(*LONG)
    children = wait_for_children(process, 2)
    process.send_signal(signal.SIGINT)
    assert_interrupted(process, children)


def test_an_interrupt_in_the_middle_of_a_run_leaves_no_child_and_exit_code_130():
    process = start(*LONG)
    assert any("requests, 0 failed" in line for line in iter(process.stdout.readline, ""))
    children = children_of(process.pid)
    assert len(children) == 3
    process.send_signal(signal.SIGINT)
    assert_interrupted(process, children)


def test_a_reader_that_goes_away_leaves_no_child_and_exit_code_141():
    process = start(*LONG)
    assert any("starting" in line for line in iter(process.stdout.readline, ""))
    children = wait_for_children(process, 2)
    assert children
    process.stdout.close()
    assert process.wait(timeout=PATIENCE_S) == 141
    assert not any(is_running(pid) for pid in children)


def test_a_demo_that_is_killed_leaves_no_child():
    process = start(*LONG)
    assert any("requests, 0 failed" in line for line in iter(process.stdout.readline, ""))
    children = children_of(process.pid)
    assert len(children) == 3
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    wait_until(lambda: not any(map(is_running, children)), "the end of its children")


def test_a_router_that_dies_at_start_is_told_with_its_last_lines():
    process = start(*SMALL, DOVECOTE__NONSENSE__KEY="1")
    text, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, text
    assert "router (round_robin) ended with exit code" in text
    assert "nonsense" in text.split("its last lines:")[1].lower()


def test_an_unknown_policy_is_refused_before_anything_starts():
    process = start(*SMALL, "--policy", "astrology")
    text, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert "astrology" in text
    assert "cache_affinity" in text


def test_without_torch_the_demo_says_what_brings_it_before_anything_starts(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    without_torch = {"PYTHONPATH": os.pathsep.join([str(tmp_path), child_environment({})["PYTHONPATH"]])}
    process = start("--replicas", "1", **without_torch)
    text, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "pip install 'dovecote[engine]'" in text
    assert "--timed" in text
    assert "starting" not in text


def test_a_trace_that_cannot_be_read_is_refused_before_anything_starts(tmp_path):
    process = start("--trace", str(tmp_path / "none.jsonl"))
    text, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert "cannot be read" in text
