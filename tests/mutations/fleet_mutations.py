"""Ways to break what keeps a fleet usable: breakers, and who belongs to it."""

from catalogue import Mutation

BREAKER_TESTS = ("tests/router/fleet/test_breaker.py", "tests/models/test_breaker_machine.py")
FAILING = ("tests/router/placement/test_failing_ranks.py",)
BREAKER = "router/fleet/breaker.py"
BREAKERS = "router/placement/breakers.py"
ELIGIBLE = "router/placement/eligible.py"
REGISTRY_TESTS = ("tests/router/control/test_registry.py", "tests/models/test_registry_machine.py")
CHANGES = ("tests/http/test_fleet_changes.py",)
ALLOWED = ("tests/router/control/test_allow_list.py",)
REGISTRATION = ("tests/http/test_registration.py",)
KUBERNETES = ("tests/http/test_kubernetes.py",)
SLOW = ("tests/http/test_slow_clients.py",)
OUTAGES = ("tests/http/test_outages.py",)
ADMIT = "router/proxy/admit.py"

FLEET = (
    Mutation(
        "answers of ranks that fail are compared with nothing",
        "router/placement/tell.py",
        "reused.overlap_tokens or withheld.confirmed_tokens",
        "reused.overlap_tokens",
        FAILING,
    ),
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
        "            home.target in doubted\n            or is_broken(",
        "            is_broken(",
        FAILING,
    ),
    Mutation(
        "a list only adds",
        "router/control/registry.py",
        "            told = {entry.worker: entry for entry in word.entries}\n",
        "            told = told | {entry.worker: entry for entry in word.entries}\n",
        REGISTRY_TESTS,
    ),
    Mutation(
        "one URL may be two workers",
        "router/control/registry.py",
        "(owner := owners.get(entry.address)) is not None",
        "(owner := owners.get(entry.worker)) is not None",
        REGISTRY_TESTS,
    ),
    Mutation(
        "a worker that drains gets new requests",
        "router/control/worker.py",
        "                draining=self.is_draining,\n",
        "",
        CHANGES,
    ),
    Mutation(
        "a worker that is gone does not finish what it has",
        "router/control/fleet.py",
        "self._client is None or not worker.is_usable or self._is_idle(worker)",
        "True",
        CHANGES,
    ),
    Mutation(
        "the watch of a worker that left goes on",
        "router/control/fleet.py",
        "            task.cancel()\n            self._ending.add(task)\n",
        "            self._ending.add(task)\n",
        CHANGES,
    ),
    Mutation(
        "counters of workers that left stay",
        "router/control/fleet.py",
        "        self._on_left(worker.targets)\n",
        "",
        CHANGES,
    ),
    Mutation(
        "models that nobody serves stay known",
        "router/control/prompt_roll.py",
        "        self._prompts.keep_only(served)\n",
        "",
        CHANGES,
    ),
    Mutation(
        "a form that nobody goes by is kept",
        "router/control/prompt_roll.py",
        "tries_all=not goes_by_it",
        "tries_all=False",
        ("tests/http/test_prompts_that_change.py",),
    ),
    Mutation(
        "a wide network lets loopback and metadata in",
        "router/control/allow_list.py",
        "address in network and _lets_in(network, special)",
        "address in network",
        ALLOWED,
    ),
    Mutation(
        "only the first address of a name is looked at",
        "router/control/allow_list.py",
        "        for text in addresses:\n",
        "        for text in addresses[:1]:\n",
        ALLOWED,
    ),
    Mutation(
        "an address in the clothes of IPv6 is another one",
        "router/control/allow_list.py",
        "    return inner or address\n",
        "    return address\n",
        ALLOWED,
    ),
    Mutation(
        "a name is resolved again for every connection",
        "router/control/registrations.py",
        '        if parts.scheme == "https" and self._checks_certificates:\n',
        "        if parts.scheme:\n",
        REGISTRATION,
    ),
    Mutation(
        "whoever reaches a router without keys registers workers",
        "router/control/worker_routes.py",
        "find_principal(request.scope) is OPERATOR",
        "find_principal(request.scope) is None",
        REGISTRATION,
    ),
    Mutation(
        "a registered worker names event sockets anywhere",
        "router/control/worker.py",
        "not self.entry.is_guest or host ==",
        "True or host ==",
        REGISTRATION,
    ),
    Mutation(
        "after 410 the watch goes on",
        "router/control/kubernetes.py",
        "                if seen is Seen.GONE:\n                    return False\n",
        "                if seen is Seen.GONE:\n                    return True\n",
        KUBERNETES,
    ),
    Mutation(
        "an endpoint that terminates is like any other",
        "router/control/endpoint_slices.py",
        "bool(conditions.terminating))",
        "False)",
        KUBERNETES,
    ),
    Mutation(
        "a router that is told to end stays ready",
        "router/control/readiness.py",
        "        return not self.is_leaving\n",
        "        return True\n",
        ("tests/http/test_shutdown.py",),
    ),
    Mutation(
        "clients that read nothing open the breaker",
        "router/proxy/interrupt.py",
        "        if not self._client.is_full:\n            self._strike(",
        "        if not self._is_over:\n            self._strike(",
        ("tests/http/test_breakers.py",),
    ),
    Mutation(
        "clients' mistakes told with status 200 open the breaker",
        "router/proxy/relay.py",
        "        is_failure = judge_status(told_status) is Verdict.FAILED\n",
        "        is_failure = judge_status(told_status) is not Verdict.GOOD\n",
        ("tests/http/test_breakers.py",),
    ),
    Mutation(
        "who waits for room is refused when the last worker goes out",
        ADMIT,
        "isinstance(error, PassingError) and self.is_waited_out(error)",
        "isinstance(error, OverloadedError)",
        OUTAGES,
    ),
    Mutation(
        "who comes while no worker is there is refused though others wait for one",
        ADMIT,
        "                if not self.is_waited_out(error):\n",
        "                if not isinstance(error, OverloadedError):\n",
        OUTAGES,
    ),
    Mutation(
        "outages are waited out though the operator said not to",
        ADMIT,
        "(settings.waits_out_outages or isinstance(error, OverloadedError))",
        "isinstance(error, PassingError)",
        OUTAGES,
    ),
    Mutation(
        "who was refused by the last worker starts waiting from nothing",
        "router/proxy/legs/sending.py",
        "call.read_priority(), waited_s=waited_s)",
        "call.read_priority())",
        OUTAGES,
    ),
    Mutation(
        "who was refused by the last worker may not go there when it is back",
        "router/proxy/legs/sending.py",
        "        self.attempt.readmit_workers()\n",
        "",
        OUTAGES,
    ),
    Mutation(
        "the time in the queue is silence of the worker",
        "router/proxy/output_call.py",
        "        watch.limit_whole(limits.request_s)\n        exchange",
        "        watch.limit(limits.first_byte_s)\n        exchange",
        OUTAGES,
    ),
    Mutation(
        "a model whose worker is being replaced is unknown",
        "router/placement/eligible.py",
        "RejectReason.ALL_UNHEALTHY if fleet.is_awaited(model, now_s) else RejectReason.UNKNOWN_MODEL",
        "RejectReason.UNKNOWN_MODEL",
        OUTAGES,
    ),
    Mutation(
        "who rests on an engine that drains waits for nothing",
        "router/placement/eligible.py",
        "    if rank is not None and rank.facts.draining:\n",
        "    if False:\n",
        OUTAGES,
    ),
    Mutation(
        "a client that sips is given up like one that takes nothing",
        "router/proxy/interrupt.py",
        "        elif self._has_taken():\n",
        "        elif False:\n",
        SLOW,
    ),
    Mutation(
        "a client that takes nothing is waited for without end",
        "router/proxy/interrupt.py",
        "        elif self._has_taken():\n",
        "        elif True:\n",
        SLOW,
    ),
    Mutation(
        "what a slow client took is silence of its worker",
        "router/proxy/relay.py",
        "        await self._client.drain()\n        self._watch.touch()\n",
        "        await self._client.drain()\n",
        SLOW,
    ),
    Mutation(
        "what the kernel holds for a client is not looked at",
        "router/proxy/door.py",
        'unsent_bytes + count_queued_bytes(self._transport.get_extra_info("socket"))',
        "unsent_bytes",
        SLOW,
    ),
)
