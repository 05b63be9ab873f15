"""Live sessions: tokens that conversations keep on ranks between their requests.

A paced session loads its rank while nothing of it runs: it will be back, and needs its tokens then. Counted from the
placement of its last request until a pause is longer than `idle_s`; a session that moves takes its tokens along.
"""

from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from wire.ids import RequestId, SessionId, Target


class LiveSession(msgspec.Struct, kw_only=True):
    """One conversation, as far as it loads a rank."""

    target: Target
    #: Prompt and expected output of its last request.
    tokens: int
    last_used_s: float
    #: Request that brought it there.
    placed_by: RequestId


class LiveSessions:
    """Live sessions, the longest unused first, and their tokens by rank. Bounded in number."""

    def __init__(self, *, idle_s: float, max_sessions: int) -> None:
        self._sessions: OrderedDict[SessionId, LiveSession] = OrderedDict()
        self._tokens: dict[Target, int] = {}
        #: Longest pause of a live session; may be changed.
        self.idle_s = idle_s
        self._max_sessions = max_sessions
        #: Tokens of all ranks.
        self.total_tokens = 0
        #: Ranks whose tokens changed since someone looked; that one empties it.
        self.touched: set[Target] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session: SessionId) -> LiveSession | None:
        """A session, None where it is not live."""
        return self._sessions.get(session)

    def tokens(self, target: Target) -> int:
        """Tokens that live on a rank."""
        return self._tokens.get(target, 0)

    def store(self, session: SessionId, target: Target, tokens: int, request_id: RequestId, now_s: float) -> None:
        """A request of the session was placed."""
        self._remove(session)
        self._sessions[session] = LiveSession(target=target, tokens=tokens, last_used_s=now_s, placed_by=request_id)
        self._add(target, tokens)
        while len(self._sessions) > self._max_sessions:
            self._remove(next(iter(self._sessions)))

    def renew(self, session: SessionId, now_s: float) -> None:
        """The session was heard of."""
        live = self._sessions.get(session)
        if live is not None:
            live.last_used_s = max(live.last_used_s, now_s)
            self._sessions.move_to_end(session)

    def withdraw(self, session: SessionId, request_id: RequestId) -> None:
        """The request failed before its first token, and left nothing."""
        live = self._sessions.get(session)
        if live is not None and live.placed_by == request_id:
            self._remove(session)

    def forget_targets(self, targets: Iterable[Target]) -> None:
        """Ranks were lost."""
        lost = frozenset(targets)
        for session in [name for name, live in self._sessions.items() if live.target in lost]:
            self._remove(session)

    def expire(self, now_s: float) -> None:
        """Drops sessions that paused for too long."""
        while self._sessions:
            session, live = next(iter(self._sessions.items()))
            if now_s - live.last_used_s <= self.idle_s:
                break
            self._remove(session)

    def _remove(self, session: SessionId) -> None:
        live = self._sessions.pop(session, None)
        if live is not None:
            self._add(live.target, -live.tokens)

    def _add(self, target: Target, tokens: int) -> None:
        left = self._tokens.get(target, 0) + tokens
        if left:
            self._tokens[target] = left
        else:
            self._tokens.pop(target, None)
        self.total_tokens += tokens
        self.touched.add(target)

    def check_invariants(self) -> None:
        """Raises AssertionError when the sums differ from the sessions, or there are too many."""
        sums: dict[Target, int] = {}
        for live in self._sessions.values():
            sums[live.target] = sums.get(live.target, 0) + live.tokens
        sums = {target: tokens for target, tokens in sums.items() if tokens}
        if sums != self._tokens or self.total_tokens != sum(sums.values()):
            raise AssertionError(f"live tokens {self._tokens}, by session {sums}")
        if len(self._sessions) > self._max_sessions:
            raise AssertionError(f"{len(self._sessions)} live sessions, {self._max_sessions} allowed")
