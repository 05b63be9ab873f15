"""What the demo prints: its plan, its table, one decision in words."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from simulator.demo.plan import DemoPlan
from simulator.demo.report import Summary, table_rows

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
        table.add_column(summary.policy, justify="right")
    for label, cells in table_rows(summaries):
        table.add_row(label, *cells)
    console.print(table)


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
