"""What this router has placed and is not done yet: the load it charges itself.

Life of a reservation:

    reserve ──> PREFILL ── start_decode ──> DECODE ── release ──> gone
                   └──────────── release ─────────────────────────^

Charged at the decision, before anything is sent. The prefill part leaves at the first token, the decode part shrinks
with the output, the rest leaves at the end: once, on whichever path comes first; whatever comes later finds nothing.
A rank works on one prefill at a time, in order, so that between stimuli the seconds ahead shrink with the clock; an
overdue request keeps a tenth of its estimate, so that a rank which hangs never looks idle. Sums are recomputed from the
open reservations at each change and so end at exactly zero.
"""

import math
from enum import StrEnum

import msgspec

from wire.ids import RequestId, Target

#: Share of its estimate that an overdue prefill keeps.
OVERDUE_RATIO = 0.1


class Phase(StrEnum):
    """How far a request is."""

    PREFILL = "prefill"
    DECODE = "decode"


class Reservation(msgspec.Struct, kw_only=True):
    """The load of one request on its rank. Written by the ledger only."""

    request_id: RequestId
    target: Target
    #: Router that placed it, so that several can share their ledgers.
    origin: str
    reserved_at_s: float
    prompt_tokens: int
    #: Prompt tokens to be computed.
    uncached_tokens: int
    #: Seconds of prefill, as estimated at the decision.
    prefill_s: float
    #: Seconds of it not done yet.
    remaining_prefill_s: float
    expected_output_tokens: int
    output_tokens: int = 0
    phase: Phase = Phase.PREFILL

    @property
    def remaining_output_tokens(self) -> int:
        """Output still expected; a request beyond its expectation is good for one more."""
        return max(self.expected_output_tokens - self.output_tokens, 1)


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

    @property
    def open_requests(self) -> int:
        """All of them."""
        return self.waiting_requests + self.decoding_requests


_NOTHING = RankTotals()


class _RankAccount:
    """Open reservations of one rank, and their sums as of `settled_at_s`."""

    def __init__(self) -> None:
        self.prefilling: dict[RequestId, Reservation] = {}
        self.decoding: dict[RequestId, Reservation] = {}
        self.settled_at_s = -math.inf
        self.estimated_s = 0.0
        self.remaining_s = 0.0
        self.uncached_tokens = 0
        self.remaining_output_tokens = 0
        self.context_tokens = 0

    def settle(self, now_s: float) -> None:
        """Takes the seconds since the last time off the queue, first come first done."""
        elapsed_s = max(0.0, now_s - self.settled_at_s)
        for reservation in self.prefilling.values():
            floor_s = reservation.prefill_s * OVERDUE_RATIO
            done_s = min(elapsed_s, max(0.0, reservation.remaining_prefill_s - floor_s))
            reservation.remaining_prefill_s -= done_s
            elapsed_s -= done_s
        self.settled_at_s = max(self.settled_at_s, now_s)

    def recount(self) -> None:
        """Computes the sums anew."""
        prefilling, decoding = self.prefilling.values(), self.decoding.values()
        self.estimated_s = math.fsum(entry.prefill_s for entry in prefilling)
        self.remaining_s = math.fsum(entry.remaining_prefill_s for entry in prefilling)
        self.uncached_tokens = sum(entry.uncached_tokens for entry in prefilling)
        self.remaining_output_tokens = sum(entry.remaining_output_tokens for entry in decoding)
        self.context_tokens = sum(entry.prompt_tokens + entry.output_tokens for entry in decoding)

    def totals(self, now_s: float) -> RankTotals:
        """Sums at a time, without writing anything."""
        elapsed_s = max(0.0, now_s - self.settled_at_s)
        waiting_s = max(self.estimated_s * OVERDUE_RATIO, self.remaining_s - elapsed_s)
        left_ratio = min(1.0, waiting_s / self.estimated_s) if self.estimated_s > 0 else 1.0
        return RankTotals(
            waiting_s=waiting_s,
            waiting_tokens=round(self.uncached_tokens * left_ratio),
            waiting_requests=len(self.prefilling),
            decoding_requests=len(self.decoding),
            remaining_output_tokens=self.remaining_output_tokens,
            context_tokens=self.context_tokens,
        )


class Ledger:
    """Reservations of all ranks. Every count is at least zero and ends at zero."""

    def __init__(self) -> None:
        self._open: dict[RequestId, Reservation] = {}
        self._accounts: dict[Target, _RankAccount] = {}
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
        """What is open on a rank at a time."""
        account = self._accounts.get(target)
        return _NOTHING if account is None else account.totals(now_s)

    def reserve(self, reservation: Reservation) -> bool:
        """Charges a request to its rank; False, and nothing done, when it is charged already."""
        if reservation.request_id in self._open:
            return False
        account = self._accounts.setdefault(reservation.target, _RankAccount())
        account.settle(reservation.reserved_at_s)
        self._open[reservation.request_id] = reservation
        account.prefilling[reservation.request_id] = reservation
        account.recount()
        self.reserved_total += 1
        return True

    def start_decode(self, request_id: RequestId, now_s: float) -> bool:
        """The first token came: releases the prefill part. False when the request is past that, or gone."""
        reservation = self._open.get(request_id)
        if reservation is None or reservation.phase is Phase.DECODE:
            return False
        account = self._accounts[reservation.target]
        account.settle(now_s)
        del account.prefilling[request_id]
        reservation.phase = Phase.DECODE
        reservation.remaining_prefill_s = 0.0
        account.decoding[request_id] = reservation
        account.recount()
        return True

    def record_output(self, request_id: RequestId, output_tokens: int) -> bool:
        """Output so far; fewer than before changes nothing. False when the request is gone."""
        reservation = self._open.get(request_id)
        if reservation is None:
            return False
        if output_tokens > reservation.output_tokens:
            reservation.output_tokens = output_tokens
            self._accounts[reservation.target].recount()
        return True

    def release(self, request_id: RequestId, now_s: float) -> Reservation | None:
        """Takes a request off its rank; None, and nothing done, when it is off already."""
        reservation = self._open.pop(request_id, None)
        if reservation is None:
            return None
        account = self._accounts[reservation.target]
        account.settle(now_s)
        account.prefilling.pop(request_id, None)
        account.decoding.pop(request_id, None)
        account.recount()
        if not account.prefilling and not account.decoding:
            del self._accounts[reservation.target]
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
        check_ledger(self._open, self._accounts, open_total=self.reserved_total - self.released_total)


def check_ledger(
    reservations: dict[RequestId, Reservation], accounts: dict[Target, _RankAccount], *, open_total: int
) -> None:
    """Raises AssertionError unless every open reservation stands in exactly one account and no sum is negative."""
    problems = []
    if open_total != len(reservations):
        problems.append(f"{open_total} reservations should be open, {len(reservations)} are")
    standing = [name for account in accounts.values() for name in (*account.prefilling, *account.decoding)]
    if sorted(standing) != sorted(reservations):
        problems.append(f"accounts hold {sorted(standing)}, open are {sorted(reservations)}")
    for target, account in accounts.items():
        entries = [*account.prefilling.values(), *account.decoding.values()]
        if not entries:
            problems.append(f"{target} has an account and nothing in it")
        if any(entry.target != target for entry in entries):
            problems.append(f"{target} is charged for another rank's request")
        sums = (account.estimated_s, account.remaining_s, account.uncached_tokens, account.context_tokens)
        if min(*sums, account.remaining_output_tokens) < 0:
            problems.append(f"{target} has a negative sum: {sums}")
    if problems:
        raise AssertionError("; ".join(problems))
