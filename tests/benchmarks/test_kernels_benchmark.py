"""The kernels' benchmark refuses without a GPU, goes through all its motions dry, and imports nothing else of ours."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import kernels_checks
from benchmarks.kernels_meter import Case, Meter
from kernels.lse_merge import reference as lse_reference
from kernels.page_gather import reference

ROOT = Path(__file__).parents[2]


def run(*flags, **environment):
    command = [sys.executable, "-m", "benchmarks.kernels", *flags]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=600
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_refuses_and_says_what_would_do():
    done = run("--json")
    assert done.returncode == 2
    assert "needs a CUDA device" in done.stderr
    assert "--dry-run" in done.stderr
    assert not done.stdout


@pytest.mark.timeout(900)
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_dry_run_goes_through_every_row_in_the_interpreter():
    done = run("--dry-run", "--json", TRITON_INTERPRET="1", PYTHONWARNINGS="ignore")
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["benchmark"] == "kernels"
    assert result["details"]["left_out"] == []
    rows = {row["what"]: row for row in result["rows"]}
    assert len(rows) == len(result["rows"]) > 35
    assert all(row["value"] > 0 and row["time_us"] > 0 for row in rows.values())
    aims = [row for row in rows.values() if "aim" in row or "at_most" in row.get("beside", {})]
    assert len(aims) > 28
    assert {"copy", "read", "matmul", "pinned in", "pinned out"} <= set(result["details"]["ceilings"])


def test_it_imports_of_ours_only_kernels_and_itself():
    allowed = {"kernels", "benchmarks"}
    ours = {"wire", "prefix_index", "router", "engine_shim", "simulator"}
    paths = sorted((ROOT / "benchmarks").glob("kernels*.py"))
    assert len(paths) >= 7
    imported = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                imported.add(node.module)
            if isinstance(node, ast.Import):
                imported.update(one.name for one in node.names)
    assert not {name.split(".")[0] for name in imported} & ours
    assert {name for name in imported if name.startswith("benchmarks.")} <= {
        f"benchmarks.{path.stem}" for path in paths
    }
    assert any(name.split(".")[0] in allowed for name in imported)


def test_an_op_that_is_wrong_is_named_and_nothing_is_timed(monkeypatch):
    right = reference.page_gather
    calls = []

    def gather_wrongly(pool, page_ids, out):
        right(pool, page_ids, out)
        calls.append(1)
        if len(calls) == 1:
            out[0, 0, 0] += 1

    monkeypatch.setattr(reference, "page_gather", gather_wrongly)
    assert kernels_checks.check_all(torch.device("cpu")) == ["page_gather: not the same bytes"]


def test_a_case_that_fails_is_told_and_does_not_end_the_run():
    def fail():
        raise RuntimeError("no kernel image")

    row = Meter(repeats=1, use_gpu=False).try_out(Case("x", fail))
    assert row == {"what": "x", "failed": "RuntimeError: no kernel image"}


def test_an_op_that_raises_is_wrong(monkeypatch):
    def fail(*_):
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(lse_reference, "lse_merge", fail)
    assert kernels_checks.check_all(torch.device("cpu")) == ["lse_merge: RuntimeError: no kernel image"]


def test_a_row_is_held_against_its_ceiling_and_against_others():
    meter = Meter(repeats=3, use_gpu=False)
    meter.ceilings["copy"] = 1e-6
    tensor = torch.zeros(1000)
    case = Case("x", lambda: tensor + 1, 8_000, ceiling="copy", at_least=0.5, others={"same": lambda: tensor + 1})
    row = meter.measure(case)
    assert row["met"] is True
    assert row["ratio"] == row["value"] / 1e-6
    assert row["beside"]["best"] == "same"
    late = meter.measure(Case("y", lambda: tensor + 1, at_most_us=0.0))
    assert (late["unit"], late["met"]) == ("us", False)
