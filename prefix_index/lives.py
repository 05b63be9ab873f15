"""Whose batches a stream takes for its own: the life of a mirror, and the number by which an engine calls its rank."""

from collections import deque

from wire.source_note import SourceNote

#: Lives of a mirror that ended, whose late batches are left out.
_MAX_RETIRED = 16


class Lives:
    """Lives of a source that names them, one after the other, and the rank it names."""

    def __init__(self, dp_rank: int) -> None:
        self._dp_rank = dp_rank
        self._retired: deque[str] = deque(maxlen=_MAX_RETIRED)
        #: Life that the source names; None before it named one.
        self.current: str | None = None
        #: Number by which the engine calls this rank; need not be ours where each engine is one of a larger group.
        self.named_rank: int | None = None

    def has_ended(self, incarnation: str | None) -> bool:
        """Whether a life is one of those before the current one."""
        return incarnation in self._retired

    def begin(self, incarnation: str) -> bool:
        """Another life than the current one begins; True where one ends with it."""
        is_new = self.current is not None
        if incarnation in self._retired:
            # A batch that was late had ended it.
            self._retired.remove(incarnation)
        if self.current is not None:
            self._retired.append(self.current)
        self.current = incarnation
        return is_new

    def knows(self, note: SourceNote | None) -> bool:
        """Whether a batch is of the current life as far as its note says."""
        return note is None or note.incarnation == self.current

    def is_of_another_rank(self, dp_rank: int | None) -> bool:
        """Whether a batch names another rank than the ones before: two ranks publish at one address."""
        if dp_rank is None or dp_rank == self.named_rank:
            return False
        if self.named_rank is None or dp_rank == self._dp_rank:
            self.named_rank = dp_rank
            return False
        return True
