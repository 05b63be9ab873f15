"""Every benchmark runs: with `--quick`, as a process, and every row it gives has its numbers. Never a time."""

import json
import math
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks.tables import Result, make_table

#: Whole benchmarks as processes, which run without pause.
pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
#: What each has to show, by words that stand in its rows.
SHOWN = {
    "index": (
        "events of 1 block",
        "events of 16",
        "events of 100",
        "ZeroMQ",
        "match of 1,000",
        "holders",
        "root of",
        "hash of",
        "shared by 16",
        "disjoint",
    ),
    "turn": ("p50", "p99", "each 1,000 tokens", "first time", "blocks/s of events"),
    "snapshot": ("until the router is exact",),
    "proxy": ("1 KB", "64 KB", "stream of 64 chunks", "one at a time"),
    "exact": ("1 KB", "64 KB", "turn of a chat", "agent's turn", "without template and tokenizer", "all of it"),
    "pauses": ("longest pause", "as the router does it", "of the CPU time"),
    "shadow": ("over 8 ranks", "over 64 ranks", "cache_affinity", "overlap_linear"),
}
FLAGS = {"index": ("--peer-python", "no-such-interpreter")}


@pytest.fixture(scope="module", params=sorted(SHOWN))
def run(request, tmp_path_factory):
    name = request.param
    out = tmp_path_factory.mktemp(name) / "result.json"
    command = [sys.executable, "-m", f"benchmarks.{name}", "--quick", "--json", "--out", str(out), *FLAGS.get(name, ())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    return name, json.loads(done.stdout), out.read_bytes()


def numbers_in(value):
    if isinstance(value, dict):
        return [number for each in value.values() for number in numbers_in(each)]
    if isinstance(value, list):
        return [number for each in value for number in numbers_in(each)]
    return [value] if isinstance(value, int | float) else []


def test_a_quick_run_shows_every_figure_with_its_numbers(run):
    name, printed, written = run
    result = msgspec.json.decode(written, type=Result)
    assert printed == json.loads(written)
    assert result.benchmark == name
    assert result.run["quick"] is True
    assert {"version", "commit", "python", "cores", "seed", "repeats", "load_before", "load_after"} <= result.run.keys()
    for words in SHOWN[name]:
        assert any(words in row.what for row in result.rows), words
    for row in result.rows:
        assert math.isfinite(row.value)
        assert row.unit
        assert row.spread is None or row.spread[0] <= row.value <= row.spread[1]
        assert (row.reference is None) == (row.reference_value is None)
    assert all(map(math.isfinite, numbers_in(printed["details"])))
    # Its table has a line for each row, below two of its head.
    assert make_table(result, all_rows=True).count("\n| ") == len(result.rows) + 2
