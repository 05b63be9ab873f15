"""Ways to break what placement expects of answers and of sessions, and what it charges for both."""

from catalogue import Mutation

OUTPUTS = ("tests/router/fleet/test_output_lengths.py",)
LIVE = ("tests/models/test_live_model.py", "tests/router/placement/test_live.py")
LEDGER = ("tests/models/test_placement_model.py", "tests/router/placement/test_ledger.py")
TERMS = ("tests/router/policy/test_policy_slow_down.py", "tests/router/policy/test_policy_terms.py")
EXPECTED = ("tests/router/placement/test_expected_output.py",)
AUDIT = ("tests/router/placement/test_audit.py",)
GLANCE = ("tests/router/policy/test_policy_glance.py",)
SHORTLIST = ("tests/models/test_shortlist_model.py",)
BOUNDS = ("tests/router/placement/test_shortlist_bounds.py",)

PLACEMENT = (
    Mutation(
        "a request is slowed for longer than its own limit lets it generate",
        "router/policy/decode.py",
        "query.decode_ratio * query.joint_ratio * self",
        "query.decode_ratio * self",
        EXPECTED,
    ),
    Mutation(
        "at a glance a request is slowed beyond its own limit",
        "router/policy/glance.py",
        "query.decode_ratio * query.joint_ratio,",
        "query.decode_ratio,",
        GLANCE,
    ),
    Mutation(
        "what the context adds to a step is never told apart",
        "router/fleet/pace.py",
        "relative = 1.0 + slope / base if",
        "relative = 1.0 if",
        ("tests/router/fleet/test_step_pace.py",),
    ),
    Mutation(
        "ranks are not told of the context's ratio",
        "router/placement/views.py",
        "        context_ratio=ratios.context,\n",
        "",
        ("tests/router/placement/test_views.py", "tests/router/placement/test_expected_output.py"),
    ),
    Mutation(
        "lengths of answers are never halved",
        "router/fleet/outputs.py",
        "        if self._answers >= HALVE_AT:\n",
        "        if self._answers >= 1e12:\n",
        OUTPUTS,
    ),
    Mutation(
        "tables of lengths are never made anew",
        "router/fleet/outputs.py",
        "        if self._fresh >= REBUILD_AFTER:\n",
        "        if self._fresh >= 1e12:\n",
        OUTPUTS,
    ),
    Mutation(
        "what two answers have in common is what one has left",
        "router/fleet/outputs.py",
        "joint = map(mul, shares, survival)",
        "joint = shares",
        OUTPUTS,
    ),
    Mutation(
        "a limit counts from where the answer is",
        "router/fleet/outputs.py",
        "limit_tokens - output_tokens)",
        "limit_tokens)",
        OUTPUTS,
    ),
    Mutation(
        "a request that goes on keeps its joint output",
        "router/placement/ledger.py",
        "        entry.output_tokens = output_tokens\n        _expect(entry, outputs)\n",
        "        entry.output_tokens = output_tokens\n",
        LEDGER,
    ),
    Mutation(
        "joint output is not counted before the first token",
        "router/placement/ledger.py",
        "        self.uncached_tokens += entry.uncached_tokens\n        self._count_room(entry, 1)\n",
        "        self.uncached_tokens += entry.uncached_tokens\n        self.open_tokens += entry.room_tokens\n",
        LEDGER,
    ),
    Mutation(
        "the end of a request that generates takes back what was prefilled since the last one",
        "router/placement/ledger.py",
        "            account.remove_decode(reservation)\n",
        "            account.settle(now_s)\n            account.remove_decode(reservation)\n",
        LEDGER,
    ),
    Mutation(
        "a session pauses by the end of any request",
        "router/placement/live.py",
        "        if live is not None and live.placed_by == request_id and not live.is_paused:\n",
        "        if live is not None and not live.is_paused:\n",
        LIVE,
    ),
    Mutation(
        "a paused session that goes stays in the sums",
        "router/placement/live.py",
        "        if live.is_paused:\n            self._count_paused(live, -1)\n",
        "",
        LIVE,
    ),
    Mutation(
        "a pause that ends by itself does not count",
        "router/placement/live.py",
        "                self._record_pause(now_s - live.last_used_s, 0.0)\n",
        "                pass\n",
        LIVE,
    ),
    Mutation(
        "returns are not forgotten",
        "router/placement/live.py",
        "        if self._returns >= HALVE_AT:\n",
        "        if self._returns >= 1e12:\n",
        LIVE,
    ),
    Mutation(
        "a request is slowed by others and slows none",
        "router/policy/decode.py",
        "rank.joint_context_tokens + prompt_tokens * rank.joint_output_tokens",
        "rank.joint_context_tokens",
        TERMS,
    ),
    Mutation(
        "a session expects itself back at its home",
        "router/policy/returns.py",
        "        if query.pauses_at_home and rank.target == query.home:\n",
        "        if False:\n",
        (*TERMS, *EXPECTED),
    ),
    Mutation(
        "one that returns meets the whole answer",
        "router/policy/returns.py",
        "generating_s)) / 2\n",
        "generating_s))\n",
        TERMS,
    ),
    Mutation(
        "a prefill holds up whatever others queued",
        "router/placement/views.py",
        "served_requests=open_requests + foreign.running_requests",
        "served_requests=open_requests + foreign_requests",
        EXPECTED,
    ),
    Mutation(
        "regret leaves out what a miss holds up",
        "router/placement/placer.py",
        "self._bounded.reuse_weight + running.served_beside * self._bounded.stall_weight",
        "self._bounded.reuse_weight",
        AUDIT,
    ),
    Mutation(
        "answers that broke off are learned from",
        "router/placement/placer.py",
        "        if end.outcome is not Outcome.DONE or output_tokens is None:\n",
        "        if output_tokens is None:\n",
        EXPECTED,
    ),
    Mutation(
        "a policy may empty the chooser's own list",
        "router/placement/chooser.py",
        "query, tuple(found.views), self._seed",
        "query, found.views, self._seed",
        ("tests/router/placement/test_bad_input.py",),
    ),
    Mutation(
        "a glance lets more be pushed out than a cache holds",
        "router/policy/glance.py",
        "cost_s += token_s * evicted * min(new_tokens - free_tokens, evictable_tokens)",
        "cost_s += token_s * evicted * (new_tokens - free_tokens)",
        GLANCE,
    ),
    Mutation(
        "a glance counts a prompt that pushes nothing out as if the cache were full",
        "router/policy/glance.py",
        "max(0, capacity - rank.resident_tokens) if",
        "0 if",
        GLANCE,
    ),
    Mutation(
        "a glance meets sessions that return in the whole answer",
        "router/policy/glance.py",
        "query.decode_ratio * query.joint_output_tokens / 2",
        "query.decode_ratio * query.joint_output_tokens",
        GLANCE,
    ),
    Mutation(
        "ranks that would be tied with the best are passed over",
        "router/placement/shortlist.py",
        "bound_s = total_s + find_window_s(total_s)",
        "bound_s = total_s",
        SHORTLIST,
    ),
    Mutation(
        "of what is expected elsewhere nothing can keep a rank in question",
        "router/placement/question.py",
        "return max(most, tokens)",
        "return most",
        BOUNDS,
    ),
    Mutation(
        "an order serves queries that cost less than its own",
        "router/placement/groups.py",
        "all(least <= asked <= least * MAX_EXCESS for",
        "all(asked <= least * MAX_EXCESS for",
        BOUNDS,
    ),
    Mutation(
        "of ranks that look alike the first wins the tie",
        "router/placement/shortlist.py",
        "        target = pick_hashed(self._query.request_id, members, self._seed)\n",
        "        target = next(iter(members))\n",
        SHORTLIST,
    ),
    Mutation(
        "regret knows only the ranks that were looked at",
        "router/placement/decision.py",
        "if self.sheet is None or added_s <= 0:",
        "if added_s < 1e9:",
        (*AUDIT, "tests/router/placement/test_decision.py"),
    ),
)
