"""What this router has placed and is not done yet: the load it charges itself.

Life of a reservation:

    reserve ──> PREFILL ── start_decode ──> DECODE ── release ──> gone
                   └──────────── release ─────────────────────────^

Charged at the decision, before anything is sent. The prefill part leaves at the first token, the decode part shrinks
with the output, the rest leaves at the end: once, on whichever path comes first; whatever comes later finds nothing.
Between stimuli the seconds ahead shrink with the clock (`router.placement.prefill_queue`). All sums are of whole
numbers, so that they end at exactly zero.

What other routers placed stands beside it, as they tell it (`router.placement.origins`), and is forgotten when they
fall silent.
"""

from collections.abc import Iterable

import msgspec

from router.fleet.outputs import OutputLengths
from router.placement.ledger_check import check_ledger
from router.placement.origins import PARTIAL_TTL_S, Fence, LedgerPartial, RankPartial
from router.placement.prefill_queue import PrefillQueue
from router.placement.reservation import Phase, Reservation
from wire.ids import RequestId, Target


class RankTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over what is open on one rank."""

    #: Seconds of prefill ahead.
    waiting_s: float = 0.0
    #: Prompt tokens still to be computed.
    waiting_tokens: int = 0
    #: Requests whose first token has not come.
    waiting_requests: int = 0
    #: Requests that generate.
    decoding_requests: int = 0
    #: Output these are still expected to give.
    remaining_output_tokens: int = 0
    #: Tokens these attend to.
    context_tokens: int = 0
    #: Tokens of the KV cache that all take by their end.
    open_tokens: int = 0
    #: Output that all are expected to give beside an answer that begins now.
    joint_output_tokens: int = 0
    #: The same, each times the tokens that the request attends to.
    joint_context_tokens: int = 0

    @property
    def open_requests(self) -> int:
        """All of them."""
        return self.waiting_requests + self.decoding_requests


_NOTHING = RankTotals()


class RankAccount(PrefillQueue):
    """Open reservations of one rank, and their sums."""

    __slots__ = (
        "context_tokens",
        "decoding",
        "joint_context_tokens",
        "joint_output_tokens",
        "open_tokens",
        "remaining_output_tokens",
        "uncached_tokens",
    )

    def __init__(self) -> None:
        super().__init__()
        self.decoding: dict[RequestId, Reservation] = {}
        self.uncached_tokens = 0
        self.remaining_output_tokens = 0
        self.context_tokens = 0
        self.open_tokens = 0
        self.joint_output_tokens = 0
        self.joint_context_tokens = 0

    def add_prefill(self, entry: Reservation) -> None:
        """A request whose first token is awaited."""
        self.enqueue(entry)
        self.uncached_tokens += entry.uncached_tokens
        self._count_room(entry, 1)

    def remove_prefill(self, entry: Reservation) -> None:
        """Its first token came, or it is over."""
        self.dequeue(entry)
        self.uncached_tokens -= entry.uncached_tokens
        self._count_room(entry, -1)

    def add_decode(self, entry: Reservation) -> None:
        """A request that generates."""
        self.decoding[entry.request_id] = entry
        self._count_decode(entry, 1)

    def remove_decode(self, entry: Reservation) -> None:
        """It is over."""
        del self.decoding[entry.request_id]
        self._count_decode(entry, -1)

    def record_output(self, entry: Reservation, output_tokens: int, outputs: OutputLengths) -> None:
        """A request gave so much by now."""
        count = self._count_decode if entry.phase is Phase.DECODE else self._count_room
        count(entry, -1)
        entry.output_tokens = output_tokens
        entry.remaining_output_tokens, entry.joint_output_tokens = outputs.find_both_tokens(
            output_tokens, entry.max_output_tokens
        )
        count(entry, 1)

    def _count_decode(self, entry: Reservation, sign: int) -> None:
        self.remaining_output_tokens += sign * entry.remaining_output_tokens
        self.context_tokens += sign * entry.context_tokens
        self._count_room(entry, sign)

    def _count_room(self, entry: Reservation, sign: int) -> None:
        joint_tokens = sign * entry.joint_output_tokens
        self.open_tokens += sign * entry.room_tokens
        self.joint_output_tokens += joint_tokens
        self.joint_context_tokens += joint_tokens * entry.context_tokens

    def totals(self, now_s: float) -> RankTotals:
        """Sums at a time, without writing anything."""
        waiting_s = self.waiting_s(now_s)
        left_ratio = min(1.0, waiting_s / self.estimated_s) if self.estimated_s > 0 else 1.0
        return RankTotals(
            waiting_s=waiting_s,
            waiting_tokens=round(self.uncached_tokens * left_ratio),
            waiting_requests=len(self.prefilling),
            decoding_requests=len(self.decoding),
            remaining_output_tokens=self.remaining_output_tokens,
            context_tokens=self.context_tokens,
            open_tokens=self.open_tokens,
            joint_output_tokens=self.joint_output_tokens,
            joint_context_tokens=self.joint_context_tokens,
        )


class Word(msgspec.Struct, frozen=True):
    """What another router last told, and when that came."""

    told_at_s: float
    ranks: dict[Target, RankPartial]


class Ledger:
    """Reservations of all ranks. Every count is at least zero and ends at zero."""

    def __init__(self, outputs: OutputLengths | None = None) -> None:
        #: Lengths of answers, by which what is still to come is reckoned.
        self.outputs = OutputLengths() if outputs is None else outputs
        self._fence = Fence()
        #: What other routers told last; read by others, written here only, as are the accounts.
        self.words: dict[str, Word] = {}
        self._open: dict[RequestId, Reservation] = {}
        #: Of the ranks that have something open.
        self.accounts: dict[Target, RankAccount] = {}
        #: Reservations ever made.
        self.reserved_total = 0
        #: Reservations ever released; the difference is what is open.
        self.released_total = 0

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, request_id: RequestId) -> bool:
        return request_id in self._open

    def find(self, request_id: RequestId) -> Reservation | None:
        """The open reservation of a request, None when there is none."""
        return self._open.get(request_id)

    def totals(self, target: Target, now_s: float) -> RankTotals:
        """What is open on a rank at a time, by this router and by those that told theirs."""
        account = self.accounts.get(target)
        own = _NOTHING if account is None else account.totals(now_s)
        return _add_words(own, target, self.words.values(), now_s) if self.words else own

    def find_decoding(self, target: Target) -> tuple[int, int]:
        """Of these, the requests that generate on a rank, and the tokens they attend to."""
        account = self.accounts.get(target)
        requests, context_tokens = (0, 0) if account is None else (len(account.decoding), account.context_tokens)
        for word in self.words.values():
            partial = word.ranks.get(target)
            if partial is not None:
                requests += partial.decoding_requests
                context_tokens += partial.context_tokens
        return requests, context_tokens

    def find_busy(self, requests: int) -> frozenset[Target]:
        """Ranks that have so many open requests of this router, or more. Cost: one look at each rank that has any."""
        accounts = self.accounts.items()
        return frozenset(target for target, each in accounts if len(each.prefilling) + len(each.decoding) >= requests)

    def waiting_s(self, target: Target, now_s: float) -> float:
        """Of these, the seconds of prefill ahead."""
        account = self.accounts.get(target)
        own_s = 0.0 if account is None else account.waiting_s(now_s)
        return _add_waits_s(own_s, target, self.words.values(), now_s) if self.words else own_s

    def accept(self, partial: LedgerPartial, now_s: float) -> frozenset[Target] | None:
        """What another router has placed replaces what it told before; None where the word is old.

        Returns:
            Ranks whose sums may have changed.
        """
        if not self._fence.admit(partial.origin, partial.stamp):
            return None
        before = self.words.pop(partial.origin, None)
        if partial.ranks:
            self.words[partial.origin] = Word(now_s, {rank.target: rank for rank in partial.ranks})
        changed = frozenset(rank.target for rank in partial.ranks)
        return changed if before is None else changed | before.ranks.keys()

    def expire(self, now_s: float) -> frozenset[Target]:
        """Forgets routers that fell silent; returns the ranks they had something on."""
        silent = [origin for origin, word in self.words.items() if now_s - word.told_at_s > PARTIAL_TTL_S]
        return frozenset(target for origin in silent for target in self.words.pop(origin).ranks)

    def reserve(self, reservation: Reservation) -> bool:
        """Charges a request to its rank; False, and nothing done, when it is charged already."""
        if reservation.request_id in self._open:
            return False
        account = self.accounts.get(reservation.target)
        if account is None:
            account = self.accounts[reservation.target] = RankAccount()
        account.settle(reservation.reserved_at_s)
        self._open[reservation.request_id] = reservation
        outlook = self.outputs.foresee(reservation.max_output_tokens)
        reservation.remaining_output_tokens = outlook.remaining_tokens
        reservation.joint_output_tokens = outlook.joint_tokens
        account.add_prefill(reservation)
        self.reserved_total += 1
        return True

    def start_decode(self, request_id: RequestId, now_s: float) -> bool:
        """The first token came: releases the prefill part. False when the request is past that, or gone."""
        reservation = self._open.get(request_id)
        if reservation is None or reservation.phase is Phase.DECODE:
            return False
        account = self.accounts[reservation.target]
        account.settle(now_s)
        account.remove_prefill(reservation)
        reservation.phase = Phase.DECODE
        reservation.remaining_prefill_s = 0.0
        account.add_decode(reservation)
        return True

    def record_output(self, request_id: RequestId, output_tokens: int) -> Reservation | None:
        """Output so far; fewer than before changes nothing. None when the request is gone."""
        reservation = self._open.get(request_id)
        if reservation is not None and output_tokens > reservation.output_tokens:
            self.accounts[reservation.target].record_output(reservation, output_tokens, self.outputs)
        return reservation

    def release(self, request_id: RequestId, now_s: float) -> Reservation | None:
        """Takes a request off its rank; None, and nothing done, when it is off already."""
        reservation = self._open.pop(request_id, None)
        if reservation is None:
            return None
        account = self.accounts[reservation.target]
        if reservation.phase is Phase.PREFILL:
            account.settle(now_s)
            account.remove_prefill(reservation)
        else:
            # Nothing ahead of the rank changes: its seconds go on from where they were counted last.
            account.remove_decode(reservation)
        if not account.prefilling and not account.decoding:
            del self.accounts[reservation.target]
        self.released_total += 1
        return reservation

    def release_target(self, target: Target, now_s: float) -> tuple[Reservation, ...]:
        """Takes everything off a rank that was lost."""
        lost = [entry.request_id for entry in self._open.values() if entry.target == target]
        released = (self.release(request_id, now_s) for request_id in lost)
        return tuple(reservation for reservation in released if reservation is not None)

    def open_requests(self, origin: str | None = None) -> tuple[RequestId, ...]:
        """Requests not ended, of one router or of all."""
        return tuple(entry.request_id for entry in self._open.values() if origin is None or entry.origin == origin)

    def check_invariants(self) -> None:
        """Raises AssertionError unless sums, phases and counters agree."""
        check_ledger(self._open, self.accounts, open_total=self.reserved_total - self.released_total)


def _add_words(own: RankTotals, target: Target, words: Iterable[Word], now_s: float) -> RankTotals:
    """Sums with those of other routers."""
    sums = {name: getattr(own, name) for name in RankTotals.__struct_fields__}
    for word in words:
        partial = word.ranks.get(target)
        for name in sums if partial is not None else ():
            sums[name] += getattr(partial, name)
    sums["waiting_s"] = _add_waits_s(own.waiting_s, target, words, now_s)
    return RankTotals(**sums)


def _add_waits_s(own_s: float, target: Target, words: Iterable[Word], now_s: float) -> float:
    """Seconds of prefill ahead with those of other routers, whose prefills went on since they told of them."""
    for word in words:
        partial = word.ranks.get(target)
        if partial is not None:
            own_s += partial.waiting_s
            own_s -= min(partial.waiting_s, max(0.0, now_s - word.told_at_s))
    return own_s
