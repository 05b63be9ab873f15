"""What becomes of the two legs of a request: stimuli in, instructions out. Pure.

    Begin ──> Send the legs, at once or prefill first ──> Deliver the leg that decides ──> both legs over
                │ Refused: nobody can have begun               │ the other leg fails before any output
                └──> Abort the other, Retry                    └──> Abort this one, Fail

Rules: a leg that was sent ends once, by its own end or by `Abort`; the prefill rank's charge is released once, as soon
as its part is done; the client gets the answer of one leg, and the first failure frees the other leg at once. Before
the first output a decode leg rests on its prefill leg; after it the cache has been handed over, and how the prefill leg
ends is nobody's concern but its own rank's.
Source: docs/faults.md C01, C02, C19, B10.
"""

from enum import StrEnum

import msgspec


class Leg(StrEnum):
    """One of the two."""

    PREFILL = "prefill"
    DECODE = "decode"


class Order(StrEnum):
    """When the legs are sent."""

    #: Both at once: they find each other.
    TOGETHER = "together"
    #: The decode leg once the prefill leg has told where its cache is.
    PREFILL_FIRST = "prefill_first"
    #: The prefill leg is over already, and only the decode leg is sent again.
    DECODE_ONLY = "decode_only"


class Begin(msgspec.Struct, frozen=True):
    """The pair is placed."""


class Refused(msgspec.Struct, frozen=True):
    """No connection came about: the leg's worker saw nothing of the request."""

    leg: Leg


class Answered(msgspec.Struct, frozen=True):
    """The decode leg's answer began; `is_good` where it is one of status 2xx."""

    is_good: bool


class Ended(msgspec.Struct, frozen=True):
    """A leg's answer is complete; `is_good` where it is one of status 2xx."""

    leg: Leg
    is_good: bool = True


class Failed(msgspec.Struct, frozen=True):
    """A leg broke off after it was sent."""

    leg: Leg


class FirstOutput(msgspec.Struct, frozen=True):
    """The model's first output came out of the decode leg."""


class TimedOut(msgspec.Struct, frozen=True):
    """A leg took too long."""

    leg: Leg


class Stopped(msgspec.Struct, frozen=True):
    """The client left, or the request is given up."""


Stimulus = Begin | Refused | Answered | Ended | Failed | FirstOutput | TimedOut | Stopped


class Send(msgspec.Struct, frozen=True):
    """Send a leg."""

    leg: Leg


class Abort(msgspec.Struct, frozen=True):
    """Close a leg's connection and tell its engine to give up."""

    leg: Leg


class Release(msgspec.Struct, frozen=True):
    """The prefill rank is free of the request; `is_done` where it did its part."""

    is_done: bool


class Deliver(msgspec.Struct, frozen=True):
    """Give the client this leg's answer."""

    leg: Leg


class Fail(msgspec.Struct, frozen=True):
    """The client gets an error: this leg is to blame."""

    leg: Leg


class Retry(msgspec.Struct, frozen=True):
    """Nobody can have begun: the request may be placed anew without this leg's worker."""

    leg: Leg


Instruction = Send | Abort | Release | Deliver | Fail | Retry


class _State(StrEnum):
    UNSENT = "unsent"
    SENT = "sent"
    OVER = "over"


