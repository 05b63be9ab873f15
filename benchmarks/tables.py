"""Tables of figures in Markdown, made from `benchmarks/results`: `python -m benchmarks.tables [--write]`.

A page has a marker `<!-- figures: NAME -->` (the rows for a front page) or `<!-- all figures: NAME -->` before each
table, and `<!-- end of figures -->` after it. `--write` puts the tables into the pages; without it they are printed.
Takes each benchmark's result of the newest version.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.rows import Aim, Row
from benchmarks.run_facts import RESULTS, ROOT

NAMES = ("index", "turn", "decision", "snapshot", "proxy", "exact")
PAGES = ("README.md", "docs/benchmarks.md")
END = "<!-- end of figures -->"
_PLACE = re.compile(rf"<!-- (all )?figures: ([a-z]+) -->\n.*?{END}", re.DOTALL)
_COLUMNS = ("what", "figure", "spread", "aim", "reference in the same run", "times as good")


class Result(msgspec.Struct):
    """What a benchmark kept."""

    benchmark: str
    run: dict[str, Any]
    rows: list[Row]


def read_result(name: str, folder: Path = RESULTS) -> Result:
    """The newest version's result.

    Raises:
        FileNotFoundError: There is none.
    """
    found = [path for path in folder.glob(f"{name}-*.json") if re.fullmatch(rf"{name}-[\d.]+\.json", path.name)]
    if not found:
        raise FileNotFoundError(f"no result of {name}: run `python -m benchmarks.{name} --json`")
    newest = max(found, key=lambda path: [int(part) for part in path.stem.removeprefix(f"{name}-").split(".")])
    return msgspec.json.decode(newest.read_bytes(), type=Result)


def make_table(result: Result, *, all_rows: bool) -> str:
    """The table, with the command before it and the run after it."""
    rows = [row for row in result.rows if all_rows or row.is_headline]
    lines = [f"`python -m benchmarks.{result.benchmark} --json`", "", _line(_COLUMNS), _line(["---"] * len(_COLUMNS))]
    lines += [_line(_cells(row)) for row in rows]
    return "\n".join([*lines, "", _say_run(result.run)])


def fill_page(text: str, results: dict[str, Result]) -> str:
    """A page with its tables as they are to be."""

    def fill(place: "re.Match[str]") -> str:
        words, name = place[1] or "", place[2]
        table = make_table(results[name], all_rows=bool(words))
        return f"<!-- {words}figures: {name} -->\n{table}\n{END}"

    return _PLACE.sub(fill, text)


def _line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"


def _cells(row: Row) -> list[str]:
    spread = "" if row.spread is None else f"{say_number(row.spread[0])} to {say_number(row.spread[1])}"
    aim = (
        ""
        if row.aim is None
        else say_aim(row.aim, row.unit) + {True: "", False: ", missed", None: ", unknown"}[row.met]
    )
    reference = "" if row.reference is None else f"{row.reference}: {say_number(row.reference_value or 0.0)} {row.unit}"
    ratio = "" if row.ratio is None else say_number(row.ratio)
    return [row.what, f"{say_number(row.value)} {row.unit}", spread, aim, reference, ratio]


def say_aim(aim: Aim, unit: str) -> str:
    """An aim in a few words."""
    of = "times as good" if aim.of_ratio else unit
    limits = [f"at most {say_number(aim.at_most)}"] if aim.at_most is not None else []
    limits += [f"at least {say_number(aim.at_least)}"] if aim.at_least is not None else []
    return f"{', '.join(limits)} {of}"


def say_number(value: float) -> str:
    """Three significant digits; thousands apart."""
    if abs(value) >= 1_000:
        digits = len(str(int(abs(value)))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}"


def _say_run(run: dict[str, Any]) -> str:
    peer = run.get("peer") or run.get("peer_missing")
    words = [f"version {run['version']}", f"{run['cores']} cores", f"Python {run['python']}"]
    words += [f"tokenizer {run['tokenizer']}"] if "tokenizer" in run else []
    words += [str(peer)] if peer else []
    return f"Of {', '.join(words)}; load {run['load_before']} before, {run['load_after']} after; median of repeats."


def main() -> int:
    """Print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables into " + " and ".join(PAGES))
    options = parser.parse_args()
    results = {name: read_result(name) for name in NAMES}
    if options.write:
        for page in PAGES:
            path = ROOT / page
            path.write_text(fill_page(path.read_text(encoding="utf-8"), results), encoding="utf-8")
    else:
        print("\n\n".join(make_table(result, all_rows=True) for result in results.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
