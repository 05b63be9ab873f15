"""Ways to break what connections promise: to workers, and to clients."""

from catalogue import Mutation

UPSTREAM = ("tests/contracts/test_upstream_contract.py",)
DOOR = ("tests/contracts/test_door_contract.py",)
CONNECTION = "router/proxy/connection.py"
EXCHANGE = "router/proxy/exchange.py"
POOL = "router/proxy/pool.py"
DOOR_FILE = "router/proxy/door.py"
FRAMING = "router/proxy/framing.py"
PATIENCE = ("tests/contracts/test_door_patience.py",)
INFLATE = ("tests/router/proxy/test_inflate.py",)
CALL = "router/proxy/door_call.py"

WIRE = (
    Mutation(
        "a request that arrived is sent again after an end in order",
        CONNECTION,
        "        return error is None and not self._is_acked()\n",
        "        return error is None\n",
        UPSTREAM,
    ),
    Mutation(
        "a request is sent again though its answer began",
        CONNECTION,
        "        if self.idle_since_s is None or self._received_bytes:\n",
        "        if self.idle_since_s is None:\n",
        UPSTREAM,
    ),
    Mutation(
        "a dead connection costs its request",
        POOL,
        "            except UnreadRequestError:\n                pass\n",
        "            except UnreadRequestError:\n                raise\n",
        UPSTREAM,
    ),
    Mutation(
        "an answer that breaks off counts as whole",
        CONNECTION,
        "        if error is None and exchange.has_head and self._ends_with_connection:\n",
        "        if error is None and exchange.has_head:\n",
        UPSTREAM,
    ),
    Mutation(
        "bytes behind an answer begin the next one",
        CONNECTION,
        "        if self._exchange is None or self._exchange.is_complete:\n            self._is_sound = False\n",
        "        if self._exchange is None:\n            self._is_sound = False\n",
        UPSTREAM,
    ),
    Mutation(
        "a connection with an unread answer serves the next request",
        CONNECTION,
        "        if not (exchange.is_complete and self.is_open",
        "        if not (self.is_open",
        UPSTREAM,
    ),
    Mutation(
        "a connection with a refused head is closed at once",
        DOOR_FILE,
        "        self._refusal = error\n        self._close()\n",
        "        self._close()\n",
        DOOR,
    ),
    Mutation(
        "a worker is read from however slow the client",
        EXCHANGE,
        "        elif sum(map(len, self._pieces)) > MAX_WAITING_BYTES:\n",
        "        elif sum(map(len, self._pieces)) > 10_000 * MAX_WAITING_BYTES:\n",
        UPSTREAM,
    ),
    Mutation(
        "any number of header lines is kept of an answer",
        CONNECTION,
        "        headers = self._head.take()\n        if headers is None:\n",
        "        headers = self._head.take() or []\n        if status == 999:\n",
        UPSTREAM,
    ),
    Mutation(
        "two hosts pass",
        FRAMING,
        "    if hosts > 1 or (hosts == 0",
        "    if (hosts == 0",
        DOOR,
    ),
    Mutation(
        "a head may be as long as it likes",
        DOOR_FILE,
        "        if headers is None:\n            raise _TOO_LARGE\n",
        "        headers = headers or []\n",
        DOOR,
    ),
    Mutation(
        "requests that came together are answered as they come",
        DOOR_FILE,
        "        if self._calls and self._serving is None:\n            call, scope = self._calls[0]\n",
        "        if self._calls and self._serving is None:\n            call, scope = self._calls[-1]\n",
        DOOR,
    ),
    Mutation(
        "a client that left is not noticed",
        CALL,
        "        if gone is not None and not self.is_ended:\n",
        "        if gone is not None and self.is_ended:\n",
        DOOR,
    ),
    Mutation(
        "what is left of a body is read as the next request",
        CALL,
        "        if not self.is_received:\n            # What",
        "        if self.is_gone:\n            # What",
        DOOR,
    ),
    Mutation(
        "the body of an offer to upgrade is taken for the other protocol",
        DOOR_FILE,
        "        if framing.has_body and self._parser.should_upgrade():\n",
        "        if not framing.has_body and self._parser.should_upgrade():\n",
        DOOR,
    ),
    Mutation(
        "a head that drips keeps its connection",
        DOOR_FILE,
        "            return self._begun_s + STALLED_S\n",
        "            return self._heard_s + STALLED_S\n",
        PATIENCE,
    ),
    Mutation(
        "a body that drips keeps its connection",
        DOOR_FILE,
        "        return min(silent_s, slow_s) + STALLED_S\n",
        "        return max(silent_s, slow_s) + STALLED_S\n",
        PATIENCE,
    ),
    Mutation(
        "who takes nothing of an answer is waited for without end",
        DOOR_FILE,
        "        if self.is_full or self._is_closing:\n            unsent",
        "        if self.is_full and self._is_closing and self._is_mute:\n            unsent",
        PATIENCE,
    ),
    Mutation(
        "bodies behind a request are kept however long",
        DOOR_FILE,
        "        if self._behind_bytes > MAX_BEHIND_BYTES and",
        "        if self._behind_bytes > 1_000 * MAX_BEHIND_BYTES and",
        PATIENCE,
    ),
    Mutation(
        "trailers of a request may be as long as they like",
        DOOR_FILE,
        "        if self._receiving is not None and self._framing_bytes > MAX_HEADER_BYTES:\n",
        "        if self._receiving is None and self._framing_bytes > MAX_HEADER_BYTES:\n",
        PATIENCE,
    ),
    Mutation(
        "trailers of an answer may be as long as they like",
        CONNECTION,
        "        if self._received_bytes > MAX_HEADER_BYTES and not exchange.is_complete:\n",
        "        if self._received_bytes > MAX_HEADER_BYTES and not exchange.has_head:\n",
        UPSTREAM,
    ),
    Mutation(
        "a client from whom nothing is read leaves unheard",
        DOOR_FILE,
        "        if has_departed(self._transport",
        "        if not has_departed(self._transport",
        PATIENCE,
    ),
    Mutation(
        "what is no request ends those before it",
        DOOR_FILE,
        "        if self._calls and self._calls[0][0] is not self._receiving and error is not _TOO_MANY:\n",
        "        if False:\n",
        DOOR,
    ),
    Mutation(
        "a text that ends its field is more of the same",
        "router/proxy/alike.py",
        "            and data.find(b'\"', text, behind) < 0\n",
        "",
        ("tests/router/proxy/test_native_alike.py",),
    ),
    Mutation(
        "chunks are passed though the parser is in the middle of one",
        CONNECTION,
        '        self._is_between_chunks = self._is_between_chunks and data.endswith(b"\\r\\n")\n',
        "        self._is_between_chunks = True\n",
        UPSTREAM,
    ),
    Mutation(
        "a worker pays for the router's own lag",
        "router/lookout.py",
        "        if late_s > LATE_S:\n",
        "        if late_s > 1_000.0 * LATE_S:\n",
        ("tests/router/test_lookout.py", *UPSTREAM),
    ),
    Mutation(
        "an engine that says the time in each event is read event by event after some seconds",
        "router/proxy/sse.py",
        "        return self._lessons > 0 or self.output_chunks >= self._lesson_chunk\n",
        "        return self._lessons > 0\n",
        ("tests/router/proxy/test_alike.py",),
    ),
    Mutation(
        "who was let go by another one's limit is struck by its own",
        "router/lookout.py",
        "            if limited in self._limited and limited.due_s <= now_s + TICK_S:\n",
        "            if True:\n",
        ("tests/router/test_lookout.py",),
    ),
    Mutation(
        "one limit that goes wrong ends all others",
        "router/lookout.py",
        "        try:\n            self.look(now_s, late_s=now_s - self._next_s)\n        finally:\n",
        "        self.look(now_s, late_s=now_s - self._next_s)\n        if True:\n",
        ("tests/router/test_lookout.py",),
    ),
    Mutation(
        "a compressed body may have any number of members",
        "router/proxy/inflate.py",
        "    for _ in range(MAX_MEMBERS):\n",
        "    for _ in range(1_000 * MAX_MEMBERS):\n",
        INFLATE,
    ),
)
