"""Ways to break what placement expects of answers and of sessions, and what it charges for both."""

from catalogue import Mutation

OUTPUTS = ("tests/router/fleet/test_output_lengths.py",)
LIVE = ("tests/models/test_live_model.py", "tests/router/placement/test_live.py")
LEDGER = ("tests/models/test_placement_model.py", "tests/router/placement/test_ledger.py")
TERMS = ("tests/router/policy/test_policy_slow_down.py", "tests/router/policy/test_policy_terms.py")
EXPECTED = ("tests/router/placement/test_expected_output.py",)
AUDIT = ("tests/router/placement/test_audit.py",)
PRICING = ("tests/models/test_pricing_model.py",)
NATIVE = ("tests/router/policy/test_policy_native.py",)

PLACEMENT = (
    Mutation(
        "a request is slowed for longer than its own limit lets it generate",
        "router/policy/decode.py",
        "query.decode_ratio * query.joint_ratio * self",
        "query.decode_ratio * self",
        (*EXPECTED, *NATIVE),
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
        "what is done of a prefill stays in the sum of its rank",
        "router/placement/prefill_queue.py",
        "            self._remaining_units += _to_units(left_s) - _to_units(before_s)\n",
        "",
        ("tests/router/placement/test_prefill_queue.py", *LEDGER),
    ),
    Mutation(
        "a prefill that is overdue is worked on again",
        "router/placement/prefill_queue.py",
        "        if entry.remaining_prefill_s > entry.prefill_s * OVERDUE_RATIO:\n",
        "        if entry.remaining_prefill_s:\n",
        ("tests/router/placement/test_prefill_queue.py",),
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
        "        if live.is_paused:\n            sums.paused -= 1\n            sums.paused_tokens -= live.tokens\n",
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
        "self._weights.reuse + running.served_beside * self._weights.stall",
        "self._weights.reuse",
        AUDIT,
    ),
    Mutation(
        "answers that broke off are learned from",
        "router/placement/placer.py",
        "        if end.outcome is Outcome.DONE and output_tokens is not None:\n",
        "        if output_tokens is not None:\n",
        EXPECTED,
    ),
    Mutation(
        "a policy may empty the chooser's own list",
        "router/placement/chooser.py",
        "question.query, tuple(views), self._seed",
        "question.query, views, self._seed",
        ("tests/router/placement/test_bad_input.py",),
    ),
    Mutation(
        "a session that leaves its tokens does not change how likely such tokens are asked for",
        "router/fleet/ages.py",
        """        \"\"\"A request left its tokens on the rank.\"\"\"
        self._asked = None
""",
        """        \"\"\"A request left its tokens on the rank.\"\"\"
""",
        ("tests/router/fleet/test_reuse_ages.py",),
    ),
    Mutation(
        "a rank that changed is priced as it was",
        "router/placement/standings.py",
        "        if pool is not None and pool.table is not None:\n",
        "        if False:\n",
        PRICING,
    ),
    Mutation(
        "a rank that left its pool can still be chosen",
        "router/placement/standings.py",
        "            del pool.targets[target]\n            pool.table = None\n",
        "            del pool.targets[target]\n",
        PRICING,
    ),
    Mutation(
        "ranks with other tiers are priced as if they had none",
        "router/placement/pricing.py",
        "apart = [*question.options]",
        "apart = []",
        PRICING,
    ),
    Mutation(
        "of large pools of a leg the holders of the prompt are passed over",
        "router/placement/pairs.py",
        "(*choice.costs.targets, *filter(leg.allows, leg.find_holders()))",
        "choice.costs.targets",
        ("tests/router/placement/test_pairs.py",),
    ),
    Mutation(
        "work of other routers is no wait",
        "router/placement/ledger.py",
        "for told, at_s in partials if told is not None",
        "for told, at_s in ()",
        PRICING,
    ),
    Mutation(
        "a home counts as the only choice, whatever is expected elsewhere",
        "router/placement/pricing.py",
        "{**question.expected.find_most(2), home: question.expected.find(home)}",
        "{home: question.expected.find(home)}",
        ("tests/router/placement/test_pricing.py",),
    ),
)

PRICER = "router/policy/pricing/pricer.cpp"
TERMS_CODE = "router/policy/pricing/terms.cpp"

NATIVE_PRICING = (
    Mutation(
        "native: a request is slowed beyond its own limit",
        TERMS_CODE,
        "return query_.decode_ratio * query_.joint_ratio * (",
        "return query_.decode_ratio * (",
        NATIVE,
    ),
    Mutation(
        "native: more is pushed out than a cache holds",
        TERMS_CODE,
        "least(most<Count>(0, added - free), rank.capacity_tokens)",
        "most<Count>(0, added - free)",
        NATIVE,
    ),
    Mutation(
        "native: sessions that return meet the whole answer",
        TERMS_CODE,
        "* generating_s)) / 2.0;",
        "* generating_s));",
        NATIVE,
    ),
    Mutation(
        "native: a product is taken in another order",
        TERMS_CODE,
        "pair_s * static_cast<double>(query_.prompt_tokens) / 2.0",
        "pair_s * (static_cast<double>(query_.prompt_tokens) / 2.0) * 1.0000000000000002",
        NATIVE,
    ),
    Mutation(
        "native: costs are summed one after the other",
        "router/policy/pricing/arithmetic.hpp",
        "if (low != 0.0) partials_[kept++] = low;",
        "",
        NATIVE,
    ),
    Mutation(
        "native: half-way between two sums the rest does not decide",
        "router/policy/pricing/arithmetic.hpp",
        "if (twice == away - high) high = away;",
        "",
        NATIVE,
    ),
    Mutation(
        "native: a report of others counts for ever",
        TERMS_CODE,
        "return age_s > counts_for_s ? 0.0 : most",
        "return most",
        NATIVE,
    ),
    Mutation(
        "native: a cost that is no number is compared",
        "router/policy/pricing/market.cpp",
        "is_broken_ = is_broken_ || !std::isfinite(total_s);",
        "is_broken_ = !std::isfinite(total_s);",
        NATIVE,
    ),
    Mutation(
        "native: figures beyond what is exact are reckoned with",
        "router/policy/pricing/read.cpp",
        "return read_fields(view, wholes, rank) && fits;",
        "return read_fields(view, wholes, rank) || true;",
        NATIVE,
    ),
    Mutation(
        "native: what lay on a rank is remembered",
        "router/policy/pricing/marks.cpp",
        "    rank->overlap = {};\n",
        "",
        NATIVE,
    ),
    Mutation(
        "native: a home is alone that others are tied with",
        PRICER,
        "window_.bound_s(market[0].total_s);",
        "market[0].total_s;",
        NATIVE,
    ),
    Mutation(
        "native: a home is alone though others hold as much",
        PRICER,
        "pricing.least_s(find_most_elsewhere(question), least",
        "pricing.least_s(0, least",
        NATIVE,
    ),
    Mutation(
        "native: of a large fleet only the cheapest is told of",
        PRICER,
        "market.find_cheapest(few)",
        "market.find_cheapest(1)",
        NATIVE,
    ),
    Mutation(
        "native: a tie does not go home",
        PRICER,
        "return *market.home();\n",
        "return tied.front();\n",
        NATIVE,
    ),
)
