"""Tables of the simulator's results in Markdown: `python -m benchmarks.simulated [--write]`.

Takes what `benchmarks.anchors`, `benchmarks.placement` and `benchmarks.simulator` kept. `--write` puts the tables into
`docs/simulator.md`, between the markers `<!-- table: NAME -->` and `<!-- end of table -->`; without it they are
printed. A result that is not kept yet has no table.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import anchors, placement
from benchmarks.run_facts import RESULTS
from benchmarks.tables import Result, make_table

PAGE = anchors.ROOT / "docs" / "simulator.md"
END = "<!-- end of table -->"
_PLACE = re.compile(rf"<!-- table: (?P<name>[a-z]+) -->\n.*?{END}", re.DOTALL)


def make_anchors_table(result: dict[str, Any]) -> str:
    """One line a point, the three modes beside each other, ours / published."""
    lines = _head("trace", "cache", "speed", *(f"{name}: reuse, TTFT ms" for name in anchors.MODES))
    points: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in result["points"]:
        points.setdefault(_place(row), {})[row["mode"]] = row
    for place, modes in points.items():
        lines.append(_line(*place, *(_say_anchor(modes[name]) for name in anchors.MODES)))
    off = [" ".join((*_place(row), row["mode"])) for row in result["points"] if not row["is_within"]]
    words = f"{len(result['points']) - len(off)} of {len(result['points'])} within the limits"
    words += f"; off: {', '.join(off)}." if off else "."
    return "\n".join(
        [*lines, "", f"Ours / published; {words} Means over {result['run']['seeds']} seeds of what has chance in it."]
    )


def _say_anchor(row: dict[str, Any]) -> str:
    ours, published = row["ours"], row["published"]
    words = f"{ours['reuse']:.3f} / {published['reuse']:.3f}, {ours['ttft_ms']:,.0f} / {published['ttft_ms']:,.0f}"
    return f"{words} ({row['ttft_error_ratio']:+.1%})"


def make_placement_table(result: dict[str, Any]) -> str:
    """One line a point: the peer's default and best mode, ours, the baselines' time to first token, what was missed."""
    lines = _head(
        "trace", "cache", "speed", "default: TTFT, e2e ms", "best mode: TTFT, p99 ms", "ours: TTFT, p99, e2e ms",
        "reuse", "busiest", *(f"{name}: TTFT ms" for name in placement.BASELINES), "missed",
    )  # fmt: skip
    for row in result["points"]:
        default, best = row["published"]["default"], row["published"]["best"]
        ours = row["policies"][placement.OURS]
        missed = [name for kind in ("verdicts", "aims") for name, kept in row[kind].items() if not kept]
        lines.append(
            _line(
                *_place(row),
                f"{default['ttft_ms']:,.0f}, {default['e2e_ms']:,.0f}",
                f"{best['mode']}: {best['ttft_ms']:,.0f}, {best['ttft_p99_ms']:,.0f}",
                f"{ours['ttft_ms']:,.0f}, {ours['ttft_p99_ms']:,.0f}, {ours['e2e_ms']:,.0f}",
                f"{ours['reuse']:.3f}",
                f"{ours['busiest_share']:.2f}",
                *(f"{row['policies'][name]['ttft_ms']:,.0f}" for name in placement.BASELINES),
                ", ".join(missed).replace("_", " "),
            )
        )
    return "\n".join([*lines, "", _say_means(result["summary"])])


def _say_means(summary: dict[str, Any]) -> str:
    parts = [
        f"{group}: TTFT {means['geometric_ttft_ms_to_best']:.2f} ({means['arithmetic_ttft_ms_to_best']:.2f}), "
        f"p99 {means['geometric_ttft_p99_ms_to_best']:.2f} ({means['arithmetic_ttft_p99_ms_to_best']:.2f})"
        for group, means in summary["means"].items()
    ]
    return (
        f"Ours to the best mode, geometric (arithmetic) mean over the points: {'; '.join(parts)}; "
        f"the aim is {placement.AIM_RATIO:.2f}. {summary['bounds_missed']} bounds and {summary['aims_missed']} aims "
        "of single points missed."
    )


def make_speed_table(result: dict[str, Any]) -> str:
    """As of any benchmark that measures time."""
    return make_table(msgspec.convert(result, Result), all_rows=True)


def _place(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["trace"], f"{row['cache_percent']}%", f"{row['speed']:g}"


def _head(*cells: str) -> list[str]:
    return [_line(*cells), _line(*("---" for _ in cells))]


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


#: Table and the result that it is made from, by name.
TABLES: dict[str, tuple[Callable[[dict[str, Any]], str], Path]] = {
    "anchors": (make_anchors_table, anchors.RESULT),
    "placement": (make_placement_table, placement.RESULT),
    "speed": (make_speed_table, RESULTS / "simulator-0.1.0.json"),
}


def fill_page(text: str, tables: dict[str, str]) -> str:
    """A page with its tables as they are to be; one that is not given stays as it is."""

    def fill(place: "re.Match[str]") -> str:
        table = tables.get(place["name"])
        return place[0] if table is None else f"<!-- table: {place['name']} -->\n{table}\n{END}"

    return _PLACE.sub(fill, text)


def make_tables(names: Sequence[str] = tuple(TABLES)) -> dict[str, str]:
    """Those whose results are kept."""
    return {
        name: make(json.loads(path.read_text(encoding="utf-8")))
        for name, (make, path) in TABLES.items()
        if name in names and path.is_file()
    }


def main() -> int:
    """Print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    options = parser.parse_args()
    tables = make_tables()
    if options.write:
        PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")
    else:
        print("\n\n".join(tables.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
