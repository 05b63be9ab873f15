"""Ways to break what is promised of pairs: one answer, legs that end once, charges of their own, no job twice."""

from catalogue import Mutation

MACHINE = ("tests/router/proxy/legs/test_legs_machine.py", "tests/models/test_legs_model.py")
ROOMS = ("tests/router/proxy/legs/test_rooms.py",)
BODIES = ("tests/router/proxy/legs/test_leg_bodies.py",)
RETRIES = ("tests/router/proxy/legs/test_retries.py",)
SGLANG = ("tests/http/test_pairs_sglang.py",)
VLLM = ("tests/http/test_pairs_vllm.py",)
PLACED = ("tests/models/test_pairs_model.py", "tests/router/placement/test_pairs.py")

LEGS_FILE = "router/proxy/legs/machine.py"
PAIR_FILE = "router/proxy/legs/pair.py"
SENDING_FILE = "router/proxy/legs/sending.py"

LEGS = (
    Mutation(
        "a failed prefill leaves its decode leg waiting",
        LEGS_FILE,
        "        return (*self._abort(Leg.DECODE), *self._fail_once(Leg.PREFILL))\n",
        "        return self._fail_once(Leg.PREFILL)\n",
        MACHINE,
    ),
    Mutation(
        "a failed decode leg leaves its prefill leg running",
        LEGS_FILE,
        "        return (*self._abort(Leg.PREFILL), *self._fail_once(leg))\n",
        "        return self._fail_once(leg)\n",
        MACHINE,
    ),
    Mutation(
        "a prefill charge is released at each occasion",
        LEGS_FILE,
        "        self._is_charged = False\n",
        "",
        MACHINE,
    ),
    Mutation(
        "a leg that broke off is offered for a retry",
        LEGS_FILE,
        "            case Failed():\n                return self._fail(leg)\n",
        "            case Failed():\n                return self._refuse(leg)\n",
        MACHINE,
    ),
    Mutation(
        "a decode leg that broke off counts as complete",
        LEGS_FILE,
        "        self._states[leg] = _State.OVER\n        if leg is Leg.PREFILL:\n",
        "        self._states[leg] = _State.OVER\n        self.is_complete = self._answering is leg\n"
        "        if leg is Leg.PREFILL:\n",
        MACHINE,
    ),
    Mutation(
        "a prefill leg that fails behind the output ends the answer",
        LEGS_FILE,
        "        if self.has_output or self._states[Leg.DECODE] is _State.OVER:\n            return ()\n",
        "        if self._states[Leg.DECODE] is _State.OVER:\n            return ()\n",
        SGLANG,
    ),
    Mutation(
        "the first output does not free the prefill rank",
        LEGS_FILE,
        "                self.has_output = True\n                return self._release(is_done=True)\n",
        "                self.has_output = True\n                return ()\n",
        SGLANG,
    ),
    Mutation(
        "a room need not be of its rank",
        "router/proxy/legs/rooms.py",
        "        return start + (dp_rank - start) % dp_size\n",
        "        return start + dp_rank\n",
        (*ROOMS, *SGLANG),
    ),
    Mutation(
        "two routers count alike",
        "router/proxy/legs/rooms.py",
        "        start = (self._base + self._count) * MAX_RANKS\n",
        "        start = self._count * MAX_RANKS\n",
        ROOMS,
    ),
    Mutation(
        "the decode engine is not told the prefill rank",
        "router/proxy/legs/bodies.py",
        "    if leg.prefill_dp_rank is not None:\n",
        "    if leg.prefill_dp_rank is None:\n",
        (*BODIES, *SGLANG),
    ),
    Mutation(
        "a prefill copy keeps the client's least length",
        "router/proxy/legs/bodies.py",
        '_NOT_FOR_PREFILL = ("min_tokens", ',
        "_NOT_FOR_PREFILL = (",
        (*BODIES, *VLLM),
    ),
    Mutation(
        "retries have no budget",
        "router/proxy/legs/retries.py",
        "        self._retries += 1\n",
        "",
        RETRIES,
    ),
    Mutation(
        "a prefill that is done is repeated with the decode leg",
        SENDING_FILE,
        "            self.handed = legs.handed\n",
        "",
        VLLM,
    ),
    Mutation(
        "an aborted leg's engine is not told",
        PAIR_FILE,
        "                self._stop(leg)\n                self._edge.abort_leg(leg)\n",
        "                self._stop(leg)\n",
        SGLANG,
    ),
    Mutation(
        "an aborted leg keeps its connection",
        PAIR_FILE,
        "                self._stop(leg)\n                self._edge.abort_leg(leg)\n",
        "                self._edge.abort_leg(leg)\n",
        VLLM,
    ),
    Mutation(
        "a decode engine may wait for ever for one that is gone",
        PAIR_FILE,
        "                elif self._is_stream and not self._legs.is_open(Leg.PREFILL):\n",
        "                elif False:\n",
        VLLM,
    ),
    Mutation(
        "cached tokens of both legs are added up",
        "router/proxy/attempt.py",
        "    return max(said) if prompt is None else min(max(said), prompt)\n",
        "    return sum(said)\n",
        (*SGLANG, *VLLM),
    ),
    Mutation(
        "a prefill leg is charged until the whole answer is over",
        "router/placement/legs.py",
        "            self._books.ledger.release(entry, now_s)\n",
        "",
        PLACED,
    ),
    Mutation(
        "a prefill rank that is lost keeps its leg",
        "router/placement/placer.py",
        "if not self._legs.lose(entry.request_id):",
        "if entry.request_id:",
        PLACED,
    ),
)
