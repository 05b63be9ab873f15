"""Ways to break what keeps a fleet usable: breakers."""

from catalogue import Mutation

BREAKER_TESTS = ("tests/router/fleet/test_breaker.py", "tests/models/test_breaker_machine.py")
FAILING = ("tests/router/placement/test_failing_ranks.py",)
BREAKER = "router/fleet/breaker.py"
BREAKERS = "router/placement/breakers.py"
ELIGIBLE = "router/placement/eligible.py"

FLEET = (
    Mutation(
        "a full queue is a failure",
        BREAKER,
        "        if verdict is Verdict.FAILED:\n",
        "        if verdict in {Verdict.FAILED, Verdict.FULL}:\n",
        BREAKER_TESTS,
    ),
    Mutation(
        "a mistake of a client is a failure",
        BREAKER,
        "        if verdict is Verdict.FAILED:\n",
        "        if verdict in {Verdict.FAILED, Verdict.NEUTRAL}:\n",
        BREAKER_TESTS,
    ),
    Mutation(
        "a half-open rank gets as many requests as come",
        BREAKER,
        "self.trials < self._settings.trials)",
        "self.trials < 1_000)",
        (*BREAKER_TESTS, *FAILING),
    ),
    Mutation(
        "a probe closes a breaker before its time",
        BREAKER,
        "self.find_state(now_s) is BreakerState.HALF_OPEN and not self.trials",
        "not self.trials",
        BREAKER_TESTS,
    ),
    Mutation(
        "a probe closes no breaker",
        BREAKER,
        "            self._close()\n            self._on_probation = True\n",
        "            pass\n",
        (*BREAKER_TESTS, *FAILING),
    ),
    Mutation(
        "a trial is never given back",
        BREAKERS,
        "            breaker.trials -= 1\n",
        "            pass\n",
        ("tests/models/test_breaker_machine.py",),
    ),
    Mutation(
        "an open breaker bars nobody",
        ELIGIBLE,
        "_exclude(arrival, at_limit | barred)",
        "_exclude(arrival, at_limit)",
        FAILING,
    ),
    Mutation(
        "a full rank is refused though it is the only one",
        ELIGIBLE,
        "(_exclude(left_out, full), left_out) if full",
        "(_exclude(left_out, full),) if full",
        FAILING,
    ),
    Mutation(
        "a failing rank keeps its credit",
        ELIGIBLE,
        "        arrival = _without_credit(arrival, doubted)\n",
        "        pass\n",
        FAILING,
    ),
    Mutation(
        "a failing rank stays the home",
        "router/placement/placer.py",
        "is_cut or (home is not None and home.target in doubted)",
        "is_cut",
        FAILING,
    ),
)
