"""Ways to break what the front door promises: keys, tenants, the order of those that wait, limits of keys."""

from catalogue import Mutation

GATE = ("tests/router/access/test_gate.py", "tests/http/test_access.py")
KEYS = ("tests/router/access/test_keys.py",)
SALTS = ("tests/router/access/test_salts.py", "tests/http/test_tenants.py")
TENANTS = ("tests/http/test_tenants.py",)
QUEUE = ("tests/models/test_admission_machine.py", "tests/router/admission/test_order.py")
RATES = ("tests/router/admission/test_rates.py",)
WAITING = ("tests/http/test_admission.py",)

ACCESS = (
    Mutation(
        "paths below an open one are open too",
        "router/access/gate.py",
        "        if path in self._open_paths:\n",
        "        if path.startswith(tuple(self._open_paths)):\n",
        GATE,
    ),
    Mutation(
        "a client's key opens what nobody knows",
        "router/access/gate.py",
        "        if principal.role is not Role.ADMIN:\n",
        "        if principal.role is Role.METRICS:\n",
        GATE,
    ),
    Mutation(
        "an unknown key passes as the operator",
        "router/access/gate.py",
        "return self.ring.find(secret) or anonymous or Refusal.INVALID_KEY",
        "return self.ring.find(secret) or anonymous or PASSER_BY",
        GATE,
    ),
    Mutation(
        "of two keys the first counts",
        "router/access/gate.py",
        '        if found is not None and said != found:\n            return b""\n',
        "        if found is not None:\n            continue\n",
        GATE,
    ),
    Mutation(
        "the head of a digest is enough",
        "router/access/keys.py",
        "            if hmac.compare_digest(key.digest, digest):\n",
        "            if found is None:\n",
        KEYS,
    ),
    Mutation(
        "short keys are hashed",
        "router/access/keys.py",
        "MIN_KEY_CHARS = 32\n",
        "MIN_KEY_CHARS = 1\n",
        KEYS,
    ),
    Mutation(
        "a client chooses its salt",
        "router/access/tenants.py",
        "            return self._make(tenant, said)\n",
        "            return said\n",
        SALTS,
    ),
    Mutation(
        "tenants share their salts",
        "router/access/tenants.py",
        'text = f"{tenant}\\0{said}"',
        'text = f"{said}"',
        SALTS,
    ),
    Mutation(
        "the engine gets the client's own salt",
        "router/proxy/body.py",
        '{"cache_salt": msgspec.json.encode(self.salt)}',
        "{}",
        TENANTS,
    ),
    Mutation(
        "the router looks for cached prompts under the client's own salt",
        "router/proxy/body.py",
        'cache_salt=self.get("cache_salt") if self.salt is None else self.salt',
        'cache_salt=self.get("cache_salt")',
        TENANTS,
    ),
    Mutation(
        "the only engine answers for another tenant's response",
        "router/proxy/asked.py",
        "    if name is None or not tenant:\n",
        "    if name is None or tenant:\n",
        TENANTS,
    ),
    Mutation(
        "the only engine reads out another tenant's response",
        "router/proxy/kept_calls.py",
        "            if self._tenant or len(",
        "            if len(",
        TENANTS,
    ),
    Mutation(
        "a client's key goes on to the engine",
        "router/proxy/ports.py",
        "        if self.forwards_keys:\n",
        "        if True:\n",
        TENANTS,
    ),
    Mutation(
        "a key is for every model",
        "router/proxy/call.py",
        "        if self.principal.models is not None and (",
        "        if False and (",
        TENANTS,
    ),
    Mutation(
        "who had much goes first",
        "router/admission/order.py",
        "key=lambda name: (band.find_start(name), band.lanes[name][0][:2])",
        "key=lambda name: (-band.find_start(name), band.lanes[name][0][:2])",
        QUEUE,
    ),
    Mutation(
        "shares do not go by weight",
        "router/admission/order.py",
        "start + cost_tokens / self._weigh(tenant)",
        "start + cost_tokens",
        QUEUE,
    ),
    Mutation(
        "shares are in requests, not in tokens",
        "router/admission/order.py",
        "start + cost_tokens / self._weigh(tenant)",
        "start + 1 / self._weigh(tenant)",
        QUEUE,
    ),
    Mutation(
        "lower priorities starve",
        "router/admission/order.py",
        "        if self._given % FLOOR_EVERY == FLOOR_EVERY - 1:\n",
        "        if self._given < 0:\n",
        QUEUE,
    ),
    Mutation(
        "short requests starve long ones",
        "router/admission/order.py",
        "due_s = waiting.arrived_s + waiting.cost_tokens / self._handicap_tokens_per_s",
        "due_s = float(waiting.cost_tokens)",
        QUEUE,
    ),
    Mutation(
        "a flood keeps others out of a full queue",
        "router/admission/queue.py",
        "            displaced = self._find_displaced(tenant)\n",
        "            displaced = None\n",
        QUEUE,
    ),
    Mutation(
        "the queue grows beyond its bound",
        "router/admission/queue.py",
        "            self.leave(displaced.request_id)\n",
        "            pass\n",
        QUEUE,
    ),
    Mutation(
        "ends of requests are not counted off",
        "router/proxy/call.py",
        "                self.parts.admission.end(self.principal)\n",
        "                pass\n",
        WAITING,
    ),
    Mutation(
        "a client that went keeps its place in the queue",
        "router/proxy/admit.py",
        "        if self.queue.leave(request_id):\n            self._metrics.queue_ends[QueueEnd.LEFT].inc()\n",
        "        if False:\n            self._metrics.queue_ends[QueueEnd.LEFT].inc()\n",
        WAITING,
    ),
    Mutation(
        "who waits is not told of room",
        "router/proxy/attempt.py",
        "        self._running.remove(target, self._request_id)\n        self._parts.admission.wake()\n",
        "        self._running.remove(target, self._request_id)\n",
        WAITING,
    ),
    Mutation(
        "a key has one request more under way",
        "router/admission/rates.py",
        "use.running >= limits.concurrent_requests",
        "use.running > limits.concurrent_requests",
        RATES,
    ),
    Mutation(
        "debts of tokens are forgiven",
        "router/admission/rates.py",
        "            use.tokens.level -= tokens\n",
        "            use.tokens.level = max(0.0, use.tokens.level - tokens)\n",
        RATES,
    ),
    Mutation(
        "every rank takes as many as come",
        "router/placement/eligible.py",
        "    busy = _NONE if settings.requests_per_rank is None else ",
        "    busy = _NONE if True else ",
        WAITING,
    ),
    Mutation(
        "a client's words make fields of the log",
        "router/logs.py",
        '        return {"event": "message", "message": record.getMessage()[:MAX_VALUE_CHARS]}\n',
        "        return dict(part.split('=', 1) for part in record.getMessage().split() if '=' in part)\n",
        ("tests/router/test_logs.py",),
    ),
    Mutation(
        "who does not tell its hits had none",
        "router/metrics.py",
        "            counters.uncounted.inc()\n            return\n",
        "            cached_tokens = 0\n",
        ("tests/http/test_metrics.py",),
    ),
    Mutation(
        "an engine is told of no parent",
        "router/proxy/call.py",
        "            own[TRACEPARENT] = self.trace.traceparent\n",
        "            pass\n",
        ("tests/http/test_tracing.py",),
    ),
)