class Legs:
    """The legs of one request on one pair."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._states = dict.fromkeys(Leg, _State.UNSENT)
        self._is_charged = order is not Order.DECODE_ONLY
        if order is Order.DECODE_ONLY:
            self._states[Leg.PREFILL] = _State.OVER
        #: What the client gets was decided.
        self.is_decided = False
        #: The model's output has come: the decode leg stands on its own.
        self.has_output = False
        self._answering: Leg | None = None
        #: The answer that the client gets came to its end.
        self.is_complete = False

    def is_open(self, leg: Leg) -> bool:
        """Whether a leg was sent and has not ended."""
        return self._states[leg] is _State.SENT

    def handle(self, stimulus: Stimulus) -> tuple[Instruction, ...]:
        """Take one stimulus in. A late one, of a leg that is over, changes nothing."""
        match stimulus:
            case Begin():
                return self._begin()
            case Answered(is_good):
                return self._answer(is_good=is_good)
            case FirstOutput():
                self.has_output = True
                return self._release(is_done=True)
            case Stopped():
                self.is_decided = True
                return self._abort(*Leg)
        return self._end(stimulus) if self.is_open(stimulus.leg) else ()

    def _end(self, stimulus: Refused | Ended | Failed | TimedOut) -> tuple[Instruction, ...]:
        """A leg that was open is not any more."""
        leg = stimulus.leg
        match stimulus:
            case Refused():
                return self._refuse(leg)
            case Failed():
                return self._fail(leg)
            case TimedOut():
                return self._time_out(leg)
        return self._end_decode() if leg is Leg.DECODE else self._end_prefill(is_good=stimulus.is_good)

    def _begin(self) -> tuple[Instruction, ...]:
        first = {Order.TOGETHER: tuple(Leg), Order.PREFILL_FIRST: (Leg.PREFILL,), Order.DECODE_ONLY: (Leg.DECODE,)}
        return self._send(*first[self._order])

    def _send(self, *legs: Leg) -> tuple[Instruction, ...]:
        for leg in legs:
            self._states[leg] = _State.SENT
        return tuple(Send(leg) for leg in legs)

    def _refuse(self, leg: Leg) -> tuple[Instruction, ...]:
        self._states[leg] = _State.OVER
        if self.has_output:
            return self._release(is_done=False)
        told = self._fail_once(leg) if self.is_decided else self._tell(Retry(leg))
        return (*self._abort(*Leg), *told)

    def _answer(self, *, is_good: bool) -> tuple[Instruction, ...]:
        if self.is_decided or not self.is_open(Leg.DECODE):
            return ()
        self._answering = Leg.DECODE
        ended = () if is_good else self._abort(Leg.PREFILL)
        return (*ended, *self._tell(Deliver(Leg.DECODE)))

    def _end_prefill(self, *, is_good: bool) -> tuple[Instruction, ...]:
        self._states[Leg.PREFILL] = _State.OVER
        released = self._release(is_done=is_good)
        if is_good:
            is_next = self._order is Order.PREFILL_FIRST and not self.is_decided
            return (*released, *(self._send(Leg.DECODE) if is_next else ()))
        if not self.is_decided:
            # The client's mistake, most often: it gets the answer in the worker's own words.
            self._answering, self.is_complete = Leg.PREFILL, True
            return (*released, *self._abort(Leg.DECODE), *self._tell(Deliver(Leg.PREFILL)))
        return (*released, *self._lose_prefill())

    def _end_decode(self) -> tuple[Instruction, ...]:
        self._states[Leg.DECODE] = _State.OVER
        self.is_complete = self._answering is Leg.DECODE
        return self._release(is_done=True)

    def _fail(self, leg: Leg) -> tuple[Instruction, ...]:
        self._states[leg] = _State.OVER
        if leg is Leg.PREFILL:
            return (*self._release(is_done=False), *self._lose_prefill())
        return (*self._abort(Leg.PREFILL), *self._fail_once(leg))

    def _time_out(self, leg: Leg) -> tuple[Instruction, ...]:
        if leg is Leg.PREFILL and (self.has_output or self._states[Leg.DECODE] is _State.OVER):
            return self._abort(leg)
        return (*self._abort(*Leg), *self._fail_once(leg))

    def _lose_prefill(self) -> tuple[Instruction, ...]:
        """The prefill leg came to nothing: what has not shown output rests on it."""
        if self.has_output or self._states[Leg.DECODE] is _State.OVER:
            return ()
        return (*self._abort(Leg.DECODE), *self._fail_once(Leg.PREFILL))

    def _fail_once(self, leg: Leg) -> tuple[Instruction, ...]:
        """An error is told instead of an answer, or in the midst of one."""
        self.is_decided = True
        return () if self.is_complete else (Fail(leg),)

    def _tell(self, told: Deliver | Retry) -> tuple[Instruction, ...]:
        self.is_decided = True
        return (told,)

    def _abort(self, *legs: Leg) -> tuple[Instruction, ...]:
        """End what is open, and free the prefill rank of it."""
        ended = [leg for leg in legs if self.is_open(leg)]
        self._states.update(dict.fromkeys(ended, _State.OVER))
        released = self._release(is_done=False) if Leg.PREFILL in legs else ()
        return (*(Abort(leg) for leg in ended), *released)

    def _release(self, *, is_done: bool) -> tuple[Instruction, ...]:
        if not self._is_charged:
            return ()
        self._is_charged = False
        return (Release(is_done),)
