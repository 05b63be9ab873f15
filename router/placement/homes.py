"""Where conversations live: a soft home each, forgotten after a pause, bounded in number.

A conversation is a session with one model: a session that asks two models has a home for each. A home also remembers
how the prompt stood half-way, so that a conversation which was cut (compacted) is seen to be a new one.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import msgspec

from router.placement.origins import Fence, HomeRecord
from wire.ids import RequestId, SessionId, Target


class ChainMark(msgspec.Struct, frozen=True):
    """A prompt at half its length: the hash there stands for all tokens before."""

    block: int
    block_tokens: int
    chain_hash: int


class Home(msgspec.Struct, kw_only=True):
    """One conversation's home: a rank, never only a worker."""

    target: Target
    last_used_s: float
    #: Request that made it the home and has not shown a token yet; None once it is settled.
    unsettled_by: RequestId | None
    #: Tokens of the last prompt; 0 while unknown.
    prompt_tokens: int = 0
    #: The last prompt half-way; None where its chain is not known.
    mark: ChainMark | None = None


def name_home(session: SessionId, model: str | None) -> SessionId:
    """The conversation of a session with one model."""
    return session if model is None else SessionId(f"{session}\0{model}")


def mark_chain(chain_hashes: Sequence[int], block_tokens: int) -> ChainMark | None:
    """The mark of a prompt; None for one without blocks."""
    if not chain_hashes:
        return None
    block = (len(chain_hashes) - 1) // 2
    return ChainMark(block, block_tokens, chain_hashes[block])


def is_broken(home: Home, *, prompt_tokens: int, chain_hashes: Sequence[int], block_tokens: int) -> bool:
    """Whether a prompt shares less than half of the last one with it: what lies at home is of little use then."""
    mark = home.mark
    if mark is not None and chain_hashes and mark.block_tokens == block_tokens:
        return len(chain_hashes) <= mark.block or chain_hashes[mark.block] != mark.chain_hash
    return prompt_tokens * 2 < home.prompt_tokens


class Homes:
    """Homes by conversation, the longest unused first."""

    def __init__(self, *, idle_ttl_s: float, max_homes: int) -> None:
        self._homes: OrderedDict[SessionId, Home] = OrderedDict()
        self._idle_ttl_s = idle_ttl_s
        self._max_homes = max_homes
        self._fence = Fence()

    def __len__(self) -> int:
        return len(self._homes)

    def find(self, session: SessionId | None, now_s: float) -> Target | None:
        """A conversation's home; None where it has none or paused for too long."""
        home = self.look_up(session, now_s)
        return None if home is None else home.target

    def look_up(self, session: SessionId | None, now_s: float) -> Home | None:
        """The same with all that is known of it. Not to be written, nor kept: it changes with the next request."""
        home = None if session is None else self._homes.get(session)
        if home is None or now_s - home.last_used_s > self._idle_ttl_s:
            return None
        return home

    def propose(self, session: SessionId, target: Target, request_id: RequestId, now_s: float) -> None:
        """A request was placed: it makes a home where there is none, and renews one it goes to.

        A move away from a living home waits for `settle`: a rank that fails before its first token takes no session.
        """
        home = self.look_up(session, now_s)
        if home is None:
            self._store(session, Home(target=target, last_used_s=now_s, unsettled_by=request_id))
        elif home.target == target:
            self._renew(session, home, now_s)

    def settle(
        self,
        session: SessionId,
        target: Target,
        now_s: float,
        *,
        prompt_tokens: int = 0,
        mark: ChainMark | None = None,
    ) -> None:
        """A request showed a token on the rank: that is the home now, and its prompt the last one."""
        home = self._homes.get(session)
        if home is None:
            home = Home(target=target, last_used_s=now_s, unsettled_by=None, prompt_tokens=prompt_tokens, mark=mark)
            self._store(session, home)
            return
        home.target, home.last_used_s, home.unsettled_by = target, now_s, None
        home.prompt_tokens, home.mark = prompt_tokens, mark
        self._homes.move_to_end(session)

    def renew(self, session: SessionId, now_s: float) -> None:
        """The session was heard of."""
        home = self._homes.get(session)
        if home is not None:
            self._renew(session, home, now_s)

    def _renew(self, session: SessionId, home: Home, now_s: float) -> None:
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

    def accept(self, record: HomeRecord, now_s: float) -> bool:
        """Another router's word; False where it is old, or this router knows of a later use."""
        if not self._fence.admit(record.origin, record.stamp):
            return False
        used_s = now_s - max(0.0, record.age_s)
        known = self._homes.get(record.session)
        if known is not None and known.last_used_s > used_s:
            return False
        home = Home(target=record.target, last_used_s=used_s, unsettled_by=None, prompt_tokens=record.tokens)
        self._store(record.session, home)
        return True

    def _store(self, session: SessionId, home: Home) -> None:
        self._homes[session] = home
        self._homes.move_to_end(session)
        while len(self._homes) > self._max_homes:
            self._homes.popitem(last=False)

    def check_invariants(self) -> None:
        """Raises AssertionError when the bound is broken."""
        if len(self._homes) > self._max_homes:
            raise AssertionError(f"{len(self._homes)} homes, {self._max_homes} allowed")
