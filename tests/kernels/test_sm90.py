"""What is compiled for an H200: once for all lengths, 16 bytes an access, nothing spilled. No GPU is needed."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("sm90.py")
ROOT = Path(__file__).parents[2]
#: Runs the script on the source that it lies in, wherever an editable install points to.
START = (
    "import runpy, sys; sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in type(f).__module__];"
    "root, *sys.argv = sys.argv[1:]; sys.path[:0] = [root, root + '/tests/kernels'];"
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)
#: Scenarios in which rows are copied bit by bit.
COPIES = ["pages", "token_rows", "few_programs", "heads", "tails", "states", "append"]
OTHERS = [
    *("components", "checksums", "append_float8", "rounded_states", "attention", "attention_over_a_window"),
    *(
        "attention_over_float8",
        "verification",
        "merging",
        "delta_rule",
        "delta_rule_of_one_row",
        "delta_rule_with_checkpoints",
    ),
]


pytest.importorskip("triton", reason="needs triton, which is made for Linux only")
# A machine that others use takes long to compile it all.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="session")
def compile_scenario(tmp_path_factory):
    """Compilations of a scenario; groups share a process, which takes seconds to start."""

    @cache
    def run(*names):
        environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton"))}
        environment.pop("TRITON_INTERPRET", None)
        done = subprocess.run(
            [sys.executable, "-c", START, ROOT, SCRIPT, *names],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        lines = map(json.loads, done.stdout.splitlines())
        return {line["scenario"]: line["compilations"] for line in lines}

    return run


def test_rows_are_copied_16_bytes_at_a_time(compile_scenario):
    """Whatever is read in other pieces is an index or a pointer, of which a tile needs few."""
    found = [(name, one) for name, compiled in compile_scenario(*COPIES).items() for one in compiled]
    assert {one["kernel"] for _, one in found} == {"row_copy_kernel", "paged_append_kernel"}
    assert len(found) >= 14
    for name, one in found:
        assert set(one["st"]) == {"16"}, (name, one)
        assert one["ld"]["16"] == one["st"]["16"], (name, one)
        assert sum(one["ld"].values()) - one["ld"]["16"] <= 9, (name, one)


def test_nothing_is_spilled(compile_scenario):
    found = {**compile_scenario(*COPIES), **compile_scenario(*OTHERS)}
    assert len({one["kernel"] for compiled in found.values() for one in compiled}) == 13
    spilled = {name: one for name, compiled in found.items() for one in compiled if one["spilled_bytes"]}
    assert not spilled


def test_what_is_large_moves_16_bytes_at_a_time_in_the_other_kernels_too(compile_scenario):
    found = compile_scenario(*OTHERS)
    wide = {
        one["kernel"]: (one["ld"].get("16", 0), one["st"].get("16", 0))
        for compiled in found.values()
        for one in compiled
    }
    assert min(wide["component_copy_kernel"]) == 4
    assert wide["lse_merge_kernel"][0] >= 2
    for kernel in ("decode_kernel", "extend_kernel", "scan_kernel", "recurrent_kernel"):
        assert min(wide[kernel]) >= 4, kernel
    whole = [one for one in found["checksums"] if one["kernel"] == "page_checksums_kernel"]
    assert [one["ld"]["16"] for one in whole] == [4, 1, 4, 1]
    assert [one["ld"]["16"] > 0 and one["st"]["16"] > 0 for one in found["rounded_states"]] == [True, True]


def test_one_compilation_serves_all_lengths_widths_counts_and_starts(compile_scenario):
    compilations = [one["kernel"] for one in compile_scenario("many_lengths")["many_lengths"]]
    times = {kernel: compilations.count(kernel) for kernel in compilations}
    # One out of a pool, one into it.
    assert times.pop("row_copy_kernel") == 2
    assert set(times.values()) == {1}, times
    assert len(times) == 10
