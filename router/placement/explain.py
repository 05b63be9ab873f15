"""Why a request went where it went, in words that an operator understands without the code."""

import msgspec

from router.policy.base import CandidateCost, Choice, PlacementQuery
from router.policy.ties import TIE_RATIO, TIE_S, find_window_s
from wire.ids import Target


class Telling(msgspec.Struct, frozen=True, kw_only=True):
    """What the words of a decision are made from, once someone asks for them; fields as in `explain_choice`."""

    query: PlacementQuery
    choice: Choice
    eligible_count: int = 1
    unused_home: Target | None = None
    can_go_home: bool = False
    is_failing: bool = False
    is_pinned: bool = False

    def tell(self) -> str:
        """In words."""
        return explain_choice(
            self.query,
            self.choice,
            eligible_count=self.eligible_count,
            unused_home=self.unused_home,
            can_go_home=self.can_go_home,
            is_failing=self.is_failing,
            is_pinned=self.is_pinned,
        )


def explain_choice(
    query: PlacementQuery,
    choice: Choice,
    *,
    eligible_count: int = 1,
    unused_home: Target | None = None,
    can_go_home: bool = False,
    is_failing: bool = False,
    is_pinned: bool = False,
) -> str:
    """One sentence for a decision.

    Args:
        query: What was placed.
        choice: What the policy answered.
        eligible_count: Ranks that could be chosen, looked at or not.
        unused_home: The session's home, where it does not count as one.
        can_go_home: It could be chosen all the same: the conversation was cut, and its home is of little use.
        is_failing: Requests fail there of late, and what it holds counts for nothing.
        is_pinned: It rests on state inside one engine.
    """
    if is_pinned:
        return f"{choice.target} has the state that it rests on; it can go nowhere else"
    words = choice.reason or _explain_costs(query, choice, eligible_count)
    if unused_home is not None and is_failing:
        words = f"requests fail on home {unused_home}, what it holds does not count; {words}"
    elif unused_home is not None and can_go_home:
        words = f"the conversation was cut, home {unused_home} counts no more than others; {words}"
    elif unused_home is not None:
        words = f"home {unused_home} cannot be chosen; {words}"
    return "; ".join((words, *choice.notes))


def _explain_costs(query: PlacementQuery, choice: Choice, eligible_count: int) -> str:
    costs = choice.costs
    at = costs.targets.index(choice.target)
    chosen = costs.candidate(at)
    others = [place for place in range(len(costs)) if place != at]
    if not others:
        return _explain_alone(query, chosen, eligible_count)
    runner_up = costs.candidate(min(others, key=costs.totals_s.__getitem__))
    if chosen.is_home:
        return f"kept at home: {_compare(chosen, runner_up, query, is_kept=True)}"
    if costs.home in costs.targets:
        home = costs.candidate(costs.targets.index(costs.home))
        return f"left home {home.target}: {_compare(home, chosen, query, is_kept=False)}"
    if choice.tied_count > 1:
        return f"{_describe_holding(chosen, query)}; {_describe_tie(chosen, min(costs.totals_s), choice.tied_count)}"
    return f"{_describe_holding(chosen, query)}; {_describe_lead(chosen, runner_up)}"


def _explain_alone(query: PlacementQuery, chosen: CandidateCost, eligible_count: int) -> str:
    """A rank beside which no other was looked at."""
    holding = _describe_holding(chosen, query)
    if eligible_count <= 1:
        return f"the only rank that can be chosen; {holding}"
    return f"{holding}; none of the other ranks ({eligible_count - 1:,}) can cost as little"


def _compare(stay: CandidateCost, move: CandidateCost, query: PlacementQuery, *, is_kept: bool) -> str:
    """Staying against moving, each with what it costs, and what decides between them."""
    moved_tokens = query.prompt_tokens - max(move.overlap_tokens, move.predicted_overlap_tokens)
    where = "elsewhere" if is_kept else f"on {move.target}"
    wait_s, prefill_s = stay.terms.get("wait", 0.0), move.terms.get("reuse", 0.0)
    verb = "against"
    if (wait_s < prefill_s) == is_kept:
        verb = "beats" if is_kept else "costs more than"
    by_name = _find_largest_lead(stay, move) if is_kept else _find_largest_lead(move, stay)
    by_other = "" if by_name in {None, "wait", "reuse"} else f", mostly for {by_name}"
    return (
        f"{_describe_holding(stay, query)}; waiting {_seconds(wait_s)} there {verb} "
        f"re-prefilling {_tokens(moved_tokens)} tokens {where} ({_seconds(prefill_s)}); "
        f"in all {_seconds(stay.total_s)} against {_seconds(move.total_s)}{by_other}"
    )


def _describe_holding(entry: CandidateCost, query: PlacementQuery) -> str:
    if entry.overlap_tokens:
        words = f"holds {entry.overlap_tokens:,} of {query.prompt_tokens:,} prompt tokens"
    else:
        words = f"holds none of {query.prompt_tokens:,} prompt tokens"
    if entry.predicted_overlap_tokens > entry.overlap_tokens:
        words += f", {entry.predicted_overlap_tokens:,} expected from requests being prefilled there"
    return words


def _describe_tie(chosen: CandidateCost, lowest_s: float, tied_count: int) -> str:
    """Costs too close to tell apart: how close, since the chosen rank need not have the lowest."""
    window_s = find_window_s(lowest_s)
    window = _seconds(window_s) if window_s <= TIE_S else f"{TIE_RATIO:.0%} ({_seconds(window_s)})"
    others = "1 other" if tied_count == 2 else f"{tied_count - 1} others"
    return (
        f"costs {_seconds(chosen.total_s)} in all, within {window} of the lowest as {others}; "
        "picked among them by the request's hash"
    )


def _describe_lead(chosen: CandidateCost, runner_up: CandidateCost) -> str:
    by_name = _find_largest_lead(chosen, runner_up)
    cost = f"costs {_seconds(chosen.total_s)} in all, the next best {runner_up.target} {_seconds(runner_up.total_s)}"
    return cost if by_name is None else f"{cost}, mostly for {by_name}"


def _find_largest_lead(chosen: CandidateCost, other: CandidateCost) -> str | None:
    """The term in which a rank is cheaper than another by most."""
    leads = {name: other.terms.get(name, 0.0) - cost_s for name, cost_s in chosen.terms.items()}
    return max(leads, key=lambda name: leads[name], default=None)


def _seconds(value_s: float) -> str:
    return f"{value_s * 1e3:.0f} ms" if abs(value_s) < 0.0995 else f"{value_s:.1f} s"


def _tokens(count: int) -> str:
    return f"{count // 1_000}k" if count >= 10_000 else f"{count:,}"
