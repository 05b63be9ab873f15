"""Where conversations live: a soft home each, forgotten after a pause, bounded in number."""

from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from wire.ids import RequestId, SessionId, Target


class Home(msgspec.Struct, kw_only=True):
    """One conversation's home: a rank, never only a worker."""

    target: Target
    last_used_s: float
    #: Request that made it the home and has not shown a token yet; None once it is settled.
    unsettled_by: RequestId | None


class Homes:
    """Homes by session, the longest unused first."""

    def __init__(self, *, idle_ttl_s: float, max_homes: int) -> None:
        self._homes: OrderedDict[SessionId, Home] = OrderedDict()
        self._idle_ttl_s = idle_ttl_s
        self._max_homes = max_homes

    def __len__(self) -> int:
        return len(self._homes)

    def find(self, session: SessionId | None, now_s: float) -> Target | None:
        """A session's home; None where it has none or paused for too long."""
        home = None if session is None else self._homes.get(session)
        if home is None or now_s - home.last_used_s > self._idle_ttl_s:
            return None
        return home.target

    def propose(self, session: SessionId, target: Target, request_id: RequestId, now_s: float) -> None:
        """A request was placed: it makes a home where there is none, and renews one it goes to.

        A move away from a living home waits for `settle`: a rank that fails before its first token takes no session.
        """
        current = self.find(session, now_s)
        if current is None:
            self._store(session, Home(target=target, last_used_s=now_s, unsettled_by=request_id))
        elif current == target:
            self.renew(session, now_s)

    def settle(self, session: SessionId, target: Target, now_s: float) -> None:
        """A request showed a token on the rank: that is the home now."""
        self._store(session, Home(target=target, last_used_s=now_s, unsettled_by=None))

    def renew(self, session: SessionId, now_s: float) -> None:
        """The session was heard of."""
        home = self._homes.get(session)
        if home is not None:
            home.last_used_s = max(home.last_used_s, now_s)
            self._homes.move_to_end(session)

    def withdraw(self, session: SessionId, request_id: RequestId) -> None:
        """The request failed before its first token: a home that rests on it alone goes."""
        home = self._homes.get(session)
        if home is not None and home.unsettled_by == request_id:
            del self._homes[session]

    def forget_targets(self, targets: Iterable[Target]) -> int:
        """Ranks were lost: forgets the homes there; returns how many."""
        lost = frozenset(targets)
        gone = [session for session, home in self._homes.items() if home.target in lost]
        for session in gone:
            del self._homes[session]
        return len(gone)

    def expire(self, now_s: float) -> int:
        """Forgets homes that were idle for too long; returns how many."""
        count = 0
        while self._homes:
            session, home = next(iter(self._homes.items()))
            if now_s - home.last_used_s <= self._idle_ttl_s:
                break
            del self._homes[session]
            count += 1
        return count

    def _store(self, session: SessionId, home: Home) -> None:
        self._homes[session] = home
        self._homes.move_to_end(session)
        while len(self._homes) > self._max_homes:
            self._homes.popitem(last=False)

    def check_invariants(self) -> None:
        """Raises AssertionError when the bound is broken."""
        if len(self._homes) > self._max_homes:
            raise AssertionError(f"{len(self._homes)} homes, {self._max_homes} allowed")
