"""Where the sequences are: waiting, running or retracted, in order of arrival.

Every retracted sequence is older than every waiting one, and younger than every running one: both are
consequences of serving in order and retracting the youngest.
"""

from collections import deque

from engine_shim.engine.admission.sequence import Sequence


class Queues:
    """The sequences that have not ended; each is in exactly one queue."""

    def __init__(self) -> None:
        #: Never admitted yet.
        self.waiting: deque[Sequence] = deque()
        #: Holding a lease, oldest first.
        self.running: list[Sequence] = []
        #: Gave their lease back for want of pages; served before the waiting ones.
        self.retracted: deque[Sequence] = deque()
        self._by_id: dict[str, Sequence] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._by_id

    def add(self, sequence: Sequence) -> None:
        """Let a new sequence wait."""
        self._by_id[sequence.request.request_id] = sequence
        self.waiting.append(sequence)

    def find_next(self) -> Sequence | None:
        """The sequence to admit next."""
        if self.retracted:
            return self.retracted[0]
        return self.waiting[0] if self.waiting else None

    def admit(self, sequence: Sequence) -> None:
        """Move the sequence that `find_next` gave to the running ones."""
        (self.retracted or self.waiting).popleft()
        self.running.append(sequence)

    def retract_youngest(self) -> Sequence:
        """Move the youngest running sequence to the retracted ones."""
        sequence = self.running.pop()
        self.retracted.appendleft(sequence)
        return sequence

    def remove(self, request_id: str) -> Sequence | None:
        """Take a sequence out, wherever it is; None where it is unknown."""
        sequence = self._by_id.pop(request_id, None)
        if sequence is None:
            return None
        if sequence.lease is not None:
            self.running.remove(sequence)
        elif sequence in self.retracted:
            self.retracted.remove(sequence)
        else:
            self.waiting.remove(sequence)
        return sequence

    def check_invariants(self) -> None:
        """Raise `RuntimeError` where the queues overlap or are out of order."""
        everyone = [*self.running, *self.retracted, *self.waiting]
        numbers = [sequence.number for sequence in everyone]
        if numbers != sorted(set(numbers)):
            raise RuntimeError(f"sequences are out of order: {numbers}")
        if {sequence.request.request_id for sequence in everyone} != set(self._by_id):
            raise RuntimeError("a sequence is known and in no queue, or the other way round")
        for sequence in everyone:
            if (sequence.lease is not None) != (sequence in self.running):
                raise RuntimeError(f"{sequence.request.request_id} has a lease and does not run, or the reverse")
