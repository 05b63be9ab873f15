"""Live sessions: tokens that conversations keep on ranks between their requests.

A paced session loads its rank while nothing of it runs: it will be back, and needs its tokens then. Counted from the
placement of its last request until a pause is longer than `idle_s`; a session that moves takes its tokens along.
"""

from collections import OrderedDict
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


class LiveSums(msgspec.Struct):
    """The sessions of one rank; written by `LiveSessions` only, and kept while there are any."""

    tokens: int = 0
    sessions: int = 0
    paused: int = 0
    paused_tokens: int = 0


_NOTHING = LiveSums()


class LiveSessions:
    """Live sessions, the longest unused first, and their tokens by rank. Bounded in number."""

    def __init__(self, *, idle_s: float, max_sessions: int) -> None:
        self._sessions: OrderedDict[SessionId, LiveSession] = OrderedDict()
        #: By rank; read by others, written here only.
        self.sums: dict[Target, LiveSums] = {}
        self._returns = PRIOR_RETURNS
        self._paused_s = PRIOR_RETURNS * PRIOR_PAUSE_S
        #: Longest pause of a live session; may be changed.
        self.idle_s = idle_s
        self._max_sessions = max_sessions
        #: Ranks whose tokens changed since someone looked; that one empties it.
        self.touched: set[Target] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session: SessionId) -> LiveSession | None:
        """A session, None where it is not live. Not to be kept: it changes with the next request."""
        return self._sessions.get(session)

    def share(self, target: Target) -> LiveShare:
        """What lives on a rank."""
        sums = self.sums.get(target, _NOTHING)
        paused = PausedSessions(sums.paused, sums.paused_tokens) if sums.paused else NO_SESSIONS
        return LiveShare(sums.tokens, sums.sessions, paused)

    @property
    def return_rate_per_s(self) -> float:
        """Returns of a paused session a second, of late: returns over seconds of pauses."""
        return self._returns / self._paused_s

    def store(self, session: SessionId, target: Target, tokens: int, request_id: RequestId, now_s: float) -> None:
        """A request of the session was placed."""
        live = self._sessions.pop(session, None)
        if live is None:
            live = LiveSession(target=target, tokens=tokens, last_used_s=now_s, placed_by=request_id)
        else:
            if live.is_paused:
                self._record_pause(now_s - live.last_used_s, 1.0)
            self._leave(live)
            live.target, live.tokens, live.last_used_s, live.placed_by = target, tokens, now_s, request_id
            live.is_paused = False
        self._sessions[session] = live
        self._join(live)
        while len(self._sessions) > self._max_sessions:
            self._leave(self._sessions.popitem(last=False)[1])

    def renew(self, session: SessionId, now_s: float) -> None:
        """The session was heard of."""
        live = self._sessions.get(session)
        if live is not None:
            self._renew(session, live, now_s)

    def pause(self, session: SessionId, request_id: RequestId, now_s: float) -> None:
        """Its request is over."""
        live = self._sessions.get(session)
        if live is not None and live.placed_by == request_id and not live.is_paused:
            live.is_paused = True
            sums = self.sums[live.target]
            sums.paused += 1
            sums.paused_tokens += live.tokens
            self.touched.add(live.target)
            self._renew(session, live, now_s)

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

    def _renew(self, session: SessionId, live: LiveSession, now_s: float) -> None:
        live.last_used_s = max(live.last_used_s, now_s)
        self._sessions.move_to_end(session)

    def _remove(self, session: SessionId) -> None:
        self._leave(self._sessions.pop(session))

    def _record_pause(self, pause_s: float, returns: float) -> None:
        self._paused_s += max(0.0, pause_s)
        self._returns += returns
        if self._returns >= HALVE_AT:
            self._paused_s /= 2
            self._returns /= 2

    def _join(self, live: LiveSession) -> None:
        """Counts a session that does not pause on its rank."""
        sums = self.sums.get(live.target)
        if sums is None:
            sums = self.sums[live.target] = LiveSums()
        sums.sessions += 1
        sums.tokens += live.tokens
        self.touched.add(live.target)

    def _leave(self, live: LiveSession) -> None:
        """Takes a session off the counts of its rank."""
        sums = self.sums[live.target]
        sums.sessions -= 1
        sums.tokens -= live.tokens
        if live.is_paused:
            sums.paused -= 1
            sums.paused_tokens -= live.tokens
        if not sums.sessions:
            del self.sums[live.target]
        self.touched.add(live.target)

    def check_invariants(self) -> None:
        """Raises AssertionError when the sums differ from the sessions, or there are too many."""
        counted: dict[Target, LiveSums] = {}
        for live in self._sessions.values():
            sums = counted.setdefault(live.target, LiveSums())
            sums.sessions += 1
            sums.tokens += live.tokens
            sums.paused += live.is_paused
            sums.paused_tokens += live.is_paused * live.tokens
        if counted != self.sums:
            raise AssertionError(f"live sessions {self.sums}, counted {counted}")
        if len(self._sessions) > self._max_sessions:
            raise AssertionError(f"{len(self._sessions)} live sessions, {self._max_sessions} allowed")
