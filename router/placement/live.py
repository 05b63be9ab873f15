"""Live sessions: tokens that conversations keep on ranks between their requests.

A paced session loads its rank while nothing of it runs: it will be back, and needs its tokens then. Counted from the
placement of its last request until a pause is longer than `idle_s`; a session that moves takes its tokens along.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable

import msgspec

from wire.ids import RequestId, SessionId, Target

#: Returns that the prior counts as, and the pause it assumes.
PRIOR_RETURNS = 16.0
PRIOR_PAUSE_S = 15.0
#: After so many returns all counts are halved, so that a change of the traffic shows.
HALVE_AT = 4_096.0


class LiveSession(msgspec.Struct, kw_only=True):
    """One conversation, as far as it loads a rank."""

    target: Target
    #: Prompt and expected output of its last request.
    tokens: int
    last_used_s: float
    #: Request that brought it there.
    placed_by: RequestId
    #: That request is over: the session pauses, and will be back.
    is_paused: bool = False


class PausedSessions(msgspec.Struct, frozen=True):
    """Sessions of a rank that pause."""

    count: int = 0
    #: Their tokens, summed.
    tokens: int = 0


NO_SESSIONS = PausedSessions()


class LiveShare(msgspec.Struct, frozen=True):
    """What lives on one rank."""

    tokens: int = 0
    sessions: int = 0
    paused: PausedSessions = NO_SESSIONS


class LiveSessions:
    """Live sessions, the longest unused first, and their tokens by rank. Bounded in number."""

    def __init__(self, *, idle_s: float, max_sessions: int) -> None:
        self._sessions: OrderedDict[SessionId, LiveSession] = OrderedDict()
        self._tokens: dict[Target, int] = {}
        self._counts: dict[Target, int] = {}
        self._paused: dict[Target, PausedSessions] = {}
        self._returns = PRIOR_RETURNS
        self._paused_s = PRIOR_RETURNS * PRIOR_PAUSE_S
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

    def sessions(self, target: Target) -> int:
        """Sessions that live on a rank."""
        return self._counts.get(target, 0)

    def paused(self, target: Target) -> "PausedSessions":
        """Sessions that live on a rank and pause."""
        return self._paused.get(target, NO_SESSIONS)

    def share(self, target: Target) -> "LiveShare":
        """What lives on a rank."""
        return LiveShare(self.tokens(target), self.sessions(target), self.paused(target))

    @property
    def return_rate_per_s(self) -> float:
        """Returns of a paused session a second, of late: returns over seconds of pauses."""
        return self._returns / self._paused_s

    def store(self, session: SessionId, target: Target, tokens: int, request_id: RequestId, now_s: float) -> None:
        """A request of the session was placed."""
        before = self._sessions.get(session)
        if before is not None and before.is_paused:
            self._record_pause(now_s - before.last_used_s, 1.0)
        self._remove(session)
        self._sessions[session] = LiveSession(target=target, tokens=tokens, last_used_s=now_s, placed_by=request_id)
        self._add(target, tokens, 1)
        while len(self._sessions) > self._max_sessions:
            self._remove(next(iter(self._sessions)))

    def renew(self, session: SessionId, now_s: float) -> None:
        """The session was heard of."""
        live = self._sessions.get(session)
        if live is not None:
            live.last_used_s = max(live.last_used_s, now_s)
            self._sessions.move_to_end(session)

    def pause(self, session: SessionId, request_id: RequestId, now_s: float) -> None:
        """Its request is over."""
        live = self._sessions.get(session)
        if live is not None and live.placed_by == request_id and not live.is_paused:
            live.is_paused = True
            self._count_paused(live, 1)
            self.renew(session, now_s)

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
            if live.is_paused:
                self._record_pause(now_s - live.last_used_s, 0.0)
            self._remove(session)

    def _record_pause(self, pause_s: float, returns: float) -> None:
        self._paused_s += max(0.0, pause_s)
        self._returns += returns
        if self._returns >= HALVE_AT:
            self._paused_s /= 2
            self._returns /= 2

    def _count_paused(self, live: LiveSession, sign: int) -> None:
        before = self.paused(live.target)
        after = PausedSessions(before.count + sign, before.tokens + sign * live.tokens)
        if after.count:
            self._paused[live.target] = after
        else:
            self._paused.pop(live.target, None)
        self.touched.add(live.target)

    def _remove(self, session: SessionId) -> None:
        live = self._sessions.pop(session, None)
        if live is None:
            return
        self._add(live.target, -live.tokens, -1)
        if live.is_paused:
            self._count_paused(live, -1)

    def _add(self, target: Target, tokens: int, sessions: int) -> None:
        for sums, added in ((self._tokens, tokens), (self._counts, sessions)):
            left = sums.get(target, 0) + added
            if left:
                sums[target] = left
            else:
                sums.pop(target, None)
        self.total_tokens += tokens
        self.touched.add(target)

    def check_invariants(self) -> None:
        """Raises AssertionError when the sums differ from the sessions, or there are too many."""
        sums: dict[Target, int] = {}
        paused: dict[Target, PausedSessions] = {}
        for live in self._sessions.values():
            sums[live.target] = sums.get(live.target, 0) + live.tokens
            if live.is_paused:
                before = paused.get(live.target, NO_SESSIONS)
                paused[live.target] = PausedSessions(before.count + 1, before.tokens + live.tokens)
        counts = Counter(live.target for live in self._sessions.values())
        if counts != self._counts:
            raise AssertionError(f"live sessions {self._counts}, counted {counts}")
        if paused != self._paused:
            raise AssertionError(f"paused {self._paused}, by session {paused}")
        sums = {target: tokens for target, tokens in sums.items() if tokens}
        if sums != self._tokens or self.total_tokens != sum(sums.values()):
            raise AssertionError(f"live tokens {self._tokens}, by session {sums}")
        if len(self._sessions) > self._max_sessions:
            raise AssertionError(f"{len(self._sessions)} live sessions, {self._max_sessions} allowed")
