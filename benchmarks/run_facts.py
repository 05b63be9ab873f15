"""What every benchmark shares: its flags, the facts of a run, and where its result goes.

A result is `{"benchmark", "run", "rows", "details"}`: rows are for tables (`benchmarks.tables`), details for those
who look closer. No host name enters it.
"""

import argparse
import os
import platform
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.rows import Row
from prefix_index.hashing import native_available

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
SEED = 7


def make_parser(words: str | None, *, repeats: int) -> argparse.ArgumentParser:
    """The flags that all have; `words` is the module's docstring."""
    parser = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--json", action="store_true", help="print JSON, and keep it in benchmarks/results unless it was a quick run"
    )
    parser.add_argument("--out", type=Path, help="write the JSON to this file instead")
    parser.add_argument(
        "--quick", action="store_true", help="small and few: shows that it runs, its figures mean nothing"
    )
    parser.add_argument("--repeats", type=int, default=repeats, help="median of so many")
    return parser


def describe_run(options: argparse.Namespace, **facts: Any) -> dict[str, Any]:
    """Where and of what the figures are."""
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "version": find_version(),
        "commit": git.stdout.strip() or None,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "native": native_available(),
        "load_before": round(os.getloadavg()[0], 2),
        "seed": SEED,
        "repeats": options.repeats,
        "quick": options.quick,
        **facts,
    }


def find_version() -> str:
    """Version of this source tree."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def finish(
    name: str, options: argparse.Namespace, run: dict[str, Any], rows: list[Row], details: dict[str, Any]
) -> int:
    """Print a result, and keep it where it is to be kept; gives the exit status."""
    run["load_after"] = round(os.getloadavg()[0], 2)
    result = {"benchmark": name, "run": run, "rows": rows, "details": details}
    text = msgspec.json.format(msgspec.json.encode(result)).decode()
    if options.out is not None or (options.json and not options.quick):
        path = options.out or RESULTS / f"{name}-{run['version']}.json"
        path.write_text(text + "\n", encoding="utf-8")
    print(text if options.json else "\n".join(map(say_row, rows)))
    return 0


def say_row(row: Row) -> str:
    """A row in one line."""
    words = f"{row.what}: {row.value:,.4g} {row.unit}"
    if row.ratio is not None:
        words += f", {row.ratio:.3g} times as good as {row.reference} ({row.reference_value:,.4g})"
    elif row.reference is not None:
        words += f"; {row.reference}: {row.reference_value:,.4g}"
    return words if row.met is not False else words + ", which misses its aim"


def progress(words: str) -> None:
    """Say on stderr what is being measured."""
    print(f"... {words}", file=sys.stderr, flush=True)
