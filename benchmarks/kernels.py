"""Are the kernels right, and how near do they come to what the GPU can do? `python -m benchmarks.kernels --json`.

Correctness first: every op is compared with its reference, in bfloat16 and small, and nothing is timed unless all are
right. Figures are ratios to ceilings measured in the same run (copy, read, matrix product, moves to pinned memory).
Imports only torch and `kernels`, so that it runs where the router's packages are not installed. Others
(FlashInfer with `--with-jit`, flash-linear-attention) are timed beside where they import; `--path` says where from.
It ends within 150 seconds on an H200. Without a GPU it refuses; `--dry-run` goes through the motions on the CPU, small,
and its figures mean nothing.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from benchmarks import kernels_anchors as anchors
from benchmarks.kernels_attention import attention_cases
from benchmarks.kernels_checks import check_all
from benchmarks.kernels_copies import copy_cases
from benchmarks.kernels_meter import Case, Meter, measure_ceilings
from benchmarks.kernels_overlap import measure_overlap
from benchmarks.kernels_sizes import DRY, FULL

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
#: After so long no further case is begun on a GPU, which is lent for a time; a dry run goes through all.
BUDGET_S = 140.0


def main() -> int:
    """Check, measure, print."""
    options = _parse()
    sys.path[:0] = map(str, options.path)
    if not torch.cuda.is_available() and not options.dry_run:
        print(
            "benchmarks.kernels needs a CUDA device, and torch finds none; --dry-run shows that it runs",
            file=sys.stderr,
        )
        return 2
    started_s = time.perf_counter()
    wrong = check_all(torch.device("cuda" if torch.cuda.is_available() and not options.dry_run else "cpu"))
    if wrong:
        print("\n".join(f"wrong: {one}" for one in wrong), file=sys.stderr)
        if not options.keep_going:
            return 1
    result = _measure(options, started_s)
    result["details"]["wrong"] = wrong
    text = json.dumps(result, indent=2)
    if options.out is not None or (options.json and not options.dry_run):
        path = options.out or RESULTS / f"kernels-{result['run']['version']}.json"
        path.write_text(text + "\n", encoding="utf-8")
    print(text if options.json else "\n".join(_say(row) for row in result["rows"]))
    return 1 if wrong or any("failed" in row for row in result["rows"]) else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON, and keep it in benchmarks/results")
    parser.add_argument("--out", type=Path, help="write the JSON to this file instead")
    parser.add_argument(
        "--dry-run", action="store_true", help="small and on the CPU: figures mean nothing, none is kept"
    )
    parser.add_argument("--with-jit", action="store_true", help="also anchors that compile for a minute (FlashInfer)")
    parser.add_argument("--keep-going", action="store_true", help="time although an op is wrong; the result says so")
    parser.add_argument("--only", default="", help="only cases whose name has this")
    parser.add_argument("--path", type=Path, action="append", default=[], help="where others' packages lie")
    parser.add_argument("--repeats", type=int, default=7, help="median of so many")
    return parser.parse_args()


def _measure(options: argparse.Namespace, started_s: float) -> dict[str, Any]:
    sizes = DRY if options.dry_run else FULL
    meter = Meter(repeats=1 if options.dry_run else options.repeats, use_gpu=not options.dry_run)
    measure_ceilings(meter, copy_bytes=sizes.copy_bytes, matmul_side=sizes.matmul_side)
    rows, left_out = [], []
    end_s = math.inf if options.dry_run else started_s + BUDGET_S
    for case in _cases(meter, sizes, options):
        if time.perf_counter() > end_s:
            left_out.append(case.what)
        else:
            rows.append(meter.try_out(case))
            print(f"... {_say(rows[-1])}", file=sys.stderr, flush=True)
    details = {"ceilings": meter.ceilings, "anchors_missing": anchors.MISSING, "left_out": left_out}
    if not options.only:
        details["overlap"] = measure_overlap(meter, sizes)
    run = {**_describe_run(options, meter), "took_s": round(time.perf_counter() - started_s, 1)}
    return {"benchmark": "kernels", "run": run, "rows": rows, "details": details}


def _cases(meter: Meter, sizes: Any, options: argparse.Namespace) -> Iterator[Case]:
    for case in chain(copy_cases(meter, sizes), attention_cases(meter, sizes, with_jit=options.with_jit)):
        if options.only in case.what:
            yield case


def _describe_run(options: argparse.Namespace, meter: Meter) -> dict[str, Any]:
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    facts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {
        "version": facts["project"]["version"],
        "commit": git.stdout.strip() or None,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "triton": _find_triton(),
        "device": torch.cuda.get_device_name() if meter.has_gpu else "none: a dry run",
        "repeats": options.repeats,
    }


def _find_triton() -> str | None:
    try:
        import triton  # noqa: PLC0415 - a dry run does without
    except ImportError:
        return None
    return str(triton.__version__)


def _say(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"{row['what']}: failed, {row['failed']}"
    words = f"{row['what']}: {row['value']:,.4g} {row['unit']}"
    if "ratio" in row:
        words += f", {row['ratio']:.2f} of {row['reference']}"
    if "beside" in row:
        words += f", {row['beside']['our_time_of_its']:.2f} of the time of {row['beside']['best']}"
    missed = row.get("met") is False or row.get("beside", {}).get("met") is False
    return words + ", which misses its aim" if missed else words


if __name__ == "__main__":
    sys.exit(main())
