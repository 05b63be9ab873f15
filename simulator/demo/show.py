"""What the demo prints: its plan, its table, one decision in words."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from simulator.demo.agreement import Agreement, Figure, Noise, Standing, Verdict, rank
from simulator.demo.check import CheckResult
from simulator.demo.plan import DemoPlan
from simulator.demo.report import Summary, table_rows

FIGURE_NAMES = {
    Figure.TTFT: "mean TTFT, ms",
    Figure.E2E: "mean e2e, ms",
    Figure.CACHED: "cached",
    Figure.BUSIEST: "busiest",
}
#: Candidates shown with a decision.
SHOWN_CANDIDATES = 8


def show_plan(console: Console, plan: DemoPlan) -> None:
    """Say what will be sent to what."""
    agents = sum(1 for session in plan.sessions for _ in session.walk()) - len(plan.sessions)
    largest = max(turn.prompt_tokens for session in plan.sessions for turn in session.turns)
    console.print(
        f"{len(plan.sessions)} sessions and {agents} sub-agents, {plan.requests} requests a policy, "
        f"longest prompt about {largest:,} tokens; {plan.source}",
        markup=False,
        soft_wrap=True,
    )
    console.print(
        f"{plan.replicas} replicas x {plan.ranks} ranks, {plan.forward} forward, "
        f"{plan.pool_pages:,} pages of {plan.page_tokens} tokens a rank"
    )


def show_table(console: Console, summaries: Sequence[Summary]) -> None:
    """Print the one table, a column a policy."""
    table = Table(title="the same sessions under each policy", title_justify="left")
    table.add_column("", no_wrap=True)
    for summary in summaries:
        table.add_column(summary.policy, justify="right", overflow="fold")
    for label, cells in table_rows(summaries):
        table.add_row(label, *cells)
    console.print(table)


def show_check(console: Console, result: CheckResult) -> None:
    """Print what was measured beside what was simulated, the orders of both, and whether they agree."""
    title = "measured, and simulated with half its spread"
    table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for standing in result.live:
        table.add_column(standing.policy, justify="right", no_wrap=True)
    for figure, name in FIGURE_NAMES.items():
        form = "{:,.0f}" if figure in {Figure.TTFT, Figure.E2E} else "{:.3f}"
        table.add_row(name, *(form.format(standing.read(figure)) for standing in result.live))
        pairs = zip(result.simulated, result.spreads, strict=True)
        cells = (f"{form} ±{form}".format(mean.read(figure), spread.read(figure) / 2) for mean, spread in pairs)
        table.add_row("  simulated", *cells, end_section=True)
    console.print(table)
    for figure, name in FIGURE_NAMES.items():
        measured, simulated = (order_words(each, figure, result.noise) for each in (result.live, result.simulated))
        console.print(f"{name}, best first", highlight=False)
        console.print(f"  measured   {measured}", highlight=False, soft_wrap=True)
        console.print(f"  simulated  {simulated}", highlight=False, soft_wrap=True)
    console.print(agreement_words(result.agreement), highlight=False, soft_wrap=True)


def order_words(standings: Sequence[Standing], figure: Figure, noise: Noise) -> str:
    """The policies from the best to the worst: `a = b > c`, where `=` joins neighbours that are tied."""
    ordered = rank(standings, figure)
    words = [ordered[0].policy]
    for before, after in pairwise(ordered):
        words += ["=" if noise.ties(figure, before, after) else ">", after.policy]
    return " ".join(words)


def agreement_words(agreement: Agreement) -> str:
    """What the comparison comes to, in a line, and a line for each pair that stands the other way round."""
    counts = {verdict: len(agreement.select(verdict)) for verdict in Verdict}
    told = f"{counts[Verdict.SAME]} pairs in the same order, {counts[Verdict.TIED]} too close to tell"
    opposed = [
        f"  {FIGURE_NAMES[pair.figure]}: {pair.better} is better than {pair.worse} simulated, and worse measured"
        for pair in agreement.select(Verdict.OPPOSED)
    ]
    if agreement.holds:
        return f"The orders agree: {told}."
    if not opposed:
        return f"No two policies can be told apart: {told}."
    return "\n".join([f"The orders differ: {told}, {len(opposed)} the other way round:", *opposed])


def describe_decision(record: Mapping[str, Any]) -> str:
    """An answer of `/v1/decisions/{request_id}` in words: the reason, then the cheapest candidates."""
    inner = record.get("decision")
    decision = inner if isinstance(inner, Mapping) else record
    lines = [f"reason:  {decision.get('reason', 'not given')}"]
    actual, accuracy = record.get("actual_cached_tokens"), record.get("accuracy")
    predicted = decision.get("predicted_cached_tokens")
    lines.append(f"cached tokens:  {predicted} predicted, {actual} reported by the engine ({accuracy})")
    candidates = [item for item in decision.get("candidates") or () if isinstance(item, Mapping)]
    candidates.sort(key=lambda item: float(item.get("total_s") or 0.0))
    lines.extend(_describe_candidate(item) for item in candidates[:SHOWN_CANDIDATES])
    return "\n".join(lines)


def _describe_candidate(item: Mapping[str, Any]) -> str:
    target = item.get("target")
    name = f"{target.get('worker')} rank {target.get('dp_rank')}" if isinstance(target, Mapping) else str(target)
    terms = item.get("terms")
    pairs = terms.items() if isinstance(terms, Mapping) else ()
    parts = ", ".join(f"{term} {float(seconds) * 1000:.1f}" for term, seconds in pairs)
    total_ms = float(item.get("total_s") or 0.0) * 1000
    return f"  {name}: {total_ms:.1f} ms, {item.get('overlap_tokens')} tokens resident ({parts})"
