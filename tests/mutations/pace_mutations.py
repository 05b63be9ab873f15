"""Ways to break what is learned of the speed of engines."""

from catalogue import Mutation

SPANS = ("tests/router/placement/test_spans.py",)
HTTP = ("tests/http/test_told_paces.py",)
SIMULATED = ("tests/simulator/fleet/test_learned_paces.py",)
SPANS_FILE = "router/placement/spans.py"
LEARNING = "router/placement/learning.py"

PACES = (
    Mutation(
        "the end of a request that failed teaches the pace",
        LEARNING,
        "if end.outcome is Outcome.DONE and end.answers == 1",
        "if end.answers == 1",
        SPANS,
    ),
    Mutation(
        "steps of several answers are counted as those of one",
        LEARNING,
        "end.outcome is Outcome.DONE and end.answers == 1",
        "end.outcome is Outcome.DONE",
        (*SPANS, *HTTP),
    ),
    Mutation(
        "a request that was tried elsewhere teaches the pace",
        "router/placement/placer.py",
        "is_clean = not arrival.excluded and",
        "is_clean =",
        SPANS,
    ),
    Mutation(
        "the first token of several prompts is taken for the end of their prefill",
        "router/placement/charge.py",
        " and arrival.prompts == 1",
        "",
        (*SPANS, *HTTP),
    ),
    Mutation(
        "the first token of several prompts beside others bounds their prefill",
        "router/placement/placer.py",
        " and arrival.prompts == 1",
        "",
        SPANS,
    ),
    Mutation(
        "the proxy does not say how many prompts there are",
        "router/proxy/asked.py",
        "        prompts=asked.prompts,\n",
        "",
        HTTP,
    ),
    Mutation(
        "requests of a rank that is gone are watched for ever",
        "router/placement/placer.py",
        "                self._learning.forget(target)\n",
        "                pass\n",
        SPANS,
    ),
    Mutation(
        "the proxy does not say that an answer came whole",
        "router/proxy/relay.py",
        "        self._witness.see_whole_answer()\n",
        "        self._witness.see_first_byte()\n",
        HTTP,
    ),
    Mutation(
        "the proxy does not say of how many answers it counted the tokens",
        "router/proxy/attempt.py",
        "                answers=self._asked.choices,\n",
        "",
        HTTP,
    ),
    Mutation(
        "a slow client makes its engine slow",
        SPANS_FILE,
        "rank, ended_s=good.whole_at_s)",
        "rank, ended_s=now_s)",
        SPANS,
    ),
    Mutation(
        "a client that holds its stream up makes its engine slow",
        LEARNING,
        " and end.held_s <= MAX_HELD_RATIO * (now_s - first_s)",
        "",
        SPANS,
    ),
    Mutation(
        "the proxy does not say for how long a stream waited for its client",
        "router/proxy/relay.py",
        "        self._witness.see_ready_client()\n",
        "",
        ("tests/http/test_slow_clients.py",),
    ),
    Mutation(
        "an engine's count of cached tokens is passed over",
        SPANS_FILE,
        "        if good.cached_tokens is not None:\n",
        "        if False:\n",
        SPANS,
    ),
    Mutation(
        "a request beside others has the whole time to itself",
        SPANS_FILE,
        "        if requests == 1:\n",
        "        if requests >= 1:\n",
        (*SPANS, *SIMULATED),
    ),
    Mutation(
        "what one took that is alone is only a bound",
        SPANS_FILE,
        "if most is own or (most is not None",
        "if own_s > measured_s or (most is not None",
        SPANS,
    ),
    Mutation(
        "nothing bounds a pace from below",
        SPANS_FILE,
        "        if requests == 1:\n            return own\n",
        "        if requests == 1:\n            return own\n        if requests > 1:\n            return None\n",
        SPANS,
    ),
    Mutation(
        "waiting for room in the cache counts as slowness",
        SPANS_FILE,
        "            steps = output_tokens\n",
        "            steps = stay.output_tokens + requests\n",
        SPANS,
    ),
    Mutation(
        "work of others counts as slowness",
        SPANS_FILE,
        "        if stay.has_foreign or (rank is",
        "        if False and (rank is",
        SPANS,
    ),
    Mutation(
        "what a rank gives in a window is not looked at",
        SPANS_FILE,
        "        if window.requests > 1:\n",
        "        if window.requests > 1_000_000:\n",
        SPANS,
    ),
    Mutation(
        "requests that only end in a window are counted into it",
        SPANS_FILE,
        "            if stay.is_clean and entry.reserved_at_s >= busy.window.begun_s:\n",
        "            if stay.is_clean:\n",
        SPANS,
    ),
    Mutation(
        "each request of a window takes steps of its own",
        SPANS_FILE,
        "self.tokens / self.peak, self",
        "float(self.tokens), self",
        SPANS,
    ),
    Mutation(
        "a first token beside others teaches nothing",
        SPANS_FILE,
        "self._learn(busy, stay, Work(stay.prefill_s), rank, ended_s=now_s)",
        "pass",
        SPANS,
    ),
    Mutation(
        "answers too short to tell anything teach the pace",
        SPANS_FILE,
        "    return stay.is_clean and is_long\n",
        "    return stay.is_clean\n",
        SPANS,
    ),
    Mutation(
        "prefill and steps always learn alike",
        "router/fleet/pace.py",
        "    return max(share, 1.0 / (1.0 + known))\n",
        "    return 1.0\n",
        (*SPANS, *SIMULATED),
    ),
    Mutation(
        "an outlier of prefill counts as much as it is off",
        "router/fleet/pace.py",
        "        bound = MAX_LOG_STEP if self.is_settled else MAX_LOG_RATIO\n",
        "        bound = 1e9\n",
        (*SPANS, "tests/router/fleet/test_fleet_pace.py"),
    ),
    Mutation(
        "what agrees with the pace does not count",
        SPANS_FILE,
        "        elif not paces.is_settled:\n",
        "        elif False:\n",
        SPANS,
    ),
)
