"""The report of a load: one value for JSON, one table for people. Pure but for what it is told to print on."""

import msgspec
from msgspec import Struct
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.replay.measure import Figures, Spread
from simulator.replay.run import Ending

#: Workers shown in the table; JSON has them all.
SHOWN_WORKERS = 16


class LoadReport(Struct, frozen=True, kw_only=True):
    """What was asked for and what was measured."""

    trace: str
    target: str
    api: str
    prompt_as: str
    model: str
    seed: int
    prompt_ratio: float
    time_ratio: float
    concurrency: int
    #: Of the trace, after the cut.
    requests: int
    sessions: int
    #: Share of their prompt tokens that one cache without limits would have held.
    reusable_ratio: float
    ending: Ending
    sent: int
    #: Given up by us while in flight.
    cancelled: int
    most_in_flight: int
    wall_s: float
    #: Complete answers and their tokens a second of the whole run.
    requests_per_s: float
    output_tokens_per_s: float
    figures: Figures

    def as_json(self) -> str:
        """One JSON object, indented."""
        return msgspec.json.format(msgspec.json.encode(self)).decode()


def print_report(report: LoadReport, console: Console) -> None:
    """The tables."""
    console.print(_make_counts(report))
    console.print(_make_times(report.figures))
    if report.figures.errors:
        console.print(_make_errors(report.figures))
    if report.figures.workers:
        console.print(_make_workers(report.figures))


def _make_counts(report: LoadReport) -> Table:
    figures = report.figures
    table = Table(title=f"{report.trace} to {report.target} ({report.api})", box=SIMPLE, show_header=False)
    table.add_column("what")
    table.add_column("figure", justify="right")
    for what, figure in (
        ("requests of the trace, sent, complete", f"{report.requests:,}, {report.sent:,}, {figures.complete:,}"),
        ("failed, given up, sent again", f"{figures.failed:,}, {report.cancelled:,}, {figures.retries:,}"),
        ("time taken, ended because", f"{report.wall_s:.1f} s, {report.ending.value}"),
        ("answers a second, tokens a second", f"{report.requests_per_s:.2f}, {report.output_tokens_per_s:,.1f}"),
        ("most in flight, of", f"{report.most_in_flight:,}, {report.concurrency:,}"),
        ("prompt tokens: recorded, counted", f"{figures.recorded_prompt_tokens:,}, {figures.prompt_tokens:,}"),
        ("cached tokens", f"{figures.cached_tokens:,}"),
        ("cached ratio, reusable by the recording", f"{_ratio(figures.cached_ratio)}, {report.reusable_ratio:.3f}"),
        ("answers shorter than asked, without usage", f"{figures.short_answers:,}, {figures.answers_without_usage:,}"),
        ("busiest worker / mean (requests)", _ratio(figures.busiest_over_mean)),
    ):
        table.add_row(what, figure)
    return table


def _make_times(figures: Figures) -> Table:
    table = Table(title="milliseconds", box=SIMPLE)
    table.add_column("time")
    for name in ("mean", "p50", "p90", "p99", "max"):
        table.add_column(name, justify="right")
    for name, spread in (
        ("to first token", figures.ttft),
        ("between tokens", figures.inter_token),
        ("between pieces", figures.piece_gap),
        ("end to end", figures.e2e),
        ("sent late", figures.late),
    ):
        table.add_row(name, *_cells(spread))
    return table


def _make_errors(figures: Figures) -> Table:
    table = Table(title="failures", box=SIMPLE)
    table.add_column("kind")
    table.add_column("requests", justify="right")
    table.add_column("the first", overflow="fold")
    for error in figures.errors:
        table.add_row(_plain(error.kind), f"{error.count:,}", _plain(error.example))
    return table


def _make_workers(figures: Figures) -> Table:
    table = Table(title="workers", box=SIMPLE)
    table.add_column("worker", overflow="fold")
    for name in ("requests", "share", "prompt tokens", "cached"):
        table.add_column(name, justify="right")
    for each in figures.workers[:SHOWN_WORKERS]:
        cached = each.cached_tokens / each.prompt_tokens if each.prompt_tokens else None
        cells = f"{each.requests:,}", f"{each.share_ratio:.3f}", f"{each.prompt_tokens:,}", _ratio(cached)
        table.add_row(_plain(each.worker), *cells)
    if (left := len(figures.workers) - SHOWN_WORKERS) > 0:
        table.add_row(f"and {left:,} more", "", "", "", "")
    return table


def _cells(spread: Spread | None) -> list[str]:
    if spread is None:
        return ["-"] * 5
    return [f"{ms:,.1f}" for ms in (spread.mean_ms, spread.p50_ms, spread.p90_ms, spread.p99_ms, spread.max_ms)]


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _plain(text: str) -> Text:
    """Foreign words as they are: without marks of ours, and without what moves a terminal's cursor."""
    return Text("".join(letter if letter.isprintable() else " " for letter in text))
